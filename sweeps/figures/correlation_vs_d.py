"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..cells import number, rows_of
from ..facets import bars, curves, labels, named, panel_of, values_of
from ..notation import SVM_COLOURS, SVM_QUANTITIES, TABLES, column
from . import CAPTIONS, MOST_PANELS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import certified, history_of, stalled

QUANTITIES = [f"one_minus_corr_{svm}" for svm in ("svmeq", "frobenius", "1token")]
AXIS = panel_of("agreement")

ACCEPTED = {False: "accepted", True: "accepted, flat"}
READ: Any = {"linestyle": "", "marker": "_", "markersize": 10, "mew": 1.8}
"""How these are drawn, in the colours of the curves."""

PUBLISHED = TABLES["published_correlations"]
"""The setting of the published figure; d -> values read off it, as in `QUANTITIES`."""

DIMENSIONS = 4
"""Largest number of values of d with a panel of their own: evenly spread ones."""

SMALLEST, SMALLEST_SOFTMAX = 1e-17, 1e-60
"""Smallest 1-correlation and softmax on a log axis: smaller values and 0 are drawn there."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    By cell, quantity and step, and at the last step for all and for those without a flat head; of
    every accepted instance; and values read off the published figure, where the sweep has its
    setting. The counts are by status, reason, whether some head is flat, and how training ended.
    """
    trials = frames.rows
    by = [*frames.cells.besides("data.d"), "data.d"]
    quantities = [name for name in (*QUANTITIES, "one_minus_corr_svmeq_lsq") if name in trials]
    flat = trials["flat"].eq(True).fillna(False) if "flat" in trials else False
    trials = trials.assign(flat=flat, training=trials.get("training", ""))
    accepted = trials[trials["status"] == "ok"]
    history = history_of(frames, certified(frames), by)
    history = history[history["quantity"].isin(quantities)]
    long = accepted.melt([*by, "flat"], quantities, "quantity", "value")
    last = [
        statistics.summaries(part, [*by, "quantity"], "value").assign(instances=which)
        for which, part in (("all", long), ("not flat", long[~long["flat"].astype(bool)]))
    ]
    kept = [*by, "run", "seed", "flat", "max_masked_softmax", *quantities]
    reasons = [*by, "status", "reason", "flat", "training"]
    return {
        "correlation_vs_d_steps": statistics.summaries(history, [*by, "quantity", "step"], "value"),
        "correlation_vs_d": pd.concat(last, ignore_index=True),
        "correlation_vs_d_instances": accepted.reindex(columns=kept),
        "correlation_vs_d_published": _published(trials, by),
        "correlation_vs_d_counts": statistics.counts(trials, reasons),
    }


def _published(trials: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return quantity and value of the published figure for every cell with its setting."""
    same = trials[[*PUBLISHED["setting"]]].eq(pd.Series(PUBLISHED["setting"])).all(axis=1)
    names = [*dict.fromkeys(["data.d", "optimizer.gradient", *by])]
    rows = [
        {**cell, "quantity": quantity, "value": value}
        for cell in trials.loc[same, names].drop_duplicates().sort_values(names).to_dict("records")
        for quantity, value in zip(
            QUANTITIES, PUBLISHED["read_off"].get(cell["data.d"], ()), strict=False
        )
    ]
    return pd.DataFrame(rows, columns=[*names, "quantity", "value"])


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return correlations at the last step and all statuses over d, the steps, the instances."""
    pages = (
        (MOST_PANELS, {"": _versus_d, "_drawn": _drawn}),
        (1, {"_steps": _over_steps, "_scatter": _scatter}),
    )
    return [
        drawing
        for room, figures in pages
        for drawing in paged(
            {f"correlation_vs_d{end}": figure for end, figure in figures.items()},
            tables,
            axes,
            remarks,
            notes=_notes,
            counts="",
            inner=["data.d"],
            panels=["optimizer.gradient"],
            room=room,
            cells="correlation_vs_d_counts",
        )
    ]


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    by_kind = counts.groupby("kind", observed=True)["count"].sum()
    listed = "; ".join(f"{count} {kind}" for kind, count in by_kind.items())
    accepted = [
        f"{rows_of(rows, {'status': 'ok'})['count'].sum()} of {rows['count'].sum()} at d={d}"
        for d, rows in counts.groupby("data.d")
    ]
    hidden = counts["data.d"].nunique() - DIMENSIONS
    more = f"Of steps and instances, {hidden} further values of d are in the tables only."
    return [
        f"Instances drawn: {counts['count'].sum()} ({listed}).{stalled(counts, axes)}",
        f"Accepted: {', '.join(accepted)}.",
        CAPTIONS["correlation_vs_d"]["flat"] if counts["flat"].any() else "",
        more if hidden > 0 else "",
    ]


def _kinds(counts: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the counts with `variant` and `kind`: accepted, then by status and reason."""
    reason = counts["reason"].fillna("").map(lambda text: f": {text}" if text else "")
    kind = (counts["status"].astype(str) + reason).map(lambda text: style.plain(text, limit=46))
    kind = kind.where(counts["status"] != "ok", counts["flat"].map(ACCEPTED.__getitem__))
    order = counts["count"].groupby(kind).sum().sort_values(ascending=False).index
    kind = named(kind, {name: name for name in (*ACCEPTED.values(), *order)})
    return counts.assign(kind=kind, variant=_variant(counts, axes))


def _variant(table: pd.DataFrame, axes: CellAxes) -> "pd.Series[Any]":
    """Return the label of each row's axes besides d: the published arithmetic comes first."""
    words = labels(axes, table, axes.besides("data.d"))
    return words.cat.reorder_categories(words.cat.categories[::-1])


def _words(name: str, tables: Tables, axes: CellAxes) -> pd.DataFrame:
    """Return the rows of the three solutions, with the words of variant, d (`col`) and curve."""
    counts = tables["correlation_vs_d_counts"]
    ds = sorted(counts["data.d"].unique())
    places = np.linspace(0, len(ds) - 1, min(len(ds), DIMENSIONS)).round().astype(int)
    columns = {ds[i]: f"$d={number(ds[i])}$" for i in places}
    table = tables[name]
    table = table[table["quantity"].isin(QUANTITIES)]
    return table.assign(
        variant=_variant(table, axes).astype(_variant(counts, axes).dtype),
        col=pd.Categorical(table["data.d"].map(columns), list(columns.values())),
        hue=named(table["quantity"], {name: SVM_QUANTITIES[name] for name in QUANTITIES}),
    )


def _versus_d(tables: Tables, axes: CellAxes) -> Figure:
    table = _words("correlation_vs_d", tables, axes)
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    flat = counts.loc[(counts["status"] == "ok") & counts["flat"], "variant"]
    rest = table["instances"] == "not flat"
    shown = (table["quantity"] == QUANTITIES[0]) & table["variant"].isin(flat)
    table = table[shown | ~rest]
    table = table.assign(
        mean=table["mean"].clip(lower=SMALLEST),
        low=table["low"].mask(rest),
        col=table["variant"],
        dash=named(table["instances"], {"all": "all accepted", "not flat": "not flat"}),
    )
    published = _words("correlation_vs_d_published", tables, axes)
    read = {"published figure, read off": {"color": style.INK, **READ}} if len(published) else {}
    fig = curves(
        table,
        "data.d",
        "mean",
        panels=AXIS,
        extra=read,
        palette=SVM_COLOURS,
    )
    for ax, variant in zip(fig.axes, values_of(table, "variant"), strict=True):
        for curve, rows in rows_of(published, {"variant": variant}).groupby("hue"):
            ax.plot(rows["data.d"], rows["value"], **READ, color=SVM_COLOURS[str(curve)])
    return fig


def _drawn(tables: Tables, axes: CellAxes) -> Figure:
    """Return the statuses of all instances, with the number that was drawn below each bar."""
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    kinds, fills = values_of(counts, "kind"), style.FILLS["drawn"]
    accepted = [kind for kind in kinds if kind in ACCEPTED.values()]
    others = [kind for kind in kinds if kind not in accepted]
    looks = dict(zip(accepted, fills["accepted"], strict=False))
    looks |= zip(others, chain(fills["others"], repeat({"color": style.INK})), strict=False)
    total = counts.groupby(["variant", "data.d"], observed=True)["count"].transform("sum")
    bar = counts["data.d"].map(number) + "\n(" + total.astype(str) + ")"
    counts = counts.assign(share=counts["count"] / total, bar=bar, col=counts["variant"])
    return bars(
        counts.sort_values("data.d"),
        "bar",
        "kind",
        looks,
        least=2.0,
        y_label="instances drawn",
        x_label=f"{column('d')} (instances drawn)",
    )


def _over_steps(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d."""
    table = _words("correlation_vs_d_steps", tables, axes)
    return curves(
        table.assign(mean=table["mean"].clip(lower=SMALLEST)),
        "step",
        "mean",
        palette=SVM_COLOURS,
        panels=AXIS,
    )


def _scatter(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d, with a point for each instance and solution."""
    table = tables["correlation_vs_d_instances"]
    shown = [name for name in QUANTITIES if name in table]
    kept = [name for name in table if name not in QUANTITIES]
    name = "correlation_vs_d_instances"
    table = _words(name, {**tables, name: table.melt(kept, shown, "quantity", "value")}, axes)
    table = table.assign(
        used=1,
        value=table["value"].clip(lower=SMALLEST),
        softmax=table["max_masked_softmax"].clip(lower=SMALLEST_SOFTMAX),
    )
    return curves(
        table,
        "softmax",
        "value",
        panels=AXIS,
        joined=False,
        palette=SVM_COLOURS,
        log_x=True,
        x_label="largest masked softmax",
    )
