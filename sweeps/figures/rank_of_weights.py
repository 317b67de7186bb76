"""Rank of the trained weights versus the token dimension d, beside that of the SVM solutions."""

from __future__ import annotations

import pandas as pd

from .. import style
from ..facets import Look, Panel, facets, labels, looks_of
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._numbers import certified, means_of, outcomes

X = ("n", "T", "d", "parameterization")
RANKS = {
    "rank_effective": Panel("effective rank\nof the trained weights", "from_zero"),
    "rank_stable": Panel("stable rank\nof the trained weights", "from_zero"),
}
TRAINED = {"w": "trained $W$", "kq": "trained $KQ^T$"}
SVMS = {
    ("frobenius_rank", "w"): r"rank of $W_{\mathrm{mm}}$",
    ("nuclear_rank", "kq"): r"rank of $W^{\star}_{\mathrm{mm}}$",
}
"""An SVM, with the parameterization whose limit it is: its tokens count."""

LOOKS: dict[str, Look] = {
    **looks_of(list(TRAINED.values())),
    SVMS["frobenius_rank", "w"]: {"color": style.INK, "linestyle": (0, (4, 1.6))},
    SVMS["nuclear_rank", "kq"]: {"color": style.INK, "linestyle": (0, (1, 1.4))},
}
APART = 0.13
"""Distance along d between curves."""

NOTE = (
    "Lines: mean over saturated instances whose SVMs are certified; band: its 95 % bootstrap "
    "interval. Effective rank: singular values above the probe's threshold of the largest. Stable "
    "rank: ||W||_F^2 / ||W||_2^2. W_mm is that of the tokens that the trained W selects, W_star_mm "
    "of those that the trained K Q^T selects. Curves are moved sideways a little."
)
CAPTION = (
    "Mean effective and stable rank of the trained W and K Q^T, and certified rank of the SVM "
    "solutions of least Frobenius norm and of least nuclear norm, versus d, for each n and T."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return mean ranks with their intervals, one row per cell and rank, and counts by status."""
    by = [*frames.axes.besides(*X), *X]
    ranks = (*RANKS, *(norm for norm, _ in SVMS))
    return {
        "rank_of_weights": means_of(certified(frames), by, ranks, "rank"),
        "rank_of_weights_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a row of panels for each rank, a column for each (n, T)."""
    table = tables["rank_of_weights"].sort_values(["n", "T"])
    kinds = {(rank, rule): name for rank in RANKS for rule, name in TRAINED.items()} | SVMS
    pairs = zip(table["rank"], table["parameterization"], strict=True)
    order = [SVMS["frobenius_rank", "w"], *TRAINED.values(), SVMS["nuclear_rank", "kq"]]
    table = table.assign(
        curve=pd.Categorical([kinds.get(pair) for pair in pairs], order),
        row=table["rank"].where(table["rank"].isin(RANKS), "rank_effective"),
        column=labels(axes, table, ["n", "T"]),
    )
    return facets(
        table, "d", "mean", hue="curve", row="row", col="column", panels=RANKS, looks=LOOKS,
        x_label="token dimension $d$", ticks=table["d"], apart=APART, size=(3.0, 2.5),
    )[0]  # fmt: skip


draw = Pages("rank_of_weights", CAPTION, _figure, NOTE, x=X).draw
