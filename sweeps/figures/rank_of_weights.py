"""Rank of the trained weights versus the token dimension d, beside that of the SVM solutions."""

from functools import partial

import pandas as pd

from .. import notation, style
from ..facets import Look, facets, labels, looks_of, panels_of
from . import CellAxes, Figure, Pages, SweepFrames, Tables, paged
from ._numbers import certified, means_of, outcomes

X = ("n", "T", "d", "parameterization")
RANKS = panels_of("rank_effective", "rank_stable")
TRAINED = {"w": "trained $W$", "kq": r"trained $KQ^\top$"}
SVMS = {
    ("frobenius_rank", "w"): notation.column("frobenius_rank"),
    ("nuclear_rank", "kq"): notation.column("nuclear_rank"),
}
"""An SVM, with the parameterization whose limit it is: its tokens count."""

LOOKS: dict[str, Look] = {
    **looks_of(list(TRAINED.values())),
    SVMS["frobenius_rank", "w"]: {"color": style.INK, "linestyle": (0, (4, 1.6))},
    SVMS["nuclear_rank", "kq"]: {"color": style.INK, "linestyle": (0, (1, 1.4))},
}


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return mean ranks with their intervals, one row per cell and rank, and counts by status."""
    by = [*frames.axes.besides(*X), *X]
    ranks = (*RANKS, *(norm for norm, _ in SVMS))
    return {
        "rank_of_weights": means_of(certified(frames), by, ranks, "rank"),
        "rank_of_weights_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(rank: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each (n, T)."""
    table = tables["rank_of_weights"].sort_values(["n", "T"])
    kinds = {(rank, rule): name for rule, name in TRAINED.items()}
    kinds |= SVMS if rank == "rank_effective" else {}
    pairs = zip(table["rank"], table["parameterization"], strict=True)
    names = [SVMS["frobenius_rank", "w"], *TRAINED.values(), SVMS["nuclear_rank", "kq"]]
    shown = [name for name in names if name in kinds.values()]
    table = table.assign(
        curve=pd.Categorical([kinds.get(pair) for pair in pairs], shown),
        column=labels(axes, table, ["n", "T"]),
    )
    return facets(
        table, "d", "mean", hue="curve", col="column", panels=RANKS[rank], looks=LOOKS,
        x_label=notation.column("d"), ticks=table["d"], apart=0.13,
    )[0]  # fmt: skip


draw = paged(
    Pages("rank_of_weights", partial(_figure, "rank_effective"), x=X),
    Pages("rank_of_weights_stable", partial(_figure, "rank_stable"), x=X),
)
