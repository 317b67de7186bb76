"""Trained W against the attention SVMs of the attended tokens (paper, section 5)."""

from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..cells import number
from ..facets import Look, Panel, bars, facets, labels, looks_of, named, points
from ..notation import DISTANCE, SVMS, VALUES, column
from . import CAPTIONS, MOST_PANELS, CellAxes, Figure, Pages, SweepFrames, Tables, paged
from ._numbers import history_of, stalled

CURVES = {f"one_minus_corr_{svm}": SVMS[svm] for svm in ("svmeq", "frobenius", "1token")}
AXIS = Panel(DISTANCE(r"\cdot\,"), "log")
TITLE = "trained $W${} against".format
WITHOUT_FLAT = CURVES["one_minus_corr_svmeq"] + ", not flat"
LOOKS: dict[str, Look] = {
    **looks_of(list(CURVES.values())),
    WITHOUT_FLAT: {"color": style.PALETTE[0], "marker": "o", "markerfacecolor": "white",
                   "markeredgewidth": 1.0, "linestyle": "--", "linewidth": 1.1},
}  # fmt: skip
ACCEPTED = {False: "accepted", True: "accepted, flat"}
ACCEPTED_FILLS, OTHERS = (
    [style.fill(**look) for look in style.FILLS["drawn"][kind]] for kind in ("accepted", "others")
)
"""How accepted and other kinds of instances are drawn, in order."""
READ_OFF = {4: (0.034, 0.07, 0.155), 10: (0.0055, 0.0085, 0.12)}
"""Values read from the published figure: d -> values as in `CURVES`."""
READ: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 10, "mew": 1.8}
"""How these are drawn, in the colours of the curves."""
PUBLISHED = {
    "model": "cross_attention", "parameterization": "w", "head": "relu", "data": "sphere",
    "loss": "logistic", "optimizer": "normalized_gd", "lr": 0.1, "growth": 0.0, "ridge": 0.0,
    "n": 3, "T": 4, "gradient": "direct",
}  # fmt: skip
"""The setting of the published figure."""
DIMENSIONS = 4
"""Largest number of values of d with a panel of their own: evenly spread ones."""
SMALLEST = 1e-17
"""Smallest 1-correlation on the log axis: smaller values and 0 are drawn at this value."""
SMALLEST_SOFTMAX = 1e-60
"""Smallest softmax on the log axis: smaller ones are drawn at this value."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the 1-correlations of the accepted instances and the statuses of all instances.

    By cell, quantity and step, and at the last step for all and for those without a flat head; of
    every accepted instance; and values read off the published figure, where the sweep has its
    setting. The counts are by status, reason, whether some head is flat, and how training ended.
    """
    trials = frames.trials
    by = [*frames.axes.besides("d"), "d"]
    quantities = [q for q in (*CURVES, "one_minus_corr_svmeq_lsq") if q in trials]
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


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    by_kind = counts.groupby("kind", observed=True, sort=True)["count"].sum()
    listed = "; ".join(f"{count} {kind}" for kind, count in by_kind.items())
    total = f"Instances drawn: {counts['count'].sum()} ({listed}).{stalled(counts, axes)}"
    accepted = [
        f"{rows.loc[rows['status'] == 'ok', 'count'].sum()} of {rows['count'].sum()} at d={d}"
        for d, rows in counts.groupby("d")
    ]
    hidden = counts["d"].nunique() - DIMENSIONS
    more = f"Of steps and instances, {hidden} further values of d are in the tables only."
    flat = CAPTIONS["correlation_vs_d"]["flat"] if counts["flat"].any() else ""
    return [total, f"Accepted: {', '.join(accepted)}.", flat, more if hidden > 0 else ""]


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
    ds = sorted(counts["d"].unique())
    places = np.linspace(0, len(ds) - 1, min(len(ds), DIMENSIONS)).round().astype(int)
    columns = {ds[i]: f"$d={number(ds[i])}$" for i in places}
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
    curves = named(shown["curve"], {name: name for name in LOOKS})
    shown = shown.assign(mean=shown["mean"].clip(lower=SMALLEST), curve=curves)
    published = tables["correlation_vs_d_published"]
    read = {"published figure, read off": {"color": style.INK, **READ}} if len(published) else {}
    fig, (grid,) = facets(
        shown, "d", "mean", hue="curve", col="variant", panels=AXIS, looks=LOOKS, also=read,
        x_label=column("d"), ticks=table["d"], nothing="no accepted instance", title=TITLE(""),
    )  # fmt: skip
    published = published.assign(variant=labels(axes, published, axes.besides("d")))
    for ax, variant in zip(grid, counts["variant"].cat.categories, strict=True):
        for quantity, rows in published[published["variant"] == variant].groupby("quantity"):
            ax.plot(rows["d"], rows["value"], **READ, color=LOOKS[CURVES[str(quantity)]]["color"])
    return fig


def _drawn(tables: Tables, axes: CellAxes) -> Figure:
    """Return the statuses of all instances, with the number that was drawn above each bar."""
    counts = _kinds(tables["correlation_vs_d_counts"], axes)
    kinds = counts["kind"].cat.categories
    accepted = [kind for kind in kinds if kind in ACCEPTED.values()]
    others = [kind for kind in kinds if kind not in accepted]
    shades = dict(zip(accepted, ACCEPTED_FILLS, strict=False))
    shades |= dict(zip(others, chain(OTHERS, repeat(style.fill(style.INK))), strict=False))
    total = counts.groupby(["variant", "d"], observed=True)["count"].transform("sum")
    bar = counts["d"].map(number) + "\n(" + total.astype(str) + ")"
    counts = counts.assign(share=counts["count"] / total, bar=bar).sort_values("d")
    return bars(
        counts, "bar", "kind", shades, col="variant", least=2.0, y_label="instances drawn",
        x_label=f"{column('d')} (instances drawn)",
    )[0]  # fmt: skip


def _title(table: pd.DataFrame) -> str:
    """Return the title of the legend of a figure that has one arithmetic of those of the sweep."""
    words = [VALUES["gradient"][one].split()[0] for one in set(table.get("gradient", ()))]
    return TITLE(f" ({words[0]} arithmetic)" if words else "")


def _over_steps(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d."""
    counts = tables["correlation_vs_d_counts"]
    table = _curves(tables["correlation_vs_d_steps"], axes, counts)
    return facets(
        table.assign(mean=table["mean"].clip(lower=SMALLEST)), "step", "mean", hue="curve",
        col="column", looks=LOOKS, panels=AXIS, x_label="step", share_x=True,
        nothing="no accepted instance", title=_title(table),
    )[0]  # fmt: skip


def _scatter(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each d, with a point for each instance and solution."""
    counts, table = tables["correlation_vs_d_counts"], tables["correlation_vs_d_instances"]
    shown = [name for name in CURVES if name in table]
    kept = [name for name in table if name not in CURVES]
    table = _curves(table.melt(kept, shown, "quantity", "value"), axes, counts)
    table = table.assign(
        used=1,
        value=table["value"].clip(lower=SMALLEST),
        softmax=table["max_masked_softmax"].clip(lower=SMALLEST_SOFTMAX),
    )
    fig, grid = facets(
        table, "softmax", "value", hue="curve", col="column", looks=LOOKS, panels=AXIS,
        x_label="largest masked softmax", share_x=True, mark=points, title=_title(table),
        nothing="no accepted instance",
    )  # fmt: skip
    for ax in grid.flat:
        style.log_axis(ax.xaxis)
    return fig


draw = paged(
    *(
        Pages(
            f"correlation_vs_d{kind}", figure, _notes, counts="", x=("d",), panels=("gradient",),
            room=room, cells="correlation_vs_d_counts",
        )
        for kind, figure, room in (
            ("", _versus_d, MOST_PANELS), ("_drawn", _drawn, MOST_PANELS),
            ("_steps", _over_steps, 1), ("_scatter", _scatter, 1),
        )
    )
)  # fmt: skip
