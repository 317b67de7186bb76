"""One module per experiment: the numbers of its figures, and the drawing of these numbers.

A module `sweeps/figures/NAME.py` draws the sweep of the same name in `conf/sweep`. It has

- `tables(frames)`: the tidy numbers, by name, every statistic from `sweeps.statistics`; each table
  has the axes of the sweep as columns, so that no two cells share a row;
- `draw(tables, axes, remarks)`: figures that show these tables and nothing else; `remarks` are
  printed below them.

Sweeps without a module of their own are drawn by `adhoc`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import pandas as pd

from ..cells import row_key
from ..statistics import counts
from ..style import CONVERGENCE
from ._elsewhere import own_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..aggregate import SweepFrames
    from ..cells import CellAxes

SELECTED = ("global", "local", "not_local", "unsettled", "unknown")
"""Types of convergence of instances that have selected one token in each sample."""

UNTYPED = ("tie", "diverged", "stalled", "rejected", "failed")
"""Statuses of instances whose last step does not show where training converges to."""


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when it is asked for.

    Attributes
    ----------
    name : str
        Name of its files.
    caption : str
        What it shows.
    make : callable
        Returns the figure.
    animate : callable
        Returns the images of its animation, of shape (height, width, RGB); none by default.
    """

    name: str
    caption: str
    make: Callable[[], Figure]
    animate: Callable[[], tuple[np.ndarray, ...]] = tuple

    @cached_property
    def figure(self) -> Figure:
        """The figure."""
        return self.make()

    @cached_property
    def frames(self) -> tuple[np.ndarray, ...]:
        """The images of the animation."""
        return self.animate()


class FigureModule(Protocol):
    """The interface of every module of this package."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the tidy numbers of the figures, by the name of their CSV file."""

    def draw(
        self, tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
    ) -> list[Drawing]:
        """Return the figures of these tables, with remarks in their small print."""


def figure_module(sweep: str, folders: Iterable[Path] = ()) -> FigureModule:
    """Return the module that draws the sweep of that name; `adhoc` if there is none.

    `folders` are those of the user's own config files.
    """
    own = {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    if sweep not in own and (found := own_figures(sweep, folders)) is not None:
        return cast(FigureModule, found)
    name = sweep if sweep in own else "adhoc"
    return cast(FigureModule, importlib.import_module(f"{__name__}.{name}"))


def ended(trials: pd.DataFrame) -> pd.Series[str]:
    """Return how an instance ended: its type of convergence, the status where it has none."""
    typed = trials["convergence"].isin(CONVERGENCE) & ~trials["status"].isin(UNTYPED)
    return trials["convergence"].where(typed, trials["status"])


def outcomes(trials: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the number of instances of each cell by status, reason and how training ended."""
    trials = trials.assign(training=trials.get("training", ""))
    return counts(trials, [*axes.names, "status", "reason", "training"])


def status_counts(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence with the number of instances by status, usual ones even if zero."""
    found = outcomes.groupby("status")["count"].sum().sort_values(ascending=False)
    usual = ("ok", "infeasible", "undecided", "rejected", "stalled", "failed")
    by_status = dict(found.items()) | {s: 0 for s in usual if s not in found}
    listed = ", ".join(f"{n} {status}" for status, n in by_status.items())
    return f"Instances: {found.sum()} ({listed}).{stalled(outcomes, axes)}"


def stalled(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence on the instances that are drawn although their training stalled."""
    drawn = outcomes[outcomes["status"] == "ok"]
    if not (drawn["training"] == "stalled").any():
        return ""
    parts = [
        f"{part.loc[part['training'] == 'stalled', 'count'].sum()} of {part['count'].sum()} {name}"
        for name, part in axes.split(drawn, [key for key in ("gradient",) if key in axes.names])
    ]
    return f" Drawn although training stalled: {', '.join(part.strip() for part in parts)}."


def history_of(frames: SweepFrames, trials: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the history of the instances in `trials`, with the columns `keys` of these."""
    lacking = [key for key in keys if key not in frames.history]
    key = row_key(trials)
    return frames.history.merge(trials[[*key, *lacking]], on=key)
