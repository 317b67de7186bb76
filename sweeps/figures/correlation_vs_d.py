"""Trained W against the attention SVMs of the tokens that it keeps (paper, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweeps import statistics, style
from sweeps.figures import Drawing, number, split, varying

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "With a nonlinear head attention keeps several tokens per sample. Does the trained W align "
    "with W_svmeq = W_fin + C W_mm, and better than with W_mm alone or with the SVM of one token?"
)

CURVES = {
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_w_mm": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
ALSO_TABLED = ("one_minus_corr_svmeq_lsq",)
AXIS = r"$1-\mathrm{corr}(W, \cdot\,)$"
SMALLEST = 1e-17
"""Exact agreement is drawn here: a log axis has no zero."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the 1-correlations of the accepted instances and the fate of all instances.

    - `correlation_vs_d_steps`: per cell, step and quantity, mean with interval, median, quartiles;
    - `correlation_vs_d`: the same at the last step;
    - `correlation_vs_d_instances`: every accepted instance, with its largest masked softmax;
    - `correlation_vs_d_counts`: instances by status and reason.
    """
    trials = frames.trials
    by = [*varying(trials, besides=("d",)), "d"]
    quantities = [q for q in (*CURVES, *ALSO_TABLED) if q in trials]
    accepted = trials[trials["status"] == "ok"]
    history = frames.history.merge(accepted[["run", "seed"]], on=["run", "seed"])
    history = history[history["quantity"].isin(quantities)]
    final = accepted.melt([*by, "run", "seed"], quantities, "quantity", "value")
    instances = accepted.reindex(columns=[*by, "run", "seed", "max_masked_softmax", *quantities])
    return {
        "correlation_vs_d_steps": statistics.summaries(history, [*by, "quantity", "step"], "value"),
        "correlation_vs_d": statistics.summaries(final, [*by, "quantity"], "value"),
        "correlation_vs_d_instances": instances,
        "correlation_vs_d_counts": statistics.counts(trials, [*by, "status", "reason"]),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return three figures: over steps, versus d, and against the largest masked softmax."""
    others = varying(tables["correlation_vs_d_counts"], besides=("d",))
    drawings = []
    for i, (which, fates) in enumerate(split(tables["correlation_vs_d_counts"], others)):
        part = {name: _same_cells(table, fates, others) for name, table in tables.items()}
        suffix = f"_{i}" if i else ""
        notes = [_fate_counts(fates), which, *remarks]
        band = "Shaded: 95 % bootstrap interval of the mean over the accepted instances."
        drawings += [
            Drawing(
                f"correlation_vs_d{suffix}",
                _versus_d(part["correlation_vs_d"], fates, [band, *notes]),
                "Mean 1-correlation of the trained W with the three SVM solutions at the last "
                "step, versus d, and below what became of every instance that was drawn.",
            ),
            Drawing(
                f"correlation_vs_d_steps{suffix}",
                _over_steps(part["correlation_vs_d_steps"], fates, [band, *notes]),
                "The same over the steps of training, one panel per d (logarithmic axis): mean "
                "over the accepted instances with its 95 % bootstrap interval.",
            ),
            Drawing(
                f"correlation_vs_d_scatter{suffix}",
                _scatter(part["correlation_vs_d_instances"], fates, notes),
                "Every accepted instance at the last step: 1-correlation with the three solutions "
                "against the largest softmax probability among the tokens that count as masked.",
            ),
        ]
    return drawings


def _same_cells(table: pd.DataFrame, cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return table.merge(cells[keys].drop_duplicates(), on=keys) if keys else table


def _over_steps(table: pd.DataFrame, fates: pd.DataFrame, notes: list[str]) -> Figure:
    ds = sorted(fates["d"].unique())
    fig = style.figure(2.35 * max(len(ds), 2) + 1.2, 3.7)
    axes = fig.subplots(1, len(ds), sharey=True, squeeze=False)[0]
    for ax, d in zip(axes, ds, strict=True):
        _curves(ax, table[table["d"] == d], "step")
        ax.set_xlabel("step")
        style.heading(ax, f"d = {number(d)}")
        ax.set_title(_accepted(fates[fates["d"] == d]), loc="right", fontsize=8, color=style.FAINT)
    axes[0].set_ylabel(AXIS)
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="trained W against")
    style.note(fig, notes)
    return fig


def _versus_d(table: pd.DataFrame, fates: pd.DataFrame, notes: list[str]) -> Figure:
    fig = style.figure(6.4, 5.2)
    ax, strip = fig.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1.15]})
    _curves(ax, table, "d")
    ax.set_ylabel(AXIS)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="trained W against")
    _fates(strip, fates)
    style.ticks_at(strip, fates["d"])
    strip.set_xlabel("token dimension $d$")
    style.note(fig, notes)
    return fig


def _curves(ax: Axes, table: pd.DataFrame, x: str) -> None:
    colours, markers = style.colours(CURVES), style.markers(CURVES)
    for quantity, name in CURVES.items():
        curve = table[(table["quantity"] == quantity) & (table["used"] > 0)].sort_values(x)
        style.band(ax, curve[x], curve["low"], curve["high"], colours[quantity])
        ax.plot(
            curve[x],
            curve["mean"].clip(lower=SMALLEST),
            color=colours[quantity],
            marker=markers[quantity],
            markevery=max(len(curve) // 7, 1),
            label=name,
        )
    style.log_axis(ax.yaxis)
    if not (table["used"] > 0).any():
        style.empty(ax, "no accepted instance")


def _fates(ax: Axes, fates: pd.DataFrame) -> None:
    """Stack the shares of instances by status and reason, accepted at the bottom."""
    kinds = _kinds(fates)
    totals = fates.groupby("d")["count"].sum()
    width = 0.6 * min(np.diff(totals.index.to_numpy(dtype=float)), default=1.0)
    below = pd.Series(0.0, index=totals.index)
    shades = dict(zip(kinds, ("#0072B2", *_SHADES), strict=False))
    for kind, rows in kinds.items():
        height = rows.groupby("d")["count"].sum().reindex(totals.index).fillna(0) / totals
        ax.bar(totals.index, height, width, below, color=shades.get(kind, "#1b1b1b"), label=kind)
        below = below + height
    for d, total in totals.items():
        ax.text(float(str(d)), 1.02, str(total), ha="center", va="bottom", fontsize=8)
    style.share_axis(ax, "instances\ndrawn")
    ax.set_ylim(0, 1.18)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.1), fontsize=8, handlelength=1.0)


_SHADES = ("#E69F00", "#F0E442", "#CC79A7", "#D55E00", "#009E73", "#8a8a8a", "#d9d9d9")


def _kinds(fates: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of `fates` by what happened, accepted first, then the most frequent."""
    kind = fates["status"].astype(str) + fates["reason"].fillna("").map(_reason)
    order = fates.groupby(kind.where(fates["status"] != "ok", "ok"))["count"].sum()
    order = order.sort_values(ascending=False)
    kinds = [k for k in ("ok",) if k in order] + [k for k in order.index if k != "ok"]
    kind = kind.where(fates["status"] != "ok", "ok")
    return {style.plain("accepted" if k == "ok" else k, limit=46): fates[kind == k] for k in kinds}


def _reason(reason: object) -> str:
    return f": {reason}" if reason else ""


def _accepted(fates: pd.DataFrame) -> str:
    accepted = fates.loc[fates["status"] == "ok", "count"].sum()
    return f"{accepted} of {fates['count'].sum()} accepted"


def _fate_counts(fates: pd.DataFrame) -> str:
    listed = "; ".join(f"{rows['count'].sum()} {kind}" for kind, rows in _kinds(fates).items())
    return f"Instances drawn: {fates['count'].sum()} ({listed})."


def _scatter(table: pd.DataFrame, fates: pd.DataFrame, notes: list[str]) -> Figure:
    ds = sorted(fates["d"].unique())
    fig = style.figure(2.35 * max(len(ds), 2) + 1.2, 3.7)
    axes = fig.subplots(1, len(ds), sharex=True, sharey=True, squeeze=False)[0]
    colours, markers = style.colours(CURVES), style.markers(CURVES)
    for ax, d in zip(axes, ds, strict=True):
        points = table[table["d"] == d]
        for quantity, name in reversed(CURVES.items()):
            if quantity not in points:
                continue
            ax.scatter(
                points["max_masked_softmax"].clip(lower=SMALLEST),
                points[quantity].clip(lower=SMALLEST),
                s=7,
                alpha=0.55,
                linewidths=0,
                color=colours[quantity],
                marker=markers[quantity],
                label=name,
                rasterized=True,
            )
        style.log_axis(ax.xaxis)
        style.log_axis(ax.yaxis)
        style.heading(ax, f"d = {number(d)}")
        ax.set_title(_accepted(fates[fates["d"] == d]), loc="right", fontsize=8, color=style.FAINT)
        if points.empty:
            style.empty(ax, "no accepted instance")
    axes[0].set_ylabel(AXIS)
    for ax in axes:
        ax.set_xlabel("largest masked softmax")
    axes[-1].legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title="trained W against",
        markerscale=1.6,
        reverse=True,
    )
    style.note(fig, notes)
    return fig
