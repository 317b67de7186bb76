"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..cells import GRADIENT, number, row_key, rows_of
from ..facets import BANDS, QUARTILES, bars, curves, labels, named, panel_of, values_of
from ..notation import SVM_COLOURS, SVM_QUANTITIES, TABLES, column
from . import CAPTIONS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import certified, history_of, joined, stalled

QUANTITIES = [f"one_minus_corr_{svm}" for svm in ("svmeq", "frobenius", "1token")]
AXIS = panel_of("agreement")

ACCEPTED = {False: "accepted", True: "accepted, flat"}
READ: Any = {"linestyle": "", "marker": "_", "markersize": 10, "mew": 1.8}
"""How these are drawn, in the colours of the curves."""

PUBLISHED = TABLES["published_correlations"]
"""The setting of the published figure; d -> values read off it, as in `QUANTITIES`."""

DIMENSIONS = 4
"""Largest number of values of d with a panel of their own: evenly spread ones."""

SMALLEST = 1e-17
"""Smallest 1-correlation on a log axis: smaller values and 0 are drawn there."""

ALL, NOT_FLAT, SAME, NEVER_FLAT = "all", "not flat", "same seeds", "same seeds, never flat"
"""Sets of accepted instances: of one arithmetic, those not flat at the last step; accepted in both
arithmetics, those flat at no recorded step in either."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    By cell, quantity and step, and at the last step for the sets of instances above; of every
    accepted instance; W_svmeq in both arithmetics, by seed, NaN where that arithmetic does not
    accept it; and values read off the published figure, where the sweep has its setting. The counts
    are by status, reason, whether some head is flat, and how training ended.
    """
    trials = frames.rows
    by = [*frames.cells.besides("data.d"), "data.d"]
    quantities = [name for name in (*QUANTITIES, "one_minus_corr_svmeq_lsq") if name in trials]
    flat = trials["flat"].eq(True).fillna(False) if "flat" in trials else False
    trials = trials.assign(flat=flat, training=trials.get("training", ""))
    accepted = _paired(frames, trials[trials["status"] == "ok"], [*by, "seed"])
    history = history_of(frames, certified(frames), by)
    history = history[history["quantity"].isin(quantities)]
    same, rows = accepted["in_both"], {ALL: slice(None), NOT_FLAT: ~accepted["flat"]}
    rows |= {SAME: same, NEVER_FLAT: same & ~accepted["flat_in_either"]}
    last = [
        statistics.summaries(
            accepted[which].melt(by, quantities, "quantity", "value"),
            [*by, "quantity"],
            "value",
            "mean" if instances in (ALL, NOT_FLAT) else "median",
        ).assign(instances=instances)
        for instances, which in rows.items()
    ]
    kept = [*by, "run", "seed", "flat", "flat_at_a_step", "in_both", "max_masked_softmax"]
    reasons = [*by, "status", "reason", "flat", "training"]
    instance = [*(name for name in by if name != GRADIENT), "seed", "flat_in_either"]
    pairs = accepted.pivot(index=instance, columns=GRADIENT, values=QUANTITIES[0])
    both = ["direct", "log_domain"]
    return {
        "correlation_vs_d_steps": statistics.summaries(history, [*by, "quantity", "step"], "value"),
        "correlation_vs_d": joined(last, []),
        "correlation_vs_d_instances": accepted.reindex(columns=[*kept, *quantities]),
        "correlation_vs_d_pairs": pairs.reset_index().reindex(columns=[*instance, *both]),
        "correlation_vs_d_published": _published(trials, by),
        "correlation_vs_d_counts": statistics.counts(trials, reasons),
    }


def _paired(frames: LoadedSweep, accepted: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the accepted instances with what both arithmetics say of their seed.

    `flat_at_a_step`: some head is flat at a recorded step, which the probe `slope` measures;
    `flat_in_either`: in some arithmetic; `in_both`: both accept the seed.
    """
    key, curves = row_key(accepted), frames.curves
    zero = curves.loc[(curves["quantity"] == "slope_least") & (curves["value"] == 0), key]
    at_a_step = accepted[key].merge(zero.drop_duplicates(), "left", key, indicator=True)["_merge"]
    ever = accepted["flat"].to_numpy(bool) | (at_a_step == "both").to_numpy()
    accepted = accepted.assign(flat_at_a_step=ever)
    seed = accepted.groupby([name for name in by if name != GRADIENT], dropna=False)
    return accepted.assign(
        flat_in_either=seed["flat_at_a_step"].transform("any"),
        in_both=seed[GRADIENT].transform("nunique") == 2,
    )


def _published(trials: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return quantity and value of the published figure for every cell with its setting."""
    same = trials[[*PUBLISHED["setting"]]].eq(pd.Series(PUBLISHED["setting"])).all(axis=1)
    names = [*dict.fromkeys(["data.d", GRADIENT, *by])]
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
    pages = {2: {"": _versus_d, "_drawn": _drawn}, 1: {"_steps": _over_steps}}
    if tables["correlation_vs_d"]["instances"].eq(SAME).any():
        pages[2]["_pairs"] = _pairs
    return [
        drawing
        for room, figures in pages.items()
        for drawing in paged(
            {f"correlation_vs_d{end}": figure for end, figure in figures.items()},
            tables,
            axes,
            remarks,
            notes=_notes,
            counts="",
            inner=["data.d"],
            panels=[GRADIENT],
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


def _words(table: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the rows of the three solutions, with the words of variant and curve."""
    table = table[table["quantity"].isin(QUANTITIES)]
    hue = named(table["quantity"], {name: SVM_QUANTITIES[name] for name in QUANTITIES})
    return table.assign(variant=_variant(table, axes), hue=hue)


def _by_dimension(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `col`, the word of d, of at most `DIMENSIONS` values of d."""
    ds = sorted(table["data.d"].unique())
    places = np.linspace(0, len(ds) - 1, min(len(ds), DIMENSIONS)).round().astype(int)
    words = {ds[i]: f"$d={number(ds[i])}$" for i in places}
    return table.assign(col=pd.Categorical(table["data.d"].map(words), list(words.values())))


def _versus_d(tables: Tables, axes: CellAxes) -> Figure:
    """Return the published figure, and the seeds that both arithmetics accept in each of them.

    Without such seeds, each arithmetic with all that it accepts.
    """
    table = _words(tables["correlation_vs_d"], axes)
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    flat = counts.loc[(counts["status"] == "ok") & counts["flat"], "variant"]
    rest = table["instances"].isin((NOT_FLAT, NEVER_FLAT))
    table = table[~rest | (table["quantity"] == QUANTITIES[0]) & table["variant"].isin(flat)]
    paired = table["instances"].isin((SAME, NEVER_FLAT))
    if paired.any():
        table = table[paired | (table[GRADIENT] == "direct")]
    paired, rest = paired[table.index], rest[table.index]
    table = table.assign(
        col=[*map(_heading, table["variant"], paired)],
        value=table["mean"].where(~paired, table["median"]).clip(lower=SMALLEST),
        low=table["low"].mask(rest | paired),
        q25=table["q25"].mask(rest | ~paired),
        dash=named(rest, {False: "accepted", True: "not flat"}),
    )
    published = _words(tables["correlation_vs_d_published"], axes)
    read = {"published figure, read off": {"color": style.INK, **READ}} if len(published) else {}
    fig = curves(
        table,
        "data.d",
        "value",
        panels=AXIS,
        palette=SVM_COLOURS,
        bands=BANDS | QUARTILES,
        extra=read,
    )
    for ax, name in zip(fig.axes, values_of(table, "col"), strict=True):
        own = published["variant"].map(_heading).astype(object) == name
        for curve, rows in published[own].groupby("hue", observed=True):
            ax.plot(rows["data.d"], rows["value"], **READ, color=SVM_COLOURS[str(curve)])
    return fig


def _heading(variant: str, paired: bool = False) -> str:
    parts = ("same seeds", variant, "median") if paired else (variant, "mean")
    return ", ".join(filter(None, parts))


def _pairs(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d, with a point for each seed that both arithmetics accept."""
    table = _by_dimension(tables["correlation_vs_d_pairs"])
    table = table.dropna(subset="col")
    values = table[["direct", "log_domain"]].clip(lower=SMALLEST)
    known = table[["direct", "log_domain"]].notna()
    kinds = {False: "never flat", True: "flat at a recorded step"}
    table = table.assign(**values, used=1, hue=named(table["flat_in_either"], kinds))
    fig = curves(
        table[known.all(axis=1)],
        "direct",
        "log_domain",
        panels=replace(AXIS, label=f"exact: {column(QUANTITIES[0])}"),
        joined=False,
        log_x=True,
        x_label="published arithmetic",
        palette=dict(zip(kinds.values(), (style.PALETTE[0], style.PALETTE[4]), strict=True)),
        ticks=(1e-4, 1e-2, 1.0),
    )
    for ax, name in zip(fig.axes, table["col"].cat.categories, strict=True):
        ax.axline((1e-3, 1e-3), (1, 1), color=style.FAINT, linewidth=0.8, zorder=0)
        alone = (~known[table["col"] == name]).sum()
        text = f"exact only: {alone['direct']}\npublished only: {alone['log_domain']}"
        ax.text(0.98, 0.02, text, ha="right", fontsize=6.5, transform=ax.transAxes)
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
    table = _by_dimension(_words(tables["correlation_vs_d_steps"], axes))
    table = table.assign(mean=table["mean"].clip(lower=SMALLEST))
    return curves(table, "step", "mean", palette=SVM_COLOURS, panels=AXIS)
