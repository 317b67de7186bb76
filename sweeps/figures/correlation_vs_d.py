"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from .. import statistics, style
from ..cells import GRADIENT, number, row_key
from ..facets import BANDS, QUARTILES, curves, labels, named, panel_of, values_of
from ..notation import SVM_COLOURS, SVM_QUANTITIES, TABLES, column
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import joined, stalled

QUANTITIES = [f"one_minus_corr_{svm}" for svm in ("svmeq", "frobenius", "1token")]
AXIS = panel_of("agreement")

READ: Any = {"linestyle": "", "marker": "_", "markersize": 10, "mew": 1.8}
"""How values read off the published figure are drawn, in the colours of the curves."""

PUBLISHED = TABLES["published_correlations"]
"""The setting of the published figure; d -> values read off it, as in `QUANTITIES`."""

DIMENSIONS = 4
"""Largest number of values of d with a panel of their own: the smallest ones."""

SMALLEST = 1e-17
"""Smallest 1-correlation on a log axis: smaller values and 0 are drawn there."""

ALL, NOT_FLAT, SAME, NEVER_FLAT = "all", "not flat", "same seeds", "same seeds, never flat"
"""Sets of accepted instances: of one arithmetic, those not flat at the last step; accepted in both
arithmetics, those flat at no recorded step in either."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    At the last step by cell and quantity for the sets of instances above; of every accepted
    instance; W_svmeq in both arithmetics, by seed, NaN where that arithmetic does not accept it;
    and values read off the published figure, where the sweep has its setting. The counts are by
    status, reason, whether some head is flat, and how training ended.
    """
    trials = frames.rows
    by = [*frames.cells.besides("data.d"), "data.d"]
    quantities = [name for name in (*QUANTITIES, "one_minus_corr_svmeq_lsq") if name in trials]
    flat = pd.Series(trials.get("flat", False), trials.index).eq(True).fillna(False)
    trials = trials.assign(flat=flat, training=trials.get("training", ""))
    accepted = _paired(frames, trials[trials["status"] == "ok"], [*by, "seed"])
    same, sets = accepted["in_both"], {ALL: slice(None), NOT_FLAT: ~accepted["flat"]}
    sets |= {SAME: same, NEVER_FLAT: same & ~accepted["flat_in_either"]}
    last = [
        statistics.summaries(
            accepted[rows].melt(by, quantities, "quantity", "value"),
            [*by, "quantity"],
            "value",
            "mean" if name in (ALL, NOT_FLAT) else "median",
        ).assign(instances=name)
        for name, rows in sets.items()
    ]
    kept = [*by, "run", "seed", "flat", "flat_at_a_step", "in_both", "max_masked_softmax"]
    instance = [*(name for name in by if name != GRADIENT), "seed", "flat_in_either"]
    pairs = accepted.pivot(index=instance, columns=GRADIENT, values=QUANTITIES[0])
    both = [*instance, "direct", "log_domain"]
    return {
        "correlation_vs_d": joined(last, []),
        "correlation_vs_d_instances": accepted.reindex(columns=[*kept, *quantities]),
        "correlation_vs_d_pairs": pairs.reset_index().reindex(columns=both),
        "correlation_vs_d_published": _published(trials, by),
        "correlation_vs_d_counts": statistics.counts(
            trials, [*by, "status", "reason", "flat", "training"]
        ),
    }


def _paired(frames: LoadedSweep, accepted: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the accepted instances with what both arithmetics say of their seed.

    `flat_at_a_step`: some head is flat at a recorded step, which the probe `slope` measures;
    `flat_in_either`: in some arithmetic; `in_both`: both accept the seed.
    """
    key = row_key(accepted)
    zero = frames.curves.query("quantity == 'slope_least' and value == 0")[key].drop_duplicates()
    at_a_step = accepted[key].merge(zero, "left", key, indicator=True)["_merge"] == "both"
    ever = accepted["flat"].to_numpy(bool) | at_a_step.to_numpy()
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
    read = pd.DataFrame(PUBLISHED["read_off"], QUANTITIES).rename_axis("quantity").reset_index()
    read = read.melt("quantity", var_name="data.d").astype({"data.d": trials["data.d"].dtype})
    return trials.loc[same, names].drop_duplicates().sort_values(names).merge(read, on="data.d")


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return the correlations at the last step over d, and the seeds that both accept."""
    figures = {"correlation_vs_d": _versus_d}
    if tables["correlation_vs_d"]["instances"].eq(SAME).any():
        figures["correlation_vs_d_pairs"] = _pairs
    return paged(
        figures,
        tables,
        axes,
        remarks,
        notes=_notes,
        counted=False,
        inner=["data.d"],
        panels=[GRADIENT],
        room=2,
    )


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    counts = tables["correlation_vs_d_counts"]
    accepted = counts["status"] == "ok"
    kind = counts["status"].astype(str) + ": " + counts["reason"].fillna("")
    kind = kind.str.removesuffix(": ").map(lambda text: style.plain(text, limit=46))
    kind = kind.mask(accepted, "accepted").mask(accepted & counts["flat"], "accepted, flat")
    sums = counts.assign(accepted=counts["count"].where(accepted, 0)).groupby("data.d")
    by_kind = counts.groupby(kind)["count"].sum().sort_values(ascending=False)
    by_d = sums[["accepted", "count"]].sum().itertuples()
    hidden = len(sums) - DIMENSIONS
    return [
        f"Instances drawn: {counts['count'].sum()} "
        f"({'; '.join(f'{count} {kind}' for kind, count in by_kind.items())})."
        f"{stalled(counts, axes)}",
        f"Accepted: {', '.join(f'{some} of {every} at d={d}' for d, some, every in by_d)}.",
        f"Of pairs, {hidden} further values of d are in the tables only." if hidden > 0 else "",
    ]


def _words(table: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the rows of the three solutions with their names, and `variant`, as published first.

    The variant is the label of the axes besides d.
    """
    table = table[table["quantity"].isin(QUANTITIES)]
    words = labels(axes, table, axes.besides("data.d"))
    words = words.cat.reorder_categories(words.cat.categories[::-1])
    hue = named(table["quantity"], {name: SVM_QUANTITIES[name] for name in QUANTITIES})
    return table.assign(variant=words, hue=hue)


def _versus_d(tables: Tables, axes: CellAxes) -> Figure:
    """Return the published figure, and the seeds that both arithmetics accept in each of them.

    Without such seeds, each arithmetic with all that it accepts.
    """
    table = _words(tables["correlation_vs_d"], axes)
    rest = table["instances"].isin((NOT_FLAT, NEVER_FLAT))
    paired = table["instances"].isin((SAME, NEVER_FLAT))
    shown = ~rest | (table["quantity"] == QUANTITIES[0])
    if paired.any():
        shown &= paired | (table[GRADIENT] == "direct")
    table = table.assign(
        col=[*map(_heading, table["variant"], paired)],
        value=table["mean"].where(~paired, table["median"]).clip(lower=SMALLEST),
        low=table["low"].mask(rest | paired),
        q25=table["q25"].mask(rest | ~paired),
        dash=named(rest, {False: "accepted", True: "not flat"}),
    )[shown]
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
    table, kinds = tables["correlation_vs_d_pairs"], ("never flat", "flat at a recorded step")
    ds = sorted(table["data.d"].unique())[:DIMENSIONS]
    table = table[table["data.d"].isin(ds)]
    known = table[["direct", "log_domain"]].notna()
    values = table[["direct", "log_domain"]].clip(lower=SMALLEST)
    table = table.assign(
        **values,
        used=1,
        col=named(table["data.d"], {d: f"$d={number(d)}$" for d in ds}),
        hue=named(table["flat_in_either"], dict(enumerate(kinds))),
    )
    fig = curves(
        table[known.all(axis=1)],
        "direct",
        "log_domain",
        panels=replace(AXIS, label=f"exact: {column(QUANTITIES[0])}"),
        joined=False,
        log_x=True,
        x_label="published arithmetic",
        palette=dict(zip(kinds, style.PALETTE[::4], strict=False)),
        ticks=(1e-4, 1e-2, 1.0),
    )
    for ax, d in zip(fig.axes, ds, strict=True):
        ax.axline((1e-3, 1e-3), (1, 1), color=style.FAINT, linewidth=0.8, zorder=0)
        alone = (~known[table["data.d"] == d]).sum()
        text = f"exact only: {alone['direct']}\npublished only: {alone['log_domain']}"
        ax.text(0.98, 0.02, text, ha="right", fontsize=6.5, transform=ax.transAxes)
    return fig
