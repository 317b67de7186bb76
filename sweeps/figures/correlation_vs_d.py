"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..cells import number
from ..facets import Look, Panel, facets, labels, looks_of, named, points, stacked
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, drawn
from ._curves import PANELS
from ._numbers import history_of, stalled

CURVES = {
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_frobenius": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
ALSO_TABLED = ("one_minus_corr_svmeq_lsq",)
AXIS = r"$1-\mathrm{corr}(W, \cdot\,)$"
WITHOUT_FLAT = CURVES["one_minus_corr_svmeq"] + ", not flat"
LOOKS: dict[str, Look] = {
    **looks_of(list(CURVES.values())),
    WITHOUT_FLAT: {"color": style.PALETTE[0], "marker": "o", "markerfacecolor": "white",
                   "markeredgewidth": 1.0, "linestyle": "--", "linewidth": 1.1},
}  # fmt: skip
ACCEPTED = {False: "accepted", True: "accepted, flat"}
BLUES = style.fill("#0072B2"), style.fill("#56B4E9")
OTHERS = tuple(
    style.fill(colour, hatch)
    for colour, hatch in (
        ("#E69F00", "////"), ("#F0E442", "...."), ("#CC79A7", "----"), ("#D55E00", "xxxx"),
        ("#009E73", "||||"), ("#8a8a8a", "\\\\\\\\"), ("#d9d9d9", ""),
    )
)  # fmt: skip
"""How accepted and other kinds of instances are drawn, in order."""
READ_OFF = {4: (0.034, 0.07, 0.155), 10: (0.0055, 0.0085, 0.12)}
"""Values read from the published figure: d -> values as in `CURVES`."""
READ: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 16, "mew": 2.2}
"""How these are drawn, in the colours of the curves."""
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
CAPTION = (
    "Mean 1-correlation of the trained W with the three SVM solutions at the last step, versus d, "
    "and below the statuses of all instances that were drawn. Dashed: W_svmeq on the instances "
    "without a flat head."
)
CAPTION_STEPS = "The same over the steps of training, one panel per d."
CAPTION_SCATTER = (
    "Every accepted instance at the last step: 1-correlation with the three solutions against the "
    "largest softmax probability among the tokens that count as masked."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    By cell, quantity and step, and at the last step for all and for those without a flat head; of
    every accepted instance; and values read off the published figure, where the sweep has its
    setting. The counts are by status, reason, whether some head is flat, and how training ended.
    """
    trials = frames.trials
    by = [*frames.axes.besides("d"), "d"]
    quantities = [q for q in (*CURVES, *ALSO_TABLED) if q in trials]
    flat = trials["flat"].eq(True).fillna(False) if "flat" in trials else False
    trials = trials.assign(flat=flat, training=trials.get("training", ""))
    accepted = trials[trials["status"] == "ok"]
    history = history_of(frames, accepted, by)
    history = history[history["quantity"].isin(quantities)]
    long = accepted.melt([*by, "flat"], quantities, "quantity", "value")
    last = [
        statistics.summaries(part, [*by, "quantity"], "value").assign(instances=which)
        for which, part in (("all", long), ("not flat", long[~long["flat"].astype(bool)]))
    ]
    kept = [*by, "run", "seed", "flat", "max_masked_softmax", *quantities]
    return {
        "correlation_vs_d_steps": statistics.summaries(history, [*by, "quantity", "step"], "value"),
        "correlation_vs_d": pd.concat(last, ignore_index=True),
        "correlation_vs_d_instances": accepted.reindex(columns=kept),
        "correlation_vs_d_published": _published(trials, frames.axes),
        "correlation_vs_d_counts": statistics.counts(
            trials, [*by, "status", "reason", "flat", "training"]
        ),
    }


def _published(trials: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return quantity and value of the published figure for every cell with its setting."""
    same = trials[[*PUBLISHED]].eq(pd.Series(PUBLISHED)).all(axis=1)
    cells = trials.loc[same, ["d", "gradient", *axes.besides("d", "gradient")]].drop_duplicates()
    rows = [
        {**cell, "quantity": quantity, "value": value}
        for cell in cells.sort_values([*cells]).to_dict("records")
        for quantity, value in zip(CURVES, READ_OFF.get(cell["d"], ()), strict=False)
    ]
    return pd.DataFrame(rows, columns=[*cells, "quantity", "value"])


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return three kinds of figures: versus d, over steps, against the largest masked softmax."""
    pages = (
        Pages(f"correlation_vs_d{kind}", caption, figure, partial(_notes, words), "", ("d",),
              ("gradient",), VARIANTS, cells="correlation_vs_d_counts")
        for kind, caption, figure, words in (
            ("", CAPTION, _versus_d, BAND),
            ("_steps", CAPTION_STEPS, _over_steps, BAND),
            ("_scatter", CAPTION_SCATTER, _scatter, EDGE),
        )
    )  # fmt: skip
    return drawn(pages, tables, axes, remarks)


def _notes(words: str, tables: Tables, axes: CellAxes) -> list[str]:
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    by_kind = counts.groupby("kind", observed=True, sort=True)["count"].sum()
    listed = "; ".join(f"{count} {kind}" for kind, count in by_kind.items())
    total = f"Instances drawn: {counts['count'].sum()} ({listed}).{stalled(counts, axes)}"
    hidden = counts["d"].nunique() - DIMENSIONS
    more = f"{hidden} further values of d are in the tables only." if hidden > 0 else ""
    return [words, total, FLAT if counts["flat"].any() else "", more]


def _kinds(counts: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the counts with `variant` and `kind`: accepted, then by status and reason."""
    reason = counts["reason"].fillna("").map(lambda text: f": {text}" if text else "")
    kind = (counts["status"].astype(str) + reason).map(lambda text: style.plain(text, limit=46))
    kind = kind.where(counts["status"] != "ok", counts["flat"].map(ACCEPTED.__getitem__))
    order = counts["count"].groupby(kind).sum().sort_values(ascending=False).index
    kind = named(kind, {name: name for name in (*ACCEPTED.values(), *order)})
    return counts.assign(kind=kind, variant=labels(axes, counts, axes.besides("d")))


def _curves(table: pd.DataFrame, axes: CellAxes, counts: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of CURVES with the names of variant, d (`column`) and curve."""
    columns = {d: f"d = {number(d)}" for d in sorted(counts["d"].unique())[:DIMENSIONS]}
    table = table[table["quantity"].isin(CURVES)]
    variant = labels(axes, table, axes.besides("d"))
    return table.assign(
        variant=variant.astype(_kinds(counts, axes)["variant"].dtype),
        column=pd.Categorical(table["d"].map(columns), list(columns.values())),
        curve=named(table["quantity"], CURVES),
    )


def _versus_d(tables: Tables, axes: CellAxes) -> Figure:
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    table = _curves(tables["correlation_vs_d"], axes, counts)
    every, rest = (table[table["instances"] == which] for which in ("all", "not flat"))
    flat = counts.loc[(counts["status"] == "ok") & counts["flat"], "variant"]
    rest = rest[(rest["quantity"] == "one_minus_corr_svmeq") & rest["variant"].isin(flat)]
    shown = pd.concat([every, rest.assign(curve=WITHOUT_FLAT, low=np.nan, high=np.nan)])
    names = [*every["curve"].cat.categories, *([WITHOUT_FLAT] if len(rest) else [])]
    shown = shown.assign(mean=shown["mean"].clip(lower=SMALLEST))
    shown["curve"] = pd.Categorical(shown["curve"], names)
    fig, grid = facets(
        shown, "d", "mean", hue="curve", col="variant", panels=Panel(AXIS, "log"), looks=LOOKS,
        below=[1.1], size=(3.9, 3.2), nothing="no accepted instance", title="trained W against",
    )  # fmt: skip
    kinds = counts["kind"].cat.categories
    accepted = [kind for kind in kinds if kind in ACCEPTED.values()]
    others = [kind for kind in kinds if kind not in accepted]
    shades = dict(zip(accepted, BLUES, strict=False))
    shades |= dict(zip(others, chain(OTHERS, repeat(style.fill(style.INK))), strict=False))
    published = tables["correlation_vs_d_published"]
    published = published.assign(variant=labels(axes, published, axes.besides("d")))
    for (ax, strip), variant in zip(grid.T, counts["variant"].cat.categories, strict=True):
        for quantity, rows in published[published["variant"] == variant].groupby("quantity"):
            ax.plot(rows["d"], rows["value"], **READ, color=LOOKS[CURVES[str(quantity)]]["color"])
        if (published["variant"] == variant).any():
            ax.plot([], [], color=style.INK, label="published figure, read off", **READ)
        here = counts[counts["variant"] == variant]
        totals = here.groupby("d")["count"].sum()
        here = here.assign(share=here["count"] / here["d"].map(totals)).sort_values("d")
        stacked(strip, here, "d", "kind", shades, to_scale=True)
        for d, total in totals.items():
            strip.text(float(str(d)), 1.02, str(total), ha="center", va="bottom", fontsize=8)
        style.ticks_at(strip, counts["d"])
        strip.set_xlabel("token dimension $d$")
    style.share_axis(grid[1, 0], "instances\ndrawn")
    grid[1, 0].set_ylim(0, 1.18)
    style.legend(grid[0, -1], grid[0], title="trained W against")
    style.legend(grid[1, -1], grid[1], fontsize=8, handlelength=1.0)
    return fig


def _over_steps(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d, a row for each variant."""
    counts = tables["correlation_vs_d_counts"]
    table = _curves(tables["correlation_vs_d_steps"], axes, counts)
    table = table.assign(mean=table["mean"].clip(lower=SMALLEST))
    fig, grid = facets(
        table, "step", "mean", hue="curve", row="variant", col="column", looks=LOOKS,
        panels=Panel(AXIS, "log"), x_label="step", size=(2.35, 2.75), share_x=True,
        nothing="no accepted instance", title="trained W against",
    )  # fmt: skip
    _head(grid, axes, counts)
    return fig


def _scatter(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d; points of different correlations have rows of their own."""
    counts, table = tables["correlation_vs_d_counts"], tables["correlation_vs_d_instances"]
    shown = [name for name in CURVES if name in table]
    kept = [name for name in table if name not in CURVES]
    table = _curves(table.melt(kept, shown, "quantity", "value"), axes, counts)
    order = [f"{variant}|{name}" for variant in table["variant"].cat.categories for name in shown]
    row = table["variant"].astype(str) + "|" + table["quantity"].astype(str)
    table = table.assign(
        used=1,
        row=pd.Categorical(row, order),
        value=table["value"].clip(lower=SMALLEST),
        softmax=table["max_masked_softmax"].clip(lower=SMALLEST_SOFTMAX),
    )
    fig, grid = facets(
        table, "softmax", "value", hue="curve", row="row", col="column", looks=LOOKS,
        panels={row: PANELS[row.rpartition("|")[2]] for row in order},
        x_label="largest masked softmax", size=(2.35, 1.75), share_x=True, mark=points,
        nothing="no accepted instance",
    )  # fmt: skip
    for ax in grid.flat:
        style.log_axis(ax.xaxis)
    _head(grid[:: max(len(shown), 1)], axes, counts)
    return fig


def _head(grid: np.ndarray, axes: CellAxes, counts: pd.DataFrame) -> None:
    """Write variant, d and the number of accepted instances above the panels."""
    variants, ds = axes.split(counts, axes.besides("d")), sorted(counts["d"].unique())
    for row, (name, cells) in zip(grid, variants, strict=False):
        for ax, d in zip(row, ds, strict=False):
            above = f"{style.plain(name)}\n" if name and ax is row[0] else ""
            style.heading(ax, f"{above}d = {number(d)}")
            count = cells.loc[cells["d"] == d, "count"]
            words = f"{count[cells['status'] == 'ok'].sum()} of {count.sum()} accepted"
            ax.set_title(words, loc="right", fontsize=8, color=style.FAINT)
