"""One module per experiment: the numbers behind its figures, and the drawing of those numbers.

A module `sweeps/figures/NAME.py` draws the sweep of the same name in `conf/sweep`. It has

- `QUESTION`: what the experiment asks, in one or two sentences;
- `tables(frames)`: the tidy numbers, by name, every statistic from `sweeps.statistics`;
- `draw(tables, remarks)`: figures that show these tables and nothing else; `remarks` are printed
  below them.

Sweeps without a module of their own are drawn by `adhoc`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pandas as pd

from sweeps.aggregate import CELL_KEYS as CONFIG_KEYS
from sweeps.statistics import counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sweeps.aggregate import SweepFrames

CELL_KEYS = ("model", "parameterization", "head", "data", "loss", "optimizer", *CONFIG_KEYS)
"""The options and fields that name a cell of a sweep."""


UNTYPED = ("tie", "diverged", "stalled", "rejected", "failed")
"""Statuses of the instances whose end says nothing about where training converges to."""


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files and what a reader must know to read it.

    `frames`, where there are any, are the pictures (height, width, RGB) of an animation.
    """

    name: str
    figure: Figure
    caption: str
    frames: tuple[np.ndarray, ...] = ()


class FigureModule(Protocol):
    """What every module of this package offers."""

    QUESTION: str

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the tidy numbers behind the figures, by the name of their CSV file."""

    def draw(self, tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures of these tables, with remarks in their small print."""


def figure_module(sweep: str) -> FigureModule:
    """Return the module that draws the sweep of that name; `adhoc` if it has none of its own."""
    own = {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    name = sweep if sweep in own else "adhoc"
    return cast(FigureModule, importlib.import_module(f"{__name__}.{name}"))


def varying(frame: pd.DataFrame, besides: Sequence[str] = ()) -> list[str]:
    """Return the cell keys that take more than one value in `frame`, except those `besides`."""
    present = [key for key in CELL_KEYS if key in frame and key not in besides]
    return [key for key in present if frame[key].nunique(dropna=False) > 1]


def split(frame: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the part of `frame` of each combination of `keys` with a label such as `head=relu`."""
    if not keys or frame.empty:
        yield "", frame
        return
    for values, part in frame.groupby(list(keys), dropna=False, sort=True):
        yield label(dict(zip(keys, values, strict=True))), part


ARITHMETIC = {"direct": " (published arithmetic)", "log_domain": " (exact)"}
"""What is added to the name of a gradient: whose arithmetic a curve is must be seen on it."""


def label(cell: dict[str, Any]) -> str:
    """Return a cell's keys as a user types them: `head=relu, d=4`."""
    return ", ".join(
        f"{key}={number(value)}{ARITHMETIC.get(value, '') if key == 'gradient' else ''}"
        for key, value in cell.items()
    )


def number(value: Any) -> str:
    """Return a value in short, to four digits: 5 rather than 5.0, a dash for a missing one."""
    if value is None or value is pd.NA or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def outcomes(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the number of instances of each cell by status, reason and how training ended."""
    trials = trials.assign(training=trials.get("training", ""))
    return counts(trials, [*varying(trials), "status", "reason", "training"])


def fates(outcomes: pd.DataFrame) -> str:
    """Return a sentence on what became of all instances; what did not happen is said too."""
    found = outcomes.groupby("status")["count"].sum().sort_values(ascending=False)
    asked = dict.fromkeys(("ok", "infeasible", "undecided", "rejected", "stalled", "failed"), 0)
    by_status = dict(found.items()) | {s: 0 for s in asked if s not in found}
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
