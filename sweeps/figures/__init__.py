"""One module per experiment: the numbers of its figures, and the drawing of these numbers.

A module `sweeps/figures/NAME.py` draws the sweep of the same name in `conf/sweep`. It has

- `tables(frames)`: the tidy numbers, by name, every statistic from `sweeps.statistics`;
- `draw(tables, remarks)`: figures that show these tables and nothing else; `remarks` are printed
  below them.

Sweeps without a module of their own are drawn by `adhoc`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import pandas as pd

from sweeps.cells import split, varying
from sweeps.statistics import counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sweeps.aggregate import SweepFrames

SELECTED = ("global", "local", "not_local", "unsettled", "unknown")
"""Types of convergence of instances that have selected one token in each sample."""

UNTYPED = ("tie", "diverged", "stalled", "rejected", "failed")
"""Statuses of instances whose last step does not show where training converges to."""


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files, its caption, and the frames of its animation if it has one.

    Frames are images of shape (height, width, RGB).
    """

    name: str
    figure: Figure
    caption: str
    frames: tuple[np.ndarray, ...] = ()


class FigureModule(Protocol):
    """The interface of every module of this package."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the tidy numbers of the figures, by the name of their CSV file."""

    def draw(self, tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures of these tables, with remarks in their small print."""


def figure_module(sweep: str) -> FigureModule:
    """Return the module that draws the sweep of that name; `adhoc` if there is none."""
    own = {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    name = sweep if sweep in own else "adhoc"
    return cast(FigureModule, importlib.import_module(f"{__name__}.{name}"))


def outcomes(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the number of instances of each cell by status, reason and how training ended."""
    trials = trials.assign(training=trials.get("training", ""))
    return counts(trials, [*varying(trials), "status", "reason", "training"])


def status_counts(outcomes: pd.DataFrame) -> str:
    """Return a sentence with the number of instances by status, usual ones even if zero."""
    found = outcomes.groupby("status")["count"].sum().sort_values(ascending=False)
    usual = ("ok", "infeasible", "undecided", "rejected", "stalled", "failed")
    by_status = dict(found.items()) | {s: 0 for s in usual if s not in found}
    listed = ", ".join(f"{n} {status}" for status, n in by_status.items())
    return f"Instances: {found.sum()} ({listed}).{stalled(outcomes)}"


def stalled(outcomes: pd.DataFrame) -> str:
    """Return a sentence on the instances that are drawn although their training stalled."""
    drawn = outcomes[outcomes["status"] == "ok"]
    if not (drawn["training"] == "stalled").any():
        return ""
    parts = [
        f"{part.loc[part['training'] == 'stalled', 'count'].sum()} of {part['count'].sum()} {name}"
        for name, part in split(drawn, [key for key in ("gradient",) if key in drawn])
    ]
    return f" Drawn although training stalled: {', '.join(part.strip() for part in parts)}."


def history_of(frames: SweepFrames, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the history of the instances in `trials`."""
    return frames.history.merge(trials[["run", "seed"]], on=["run", "seed"])
