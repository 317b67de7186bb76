"""Every optimizer against every norm: in which one its weights have the largest margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .. import statistics, style
from ..cells import CellAxes, row_key
from . import Drawing, _selections, history_of, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

GAP, GAP_OVER_STEPS = "_margin_gap", "margin_gap_"
"""End of the column in trials, after the norm; beginning of the quantity in history, before it."""

OWN = {
    **dict.fromkeys(
        ("normalized_gd", "gd", "momentum", "polyak", "regularization_path"), "frobenius"
    ),
    "sign_gd": "max",
    "adam": "max",
    "muon": "spectral",
}
"""Norm in which an optimizer of W has the largest margin in theory, for linear models."""

OF_FACTORS = {"frobenius": "nuclear", "spectral": "spectral", "schatten4": "frobenius"}
"""Norm of the steps of K and Q -> that of K Q^T which they make small together.

min ||K||_Sp ||Q||_Sp over K Q^T = W is ||W||_Sp/2, by Hoelder's inequality for singular values.
"""

NORMS = ("frobenius", "spectral", "max", "l1", "nuclear")
"""Norms in the order of rows and columns; others follow."""

CERTIFIED = ("ok",)
RANGE = 1e-4, 1.0
"""Margin gaps of the ends of the colour scale."""

CURVES = 12
"""Largest number of optimizers in a figure."""

NOTE = (
    "Median of the margin gap 1 - rho(W) over saturated instances with certified SVMs, their "
    "number, and the 95 % bootstrap interval of the median. Framed: the norm of the optimizer's "
    "steps (muon: spectral, adam: max), for (K, Q) the one that these make small in K Q^T. Bold: "
    "the least gap of a row."
)
NOTE_STEPS = "Lines: median of the margin gap in that norm; band: its 95 % bootstrap interval."
CAPTION = (
    "Median margin gap of the trained weights in each norm (columns) for each optimizer (rows) at "
    "the last step; 0 is the largest margin of that norm."
)
CAPTION_STEPS = (
    "Median margin gap over the steps, each optimizer in the norm of its steps (muon: spectral, "
    "adam: max), for (K, Q) in the one that these make small in K Q^T."
)


@dataclass(frozen=True)
class Geometry:
    """The figures of a sweep over optimizers; its module exports `tables` and `draw`.

    Attributes
    ----------
    name : str
        That of the sweep.
    """

    name: str

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the gaps in every norm, in the own one over the steps, tokens, and counts."""
        by, trials = frames.axes.besides(), _with_own(frames.trials)
        certified = trials[trials["status"].isin(CERTIFIED)]
        names = [name for name in certified if str(name).endswith(GAP)]
        keys = [*by, "own"]
        long = certified.melt(keys, names, "margin_in", "value")
        long["margin_in"] = long["margin_in"].str.removesuffix(GAP)
        history = history_of(frames, certified.drop(columns=["own"]), by)
        key = row_key(certified)
        history = history.merge(certified[[*key, "own"]], on=key)
        curves = history[history["quantity"].astype(str) == GAP_OVER_STEPS + history["own"]]
        return {
            self.name: statistics.summaries(long, [*keys, "margin_in"], "value", "median"),
            f"{self.name}_steps": statistics.summaries(curves, [*keys, "step"], "value", "median"),
            f"{self.name}_tokens": _selections.of_pairs(frames),
            f"{self.name}_counts": outcomes(frames.trials, frames.axes),
        }

    def draw(
        self, tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
    ) -> list[Drawing]:
        """Return the map, the curves and the maps of tokens, or several of each."""
        counts = f"{self.name}_counts"
        drawn = [
            drawing
            for name, make, caption in (
                (self.name, self._map, CAPTION),
                (f"{self.name}_steps", self._steps, CAPTION_STEPS),
            )
            for drawing in drawings(
                name, tables, axes, remarks, make, caption=caption, room=CURVES, cells=counts
            )
        ]
        return drawn + _selections.draw(f"{self.name}_tokens", tables, axes, remarks, counts)

    def _map(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
        counted = status_counts(tables[f"{self.name}_counts"], axes)
        return _map(tables[self.name], axes, [NOTE, counted, *remarks])

    def _steps(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
        counted = status_counts(tables[f"{self.name}_counts"], axes)
        return _steps(tables[f"{self.name}_steps"], axes, [NOTE_STEPS, counted, *remarks])


OF_W, OF_KQ = Geometry("optimizer_geometry"), Geometry("optimizer_geometry_kq")
tables, draw = OF_W.tables, OF_W.draw


def _with_own(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with the norm of the optimizer, "" where it is not known, as `own`."""
    own = trials["optimizer"].map(OWN)
    if "norm" in trials:
        own = own.where(trials["optimizer"] != "steepest", trials["norm"])
    if "parameterization" in trials:
        own = own.where(trials["parameterization"] != "kq", own.map(OF_FACTORS))
    return trials.assign(own=own.fillna(""))


def _map(table: pd.DataFrame, axes: CellAxes, notes: Sequence[str]) -> Figure:
    columns = sorted(set(table["margin_in"]), key=_place)
    rows = _optimizers(table, axes)
    fig = style.figure(1.25 * max(len(columns), 3) + 3.6, 0.5 * max(len(rows), 2) + 1.6)
    ax = fig.subplots()
    style.note(fig, notes)
    if table["used"].sum() == 0:
        style.empty(ax, "no certified instance")
        return fig
    medians = np.full((len(rows), len(columns)), np.nan)
    for i, (_, part) in enumerate(rows):
        here = part.set_index("margin_in")
        medians[i] = [here["median"].get(norm, np.nan) for norm in columns]
        for j, norm in enumerate(columns):
            _write(ax, here, norm, (i, j), medians[i])
    clipped = np.clip(medians, *RANGE)
    image = ax.imshow(clipped, cmap="viridis", norm=LogNorm(*RANGE), aspect="auto")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), [style.wrapped(name, 46) for name, _ in rows])
    ax.set_xlabel("norm of the margin")
    ax.grid(False)
    ax.tick_params(length=0)
    fig.colorbar(image, ax=ax, label="median margin gap", pad=0.02)
    return fig


def _optimizers(table: pd.DataFrame, axes: CellAxes) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each optimizer with its label, in the order of the norms of their steps.

    The label leaves out the fields that the optimizer does not have.
    """
    names = [name for name in axes.besides() if name in table]
    if not names or table.empty:
        return [("all", table)] if len(table) else []
    kinds = table.groupby("optimizer") if "optimizer" in names else [("", table)]
    parts = [
        (label.removeprefix("optimizer="), part)
        for _, cells in kinds
        for label, part in axes.split(cells, [n for n in names if cells[n].notna().any()])
    ]
    return sorted(parts, key=lambda named: (_place(named[1]["own"].iloc[0]), named[0]))


def _place(norm: str) -> tuple[int, str]:
    """Return the place of a norm: those with a name first."""
    return (NORMS.index(norm) if norm in NORMS else len(NORMS)), norm


def _write(
    ax: Axes, here: pd.DataFrame, norm: str, place: tuple[int, int], medians: np.ndarray
) -> None:
    """Write median and count of a norm into its cell, and frame it if it is the own norm."""
    (i, j), median = place, medians[place[1]]
    if norm not in here.index or not np.isfinite(median):
        return
    row = here.loc[norm]
    least = median == np.nanmin(medians)
    dark = median < np.sqrt(RANGE[0] * RANGE[1]) * 3
    ax.text(
        j, i, f"{median:.2g} ({row['used']:.0f})\n[{row['low']:.2g}, {row['high']:.2g}]",
        ha="center", va="center", fontsize=7,
        color="white" if dark else "black", fontweight="bold" if least else "normal",
    )  # fmt: skip
    if row["own"] == norm:
        frame = Rectangle((j - 0.47, i - 0.46), 0.94, 0.92, fill=False, linewidth=1.6)
        frame.set_edgecolor("#e31a1c")
        ax.add_patch(frame)


def _steps(table: pd.DataFrame, axes: CellAxes, notes: Sequence[str]) -> Figure:
    curves = _optimizers(table, axes)
    fig = style.figure(8.2, 3.6)
    ax = fig.subplots()
    style.note(fig, notes)
    if not curves:
        style.empty(ax, "no margin gap over the steps on record")
        return fig
    labels = [label for label, _ in curves]
    colours, markers = style.colours(labels), style.markers(labels)
    for label, part in curves:
        rows = part[(part["used"] > 0) & (part["step"] > 0)].sort_values("step")
        style.band(ax, rows["step"], rows["low"], rows["high"], colours[label])
        ax.plot(
            rows["step"], rows["median"], color=colours[label], marker=markers[label],
            label=style.plain(f"{part['own'].iloc[0]} norm: {label}", limit=90),
        )  # fmt: skip
    ax.set_xscale("log")
    style.log_axis(ax.yaxis)
    ax.set_xlabel("step")
    ax.set_ylabel("margin gap in the own norm")
    style.legend(ax, [])
    return fig
