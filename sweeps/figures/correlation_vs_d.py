"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes, number
from . import Drawing, history_of, stalled
from ._curves import AXES as LABELS
from ._pages import Make, Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

CURVES = {
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_frobenius": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
ALSO_TABLED = ("one_minus_corr_svmeq_lsq",)
AXIS = r"$1-\mathrm{corr}(W, \cdot\,)$"
READ_OFF = {4: (0.034, 0.07, 0.155), 10: (0.0055, 0.0085, 0.12)}
"""Values read from the published figure: d -> values as in `CURVES`."""
PUBLISHED = {
    "model": "cross_attention", "parameterization": "w", "head": "relu", "data": "sphere",
    "loss": "logistic", "optimizer": "normalized_gd", "lr": 0.1, "growth": 0.0, "ridge": 0.0,
    "n": 3, "T": 4, "gradient": "direct",
}  # fmt: skip
"""The setting of the published figure."""
DIMENSIONS = 12
"""Largest number of values of d with a panel of their own."""
VARIANTS = 6
"""Largest number of combinations of the other axes in one figure."""
SMALLEST = 1e-17
"""Smallest 1-correlation on the log axis: smaller values and 0 are drawn at this value."""
SMALLEST_SOFTMAX = 1e-60
"""Smallest softmax on the log axis: smaller ones are drawn at this value."""
BAND = "Shaded: 95 % bootstrap interval of the mean over the accepted instances."
EDGE = f"A softmax below {SMALLEST_SOFTMAX:.0e} is drawn at {SMALLEST_SOFTMAX:.0e}."
FLAT = (
    "Flat: at some sample the head's gradient is exactly zero (all its rectifiers are off), so "
    "this sample does not drive W towards W_fin; the theory does not cover such instances."
)
CAPTIONS = {
    "correlation_vs_d": (
        "Mean 1-correlation of the trained W with the three SVM solutions at the last step, versus "
        "d, and below the statuses of all instances that were drawn. Dashed: W_svmeq on the "
        "instances without a flat head."
    ),
    "correlation_vs_d_steps": (
        "The same over the steps of training, one panel per d (logarithmic axis): mean over the "
        "accepted instances with its 95 % bootstrap interval."
    ),
    "correlation_vs_d_scatter": (
        "Every accepted instance at the last step: 1-correlation with the three solutions against "
        "the largest softmax probability among the tokens that count as masked."
    ),
}


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    - `correlation_vs_d_steps`: per cell, step and quantity, mean with interval, median, quartiles;
    - `correlation_vs_d`: the same at the last step, for all and for those without a flat head;
    - `correlation_vs_d_instances`: every accepted instance, with its largest masked softmax;
    - `correlation_vs_d_published`: values read off the published figure, where the sweep has that
      setting;
    - `correlation_vs_d_counts`: instances by status, reason, whether some head is flat and whether
      training stalled.
    """
    trials = frames.trials
    by = [*frames.axes.besides("d"), "d"]
    quantities = [q for q in (*CURVES, *ALSO_TABLED) if q in trials]
    flat = trials["flat"].eq(True).fillna(False) if "flat" in trials else False
    trials = trials.assign(flat=flat, training=trials.get("training", ""))
    accepted = trials[trials["status"] == "ok"]
    history = history_of(frames, accepted, by)
    history = history[history["quantity"].isin(quantities)]
    return {
        "correlation_vs_d_steps": statistics.summaries(history, [*by, "quantity", "step"], "value"),
        "correlation_vs_d": pd.concat(
            [
                _final(accepted, by, quantities).assign(instances="all"),
                _final(accepted[~accepted["flat"]], by, quantities).assign(instances="not flat"),
            ],
            ignore_index=True,
        ),
        "correlation_vs_d_instances": accepted.reindex(
            columns=[*by, "run", "seed", "flat", "max_masked_softmax", *quantities]
        ),
        "correlation_vs_d_published": _published(trials, frames.axes),
        "correlation_vs_d_counts": statistics.counts(
            trials, [*by, "status", "reason", "flat", "training"]
        ),
    }


def _published(trials: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return quantity and value of the published figure for every cell with its setting."""
    same = pd.Series(True, index=trials.index)
    for key, value in PUBLISHED.items():
        same &= trials[key] == value
    cells = trials.loc[same, ["d", "gradient", *axes.besides("d", "gradient")]].drop_duplicates()
    rows = [
        {**cell, "quantity": quantity, "value": value}
        for cell in cells.sort_values([*cells]).to_dict("records")
        for quantity, value in zip(CURVES, READ_OFF.get(cell["d"], ()), strict=False)
    ]
    return pd.DataFrame(rows, columns=[*cells, "quantity", "value"])


def _final(accepted: pd.DataFrame, by: list[str], quantities: list[str]) -> pd.DataFrame:
    long = accepted.melt(by, quantities, "quantity", "value")
    return statistics.summaries(long, [*by, "quantity"], "value")


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return three kinds of figures: versus d, over steps, against the largest masked softmax."""
    makers: dict[str, Make] = {
        "correlation_vs_d": _versus_d,
        "correlation_vs_d_steps": partial(_per_d, "correlation_vs_d_steps", _over_steps, BAND),
        "correlation_vs_d_scatter": partial(_per_d, "correlation_vs_d_instances", _scatter, EDGE),
    }
    return [
        drawing
        for name, make in makers.items()
        for drawing in drawings(
            name, tables, axes, remarks, make, caption=CAPTIONS[name], x=("d",),
            panels=("gradient",), room=VARIANTS, cells="correlation_vs_d_counts",
        )
    ]  # fmt: skip


def _notes(counts: pd.DataFrame, axes: CellAxes, remarks: Sequence[str]) -> list[str]:
    told = _counts_sentence(counts) + stalled(counts, axes)
    return [told, *([FLAT] if counts["flat"].any() else []), *remarks]


def _variants(counts: pd.DataFrame, axes: CellAxes) -> list[tuple[str, pd.DataFrame]]:
    """Return the label and the counts of each combination of the axes besides d."""
    return list(axes.split(counts, axes.besides("d")))


def _cells_of(table: pd.DataFrame, counts: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the rows of `table` that belong to the cells of `counts`."""
    keys = [key for key in ("d", *axes.names) if key in table]
    return table.merge(counts[list(dict.fromkeys(keys))].drop_duplicates(), on=keys)


def _versus_d(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    table, counts = tables["correlation_vs_d"], tables["correlation_vs_d_counts"]
    variants = _variants(counts, axes)
    fig = style.figure(3.9 * len(variants) + 2.5, 5.4)
    grid = fig.subplots(
        2, len(variants), sharex=True, sharey="row", squeeze=False,
        gridspec_kw={"height_ratios": [3, 1.15]},
    )  # fmt: skip
    kinds = list(_kinds(counts))
    for (ax, strip), (name, cells) in zip(grid.T, variants, strict=True):
        final = _cells_of(table, cells, axes)
        _curves(ax, final[final["instances"] == "all"], "d")
        _curve_without_flat(ax, final)
        _read_off(ax, _cells_of(tables["correlation_vs_d_published"], cells, axes))
        style.heading(ax, style.wrapped(name))
        _status_bars(strip, cells, kinds)
        style.ticks_at(strip, counts["d"])
        strip.set_xlabel("token dimension $d$")
    for ax in grid[0]:
        style.log_axis(ax.yaxis)
    grid[0, 0].set_ylabel(AXIS)
    grid[1, 0].set_ylabel("instances\ndrawn")
    lines = {line.get_label(): line for ax in grid[0] for line in ax.get_legend_handles_labels()[0]}
    grid[0, -1].legend(
        handles=lines.values(), loc="upper left", bbox_to_anchor=(1.0, 1.0),
        title="trained W against",
    )  # fmt: skip
    grid[1, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.1), fontsize=8, handlelength=1.0)
    style.note(fig, [BAND, *_notes(counts, axes, remarks)])
    return fig


def _per_d(
    name: str,
    fill: Callable[[Axes, pd.DataFrame, str], None],
    words: str,
    tables: Tables,
    axes: CellAxes,
    remarks: Sequence[str],
) -> Figure:
    """Return a panel for each d, a row for each variant, each filled with its part of a table.

    Points of different correlations would hide each other: each has a row of its own.
    """
    table, counts = tables[name], tables["correlation_vs_d_counts"]
    variants, ds = _variants(counts, axes), sorted(counts["d"].unique())
    hidden, ds = ds[DIMENSIONS:], ds[:DIMENSIONS]
    if hidden:
        remarks = [*remarks, f"{len(hidden)} further values of d are in the tables only."]
    shown = [q for q in CURVES if q in table] if fill is _scatter else [""]
    lines = [(variant, quantity) for variant in variants for quantity in shown or [""]]
    height = 1.75 if fill is _scatter else 2.75
    fig = style.figure(2.35 * max(len(ds), 2) + 1.2, height * len(lines) + 1.0)
    grid = fig.subplots(len(lines), len(ds), sharex=True, sharey=True, squeeze=False)
    for row, ((name, cells), quantity) in zip(grid, lines, strict=True):
        part = _cells_of(table, cells, axes)
        for ax, d in zip(row, ds, strict=True):
            fill(ax, part[part["d"] == d], quantity)
            if quantity in ("", *shown[:1]):
                above = f"{style.plain(name)}\n" if quantity and name and ax is row[0] else ""
                style.heading(ax, f"{above}d = {number(d)}")
                accepted = _accepted(cells[cells["d"] == d])
                ax.set_title(accepted, loc="right", fontsize=8, color=style.FAINT)
        label = LABELS.get(quantity, f"{style.wrapped(name, 40)}\n{AXIS}" if name else AXIS)
        row[0].set_ylabel(label)
    for ax in grid.flat:
        style.log_axis(ax.yaxis)
    label = "step" if fill is _over_steps else "largest masked softmax"
    for ax in grid[-1]:
        ax.set_xlabel(label)
    if fill is not _scatter:
        style.legend(grid[0, -1], [], title="trained W against")
    style.note(fig, [words, *_notes(counts, axes, remarks)])
    return fig


def _over_steps(ax: Axes, table: pd.DataFrame, _: str) -> None:
    _curves(ax, table, "step")


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
    if not (table["used"] > 0).any():
        style.empty(ax, "no accepted instance")


def _curve_without_flat(ax: Axes, table: pd.DataFrame) -> None:
    """Draw W_svmeq on the instances without a flat head, unless these are all instances."""
    rows = table[(table["quantity"] == "one_minus_corr_svmeq") & (table["used"] > 0)]
    every, rest = (rows[rows["instances"] == which] for which in ("all", "not flat"))
    if rest["used"].sum() < every["used"].sum():
        name = CURVES["one_minus_corr_svmeq"] + ", not flat"
        rest = rest.sort_values("d")
        ax.plot(
            rest["d"],
            rest["mean"],
            "--o",
            color=style.PALETTE[0],
            markerfacecolor="white",
            markeredgewidth=1.0,
            linewidth=1.1,
            label=name,
        )


def _read_off(ax: Axes, published: pd.DataFrame) -> None:
    """Mark the values read from the published figure, in the colours of its curves."""
    if published.empty:
        return
    mark: dict[str, Any] = {"marker": "_", "markersize": 16, "markeredgewidth": 2.2}
    for quantity, colour in style.colours(CURVES).items():
        points = published[published["quantity"] == quantity]
        ax.plot(points["d"], points["value"], linestyle="", color=colour, **mark)
    ax.plot([], [], linestyle="", color=style.INK, label="published figure, read off", **mark)


def _status_bars(ax: Axes, counts: pd.DataFrame, kinds: list[str]) -> None:
    """Stack the shares of instances by status and reason, accepted at the bottom."""
    totals = counts.groupby("d")["count"].sum()
    width = 0.6 * min(np.diff(totals.index.to_numpy(dtype=float)), default=1.0)
    below = pd.Series(0.0, index=totals.index)
    shades = dict(zip(kinds, _shades(kinds), strict=False))
    here = _kinds(counts)
    for kind in kinds:
        rows = here.get(kind, counts.head(0))
        height = rows.groupby("d")["count"].sum().reindex(totals.index).fillna(0) / totals
        look = style.fill(*shades.get(kind, (style.INK,)))
        ax.bar(totals.index, height, width, below, label=kind, **look)
        below = below + height
    for d, total in totals.items():
        ax.text(float(str(d)), 1.02, str(total), ha="center", va="bottom", fontsize=8)
    style.share_axis(ax, "")
    ax.set_ylim(0, 1.18)


def _shades(kinds: list[str]) -> list[tuple[str, ...]]:
    """Return colour and hatching of the kinds in order."""
    accepted = [("#0072B2",), ("#56B4E9",)][: sum(kind.startswith("accepted") for kind in kinds)]
    others = ("#E69F00", "#F0E442", "#CC79A7", "#D55E00", "#009E73", "#8a8a8a", "#d9d9d9")
    hatches = ("////", "....", "----", "xxxx", "||||", "\\\\\\\\")
    return [*accepted, *zip(others, hatches, strict=False)]


def _kinds(counts: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of `counts` by status and reason, accepted first, then by frequency."""
    ok = counts["status"] == "ok"
    reason = counts["reason"].fillna("").map(lambda text: f": {text}" if text else "")
    accepted = counts["flat"].map({True: "accepted, flat", False: "accepted"})
    kind = (counts["status"].astype(str) + reason).where(~ok, accepted)
    order = counts["count"].groupby(kind).sum().sort_values(ascending=False).index
    first = [k for k in ("accepted", "accepted, flat") if k in order]
    kinds = [*first, *(k for k in order if k not in first)]
    return {style.plain(k, limit=46): counts[kind == k] for k in kinds}


def _accepted(counts: pd.DataFrame) -> str:
    accepted = counts.loc[counts["status"] == "ok", "count"].sum()
    return f"{accepted} of {counts['count'].sum()} accepted"


def _counts_sentence(counts: pd.DataFrame) -> str:
    listed = "; ".join(f"{rows['count'].sum()} {kind}" for kind, rows in _kinds(counts).items())
    return f"Instances drawn: {counts['count'].sum()} ({listed})."


def _scatter(ax: Axes, points: pd.DataFrame, quantity: str) -> None:
    if points.empty:
        style.empty(ax, "no accepted instance")
        return
    ax.scatter(
        points["max_masked_softmax"].clip(lower=SMALLEST_SOFTMAX),
        points[quantity].clip(lower=SMALLEST),
        s=9,
        alpha=float(np.clip(8 / np.sqrt(len(points)), 0.2, 0.7)),
        linewidths=0,
        color=style.colours(CURVES)[quantity],
        marker=style.markers(CURVES)[quantity],
        rasterized=True,
    )
    style.log_axis(ax.xaxis)
