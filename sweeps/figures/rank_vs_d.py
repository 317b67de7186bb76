"""Rank of the attention SVM's solutions versus the token dimension d (paper, section 3)."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .. import statistics, style
from ..cells import number
from ..facets import Look, Panel, curve, facets, looks_of, named
from ..notation import SVMS, column
from . import CAPTIONS, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, paged
from ._numbers import joined

DASHES: dict[str, Any] = {"frobenius": "-", "nuclear": (0, (4, 1.6))}
X = ("n", "T", "d")
METHODS = {"certified": "certified", "published": "counted as published"}
SPREAD = ["mean", "low", "high", "std", "median", "q25", "q75"]
COUNTED = ["undecided", "tied", "unranked", "set_aside"]
SUMMED = ["trials", "used", "nothing", *COUNTED]


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the mean ranks with their spread and the shares of instances without a solution.

    One row per (other varying keys, n, T, d, method, svm_norm); of a method and a norm that no run
    has, none. `used` instances enter the mean; `nothing` is the number without a solution:
    certified infeasible, or, for the published way, without a matrix from the solver (recorded as
    rank 1 and included in the mean).
    """
    trials = frames.trials
    by = [*frames.axes.besides(*X), *X]
    parts = [
        _row_per_cell(instances(trials, norm), by).assign(method=method, svm_norm=norm)
        for method, (instances, status) in WAYS.items()
        for norm in _solved(trials, status)
    ]
    return {"rank_vs_d": joined(parts, [*by, "method", "svm_norm"])}


def _solved(trials: pd.DataFrame, status: str) -> list[str]:
    """Return the norms of which a run has a solution; all on record if none of certified ones."""
    known = [norm for norm in DASHES if status.format(norm) in trials]
    some = [norm for norm in known if trials[status.format(norm)].replace("", None).notna().any()]
    return some or known * (not status.startswith("published"))


def _certified(trials: pd.DataFrame, norm: str) -> pd.DataFrame:
    usable = trials["status"].isin(("ok", "infeasible", "undecided", "unconstrained"))
    verdict = trials[f"{norm}_status"].where(usable, trials["status"].where(~usable))
    nothing = verdict.map({"infeasible": True, "solved": False, "unconstrained": False})
    rank = trials[f"{norm}_rank"].where(nothing.eq(False))
    left_out = verdict.map({"tie": "tied", "undecided": "undecided"}).fillna("set_aside")
    left_out = left_out.where(nothing.isna(), "").mask(nothing.eq(False) & rank.isna(), "unranked")
    return trials.assign(rank=rank, nothing=nothing.astype("boolean"), left_out=left_out)


def _published(trials: pd.DataFrame, norm: str) -> pd.DataFrame:
    rank, status = trials[f"published_{norm}_rank"], trials[f"published_{norm}_status"]
    nothing = ~status.isin(("optimal", "optimal_inaccurate")).astype("boolean")  # no matrix
    left_out = rank.isna().map({True: "set_aside", False: ""})
    return trials.assign(rank=rank, nothing=nothing.where(rank.notna()), left_out=left_out)


WAYS = {
    "certified": (_certified, "{}_status"),
    "published": (_published, "published_{}_status"),
}
"""Method -> its ranks and the column of its statuses, empty where a run does without it."""


def _row_per_cell(trials: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    ranks = statistics.summaries(trials, by, "rank")
    nothing = statistics.shares(trials, by, "nothing")[["count", "share", "low", "high"]]
    counted = trials.assign(**{name: trials["left_out"] == name for name in COUNTED})
    counts = counted.groupby(by, dropna=False, sort=True)[COUNTED].sum().astype(int)
    return pd.concat(
        [
            ranks[by].assign(trials=ranks["used"] + ranks["excluded"], used=ranks["used"]),
            ranks[SPREAD].add_prefix("rank_"),
            nothing.add_prefix("nothing_").rename(columns={"nothing_count": "nothing"}),
            counts.reset_index(drop=True),
        ],
        axis=1,
    )


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the ranks where n varies, where T does, and the shares without a solution."""
    varies = _points(tables["rank_vs_d"], "rank_")["varies"].unique()
    page = partial(Pages, lines=_small_print, x=X, cells="rank_vs_d", counts="")
    ranks = zip(("rank_vs_d", "rank_vs_d_by_T"), varies, strict=False)
    pages = [page(name, partial(_ranks, series)) for name, series in ranks]
    return paged(*pages, page("rank_vs_d_infeasible", _shares))(tables, axes, remarks)


def _ranks(series: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each method, and a row for each T, or n, if n, or T, varies."""
    table = _points(tables["rank_vs_d"], "rank_").query("varies == @series")
    table = table.assign(method=named(table["method"], METHODS))
    keys = {SVMS[norm]: {"color": style.INK, "linestyle": DASHES[norm]} for norm in _norms(table)}
    fig, grid = facets(
        table, "at", "mean", hue="curve", row="title", col="method", mark=_mark, also=keys,
        panels=Panel("mean rank", "from_zero"), looks=_looks(table), x_label=column("d"),
        ticks=table["d"], nothing="no instance with a solved SVM",
    )  # fmt: skip
    for ax in grid.flat:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return fig


def _shares(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each T and n, with a legend of its own; all norms have these shares."""
    table = _points(tables["rank_vs_d"], "nothing_").query("method == 'certified'")
    table = table[table["svm_norm"] == table["svm_norm"].min()].assign(used=table["trials"])
    fig, grid = facets(
        table, "at", "share", hue="curve", col="title", panels=Panel("infeasible", "share"),
        looks=_looks(table), x_label=column("d"), ticks=table["d"],
    )  # fmt: skip
    fig.legends.clear()
    for ax in grid.flat:
        if ax.lines:
            ax.legend(loc="upper right")
    return fig


def _points(table: pd.DataFrame, prefix: str) -> pd.DataFrame:
    """Return the cells in their panels: each T where n varies, each n where T does, and the rest.

    The columns that begin with `prefix` are named without it. `of` is the n or T of a curve; the
    curves of a panel are `at` places beside d.
    """
    parts, alone = [], pd.Series(True, index=table.index)
    for fixed, series in (("T", "n"), ("n", "T")):
        several = table.groupby(fixed, dropna=False)[series].transform("nunique") > 1
        title = f"${fixed}=" + table[fixed].map(number) + "$"
        panels = table.assign(varies=series, of=table[series], title=title)
        parts.append(panels[several].sort_values([fixed, series, "svm_norm"], kind="stable"))
        alone &= ~several
    title = "$T=" + table["T"].map(number) + ", n=" + table["n"].map(number) + "$"
    parts.append(table.assign(varies="n", of=table["n"], title=title)[alone])
    points = pd.concat(parts, ignore_index=True).rename(columns=lambda n: n.removeprefix(prefix))
    place = points.groupby("varies")["of"].rank("dense")
    middle = (1 + place.groupby(points["varies"]).transform("max")) / 2
    return points.assign(
        at=points["d"] + 0.14 * (place - middle),
        curve=points["varies"] + "=" + points["of"].map(number) + "|" + points["svm_norm"],
    )


def _norms(points: pd.DataFrame) -> list[str]:
    """Return the norms of the SVMs of some rows, in the order of `DASHES`."""
    return [norm for norm in DASHES if norm in set(points["svm_norm"])]


def _looks(points: pd.DataFrame) -> dict[str, Look]:
    """Return the look of each curve: the first ones are the widest."""
    found: dict[str, Look] = {}
    norms = _norms(points)
    for series, part in points.groupby("varies"):
        values = sorted(part["of"].unique())
        looks = looks_of(values)
        for (k, value), norm in product(enumerate(values), norms):
            solid, colour = norm == "frobenius", looks[value]["color"]
            width = 1.0 + 0.9 * min(len(values) - 1 - k, 6)
            found[f"{series}={number(value)}|{norm}"] = {
                **looks[value], "linestyle": DASHES[norm], "linewidth": width if solid else 1.2,
                "markersize": 1.6 + width, "markerfacecolor": colour if solid else "white",
                "markeredgecolor": colour, "markeredgewidth": 0.8,
                "label": f"${series}={number(value)}$" if norm == norms[0] else "_",
            }  # fmt: skip
    return found


def _mark(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    """Draw a curve, and bars of one standard deviation of the instances."""
    curve(ax, rows, x, statistic, look)
    ends = rows[statistic] - rows["std"], rows[statistic] + rows["std"]
    ax.vlines(rows[x], *ends, color=look["color"], linewidth=0.7, alpha=0.7)


def _small_print(tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["rank_vs_d"]
    certified, published = (table[table["method"] == method] for method in METHODS)
    parts = [("certified", norm, cells) for norm, cells in certified.groupby("svm_norm")]
    parts += [("published", "", published)] if len(published) else []
    words = CAPTIONS["rank_vs_d_counts"]
    return [
        words[method].format(norm=norm, **{name: cells[name].sum() for name in SUMMED})
        for method, norm, cells in parts
    ]
