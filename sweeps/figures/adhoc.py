"""Sweeps without their own figure module: how training ended and which SVM W agrees with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from sweeps import statistics, style
from sweeps.cells import CellAxes
from sweeps.figures import UNTYPED, Drawing

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

CURVES = {
    "one_minus_corr_w_mm": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_w_star_mm": r"$W^{\star}_{\mathrm{mm}}$",
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
CELLS_DRAWN = 48
LONGEST = 160
"""Largest number of letters of a cell's name."""
CAPTION = (
    "How every instance of each cell ended (also the excluded ones), and the median "
    "1-correlation of the trained W with the solutions of the attention SVM."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    trials, cells = _numbered(frames)
    outcomes = statistics.counts(trials, ["place", "outcome"])
    total = outcomes.groupby("place")["count"].transform("sum")
    low, high = statistics.wilson_interval(outcomes["count"].to_numpy(), total.to_numpy())
    outcomes = outcomes.assign(share=outcomes["count"] / total, low=low, high=high)
    quantities = [q for q in CURVES if q in trials and trials[q].notna().any()]
    usable = trials[trials["status"] == "ok"]
    agreement = statistics.summaries(
        usable.melt(["place"], quantities, "quantity", "value"),
        ["place", "quantity"],
        "value",
        "median",
    )
    return {
        name: cells.merge(table, on="place").drop(columns="place")
        for name, table in (("outcomes", outcomes), ("agreement", agreement))
    }


def _numbered(frames: SweepFrames) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the instances with the place of their cell, and place, axes and label of each cell."""
    by = frames.axes.besides()
    trials = frames.trials.assign(outcome=_outcome(frames.trials))
    place = trials.groupby(by, dropna=False, sort=True).ngroup() if by else 0
    trials = trials.assign(place=place)
    cells = trials[["place", *by]].drop_duplicates().sort_values("place")
    rows = cells[by].itertuples(index=False, name=None)
    labels = [frames.axes.label(dict(zip(by, row, strict=True))) for row in rows]
    return trials, cells.assign(cell=labels if by else "all")


def _outcome(trials: pd.DataFrame) -> pd.Series[str]:
    """Return how an instance ended: its type of convergence, else its status."""
    if "convergence" not in trials:
        return trials["status"]
    named = trials["convergence"].fillna("").isin(style.CONVERGENCE_COLOURS)
    return trials["convergence"].where(named & ~trials["status"].isin(UNTYPED), trials["status"])


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure."""
    return [Drawing("adhoc", CAPTION, partial(_figure, tables, remarks))]


def _figure(tables: dict[str, pd.DataFrame], remarks: Sequence[str]) -> Figure:
    """Return stacked bars of outcomes beside the median 1-correlations, a row per cell."""
    outcomes, agreement = tables["outcomes"], tables["agreement"]
    cells = list(outcomes["cell"].unique())[:CELLS_DRAWN]
    hidden = outcomes["cell"].nunique() - len(cells)
    names = [style.plain(cell, limit=LONGEST) for cell in cells]
    extra = max(0, max(map(len, names)) - 48)  # letters beyond the room beside the bars
    fig = style.figure(8.6 + 0.07 * extra, 1.9 + 0.24 * max(len(cells), 4))
    left, right = fig.subplots(1, 2, sharey=True)
    _bars(left, outcomes, cells)
    _points(right, agreement, cells)
    left.set_yticks(range(len(cells)), names)
    left.set_ylim(len(cells) - 0.4, -0.6)
    lines = [
        "Left: numbers are instances. Right: median over the instances with status ok, 95 % "
        "bootstrap interval.",
        f"{hidden} further cells are in the table only." if hidden else "",
        *remarks,
    ]
    style.note(fig, lines)
    return fig


def _bars(ax: Axes, outcomes: pd.DataFrame, cells: list[str]) -> None:
    palette = style.CONVERGENCE_COLOURS | style.STATUS_COLOURS
    found = set(outcomes["outcome"])
    known = [*(kind for kind in palette if kind in found), *sorted(found - set(palette))]
    left = pd.Series(0.0, index=cells)
    for kind in known:
        rows = outcomes[outcomes["outcome"] == kind].set_index("cell").reindex(cells)
        width = rows["share"].fillna(0)
        ax.barh(
            range(len(cells)),
            width,
            0.78,
            left=left,
            label=kind.replace("_", " "),
            **style.fill(palette.get(kind, style.FAINT), style.HATCHES.get(kind, "")),
        )
        for y, (share, count, start) in enumerate(zip(width, rows["count"], left, strict=True)):
            if share >= 0.09:
                colour = "white" if kind in style.DARK else "black"
                ax.text(
                    start + share / 2, y, f"{count:.0f}", ha="center", va="center", fontsize=7.5,
                    color=colour,
                )  # fmt: skip
        left = left + width
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    ax.set_xlabel("share of instances")
    ax.grid(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, columnspacing=1.0, handlelength=1)


def _points(ax: Axes, agreement: pd.DataFrame, cells: list[str]) -> None:
    quantities = [q for q in CURVES if (agreement["quantity"] == q).any()]
    colours, markers = style.colours(CURVES), style.markers(CURVES)
    for quantity in quantities:
        rows = agreement[agreement["quantity"] == quantity].set_index("cell").reindex(cells)
        y = range(len(cells))
        ax.hlines(y, rows["low"], rows["high"], color=colours[quantity], linewidth=1.2)
        ax.plot(
            rows["median"], y, color=colours[quantity], marker=markers[quantity], linestyle="",
            label=CURVES[quantity],
        )  # fmt: skip
    style.log_axis(ax.xaxis)
    ax.grid(True, axis="x")
    ax.set_xlabel(r"median $1-\mathrm{corr}(W, \cdot\,)$")
    if not quantities:
        style.empty(ax, "no instance with a trained W and a solved SVM")
        return
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, columnspacing=1.0)
