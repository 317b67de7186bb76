"""Rank of the attention SVM's solutions versus the token dimension d (paper, section 3)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from .. import statistics
from ..facets import Panel, curves, labels, named, values_of
from ..notation import SVMS
from . import CAPTIONS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import joined

NORMS = ("frobenius", "nuclear")
X = ("data.n", "data.T", "data.d")
METHODS = {"certified": "certified", "published": "counted as published"}
SPREAD = ["mean", "low", "high", "std", "median", "q25", "q75"]
COUNTED = ["undecided", "tied", "unranked", "set_aside"]
SUMMED = ["trials", "used", "nothing", *COUNTED]

FIGURES = {"": ("data.T", "data.n"), "_by_T": ("data.n", "data.T")}
"""End of a figure's name -> what a panel has one value of, and in what its curves differ."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the mean ranks with their spread and the shares of instances without a solution.

    One row per (other varying keys, n, T, d, method, svm_norm); of a method and a norm that no run
    has, none. `used` instances enter the mean; `nothing` is the number without a solution:
    certified infeasible, or, for the published way, without a matrix from the solver (recorded as
    rank 1 and included in the mean).
    """
    trials = frames.rows
    by = [*frames.cells.besides(*X), *X]
    parts = [
        _row_per_cell(instances(trials, norm), by).assign(method=method, svm_norm=norm)
        for method, instances in INSTANCES.items()
        for norm in _solved(trials, method)
    ]
    return {"rank_vs_d": joined(parts, [*by, "method", "svm_norm"])}


def _solved(trials: pd.DataFrame, method: str) -> list[str]:
    """Return the norms of which a run has a solution; all on record if none of certified ones."""
    statuses = {norm: f"{'published_' * (method == 'published')}{norm}_status" for norm in NORMS}
    known = [norm for norm, status in statuses.items() if status in trials]
    some = [norm for norm in known if trials[statuses[norm]].replace("", None).notna().any()]
    return some or known * (method == "certified")


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


INSTANCES = {"certified": _certified, "published": _published}


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return the ranks where n varies, where T does, and the shares without a solution."""
    known = [roles for roles in FIGURES.values() if len(_panels(tables["rank_vs_d"], axes, *roles))]
    figures = {
        f"rank_vs_d{kind}{end}": partial(figure, roles)
        for kind, figure in {"": _ranks, "_infeasible": _shares}.items()
        for end, roles in zip(FIGURES, known, strict=False)  # the first one has the plain name
    }
    return paged(figures, tables, axes, remarks, notes=_small_print, inner=X, cells="rank_vs_d")


def _panels(table: pd.DataFrame, axes: CellAxes, fixed: str, series: str) -> pd.DataFrame:
    """Return the cells of which several `series` have one `fixed`; with n, those without either."""
    n_varies, T_varies = (
        table.groupby(key, dropna=False)[varying].transform("nunique") > 1
        for key, varying in FIGURES.values()
    )
    table = table[n_varies | ~T_varies if series == "data.n" else T_varies].sort_values(
        [fixed, series]
    )
    row, hue = labels(axes, table, [fixed]), labels(axes, table, [series])
    return table.assign(row=row, hue=hue, dash=named(table["svm_norm"], SVMS))


def _ranks(roles: tuple[str, str], tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each method, and a row for each T, or n, if n, or T, varies."""
    table = _panels(tables["rank_vs_d"], axes, *roles)
    table = table.rename(columns=lambda name: name.removeprefix("rank_"))
    table = table.assign(
        col=named(table["method"], METHODS),
        below=table["mean"] - table["std"],
        above=table["mean"] + table["std"],
    )
    norms = values_of(table, "dash")
    fig = curves(
        table,
        "data.d",
        "mean",
        panels=Panel("mean rank" + f" of {norms[0]}" * (len(norms) == 1), "from_zero"),
        whiskers={("below", "above"): 0.7},
        **_LOOK,
    )
    for ax in fig.axes:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return fig


def _shares(roles: tuple[str, str], tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each T, or n; all norms have these shares."""
    table = _panels(tables["rank_vs_d"], axes, *roles).query("method == 'certified'")
    table = table[table["svm_norm"] == table["svm_norm"].min()].assign(used=table["trials"])
    table = table.rename(columns=lambda name: name.removeprefix("nothing_"))
    table = table.rename(columns={"row": "col"}).drop(columns="dash")
    return curves(table, "data.d", "share", panels=Panel("infeasible", "share"), **_LOOK)


_LOOK: Any = {"offset": 0.14, "widen": 0.9}


def _small_print(tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["rank_vs_d"]
    certified, published = (table[table["method"] == method] for method in METHODS)
    parts = [("certified", norm, cells) for norm, cells in certified.groupby("svm_norm")]
    parts += [("published", "", published)] if len(published) else []
    words = CAPTIONS["rank_vs_d_counts"]
    return [words[method].format(norm=norm, **cells[SUMMED].sum()) for method, norm, cells in parts]
