"""Sweeps without their own figure module: how training ended and which SVM W agrees with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from sweeps import statistics, style
from sweeps.cells import label, varying
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


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    by = varying(frames.trials)
    trials = frames.trials.assign(outcome=_outcome(frames.trials))
    cells = trials[by].apply(lambda row: label(row.to_dict()), axis=1) if by else "all"
    trials = trials.assign(cell=cells)
    order = {cell: i for i, cell in enumerate(trials.sort_values(by)["cell"].unique())}
    outcomes = statistics.counts(trials, ["cell", "outcome"])
    total = outcomes.groupby("cell")["count"].transform("sum")
    low, high = statistics.wilson_interval(outcomes["count"].to_numpy(), total.to_numpy())
    outcomes = outcomes.assign(share=outcomes["count"] / total, low=low, high=high)
    quantities = [q for q in CURVES if q in trials and trials[q].notna().any()]
    usable = trials[trials["status"] == "ok"]
    agreement = statistics.summaries(
        usable.melt(["cell"], quantities, "quantity", "value"),
        ["cell", "quantity"],
        "value",
        "median",
    )
    result = {"outcomes": outcomes, "agreement": agreement}
    for name, table in result.items():
        in_order = table.sort_values("cell", key=lambda c: c.map(order), kind="stable")
        result[name] = in_order.reset_index(drop=True)
    return result


def _outcome(trials: pd.DataFrame) -> pd.Series[str]:
    """Return how an instance ended: its type of convergence, else its status."""
    if "convergence" not in trials:
        return trials["status"]
    named = trials["convergence"].fillna("").isin(style.CONVERGENCE_COLOURS)
    return trials["convergence"].where(named & ~trials["status"].isin(UNTYPED), trials["status"])


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure: stacked bars of outcomes beside the median 1-correlations."""
    outcomes, agreement = tables["outcomes"], tables["agreement"]
    cells = list(outcomes["cell"].unique())[:CELLS_DRAWN]
    hidden = outcomes["cell"].nunique() - len(cells)
    fig = style.figure(8.6, 1.9 + 0.24 * max(len(cells), 4))
    left, right = fig.subplots(1, 2, sharey=True)
    _bars(left, outcomes, cells)
    _points(right, agreement, cells)
    left.set_yticks(range(len(cells)), [style.plain(cell, limit=48) for cell in cells])
    left.set_ylim(len(cells) - 0.4, -0.6)
    lines = [
        "Left: numbers are instances. Right: median over the instances with status ok, 95 % "
        "bootstrap interval.",
        f"{hidden} further cells are in the table only." if hidden else "",
        *remarks,
    ]
    style.note(fig, lines)
    caption = (
        "How every instance of each cell ended (also the excluded ones), and the median "
        "1-correlation of the trained W with the solutions of the attention SVM."
    )
    return [Drawing("adhoc", fig, caption)]


def _bars(ax: Axes, outcomes: pd.DataFrame, cells: list[str]) -> None:
    palette = style.CONVERGENCE_COLOURS | style.STATUS_COLOURS
    known = [kind for kind in palette if (outcomes["outcome"] == kind).any()]
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
            **style.fill(palette[kind], style.HATCHES.get(kind, "")),
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
