"""What the readout sees of the input as a network gets deeper, and the rank of each layer."""

from __future__ import annotations

import pandas as pd

from .. import statistics
from ..facets import Panel, facets, named, whiskers
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._networks import NORMS, RULES, keys_of, of_its_norm, with_layers
from ._numbers import outcomes

X = ("parameterization", "layers", "layer")
PANELS = {
    "positions_seen": Panel("positions seen\nby the readout", "from_zero"),
    "rank_stable": Panel("stable rank of\nthe trained weights", "from_zero"),
    "svm_rank": Panel("rank of the SVM", "from_zero"),
}
CAPTION = (
    "Mean number of positions at the input of each layer that the readout sees, stable rank of its "
    "weights, and certified rank of the SVM of its input (least Frobenius norm for W, nuclear "
    "norm for (K, Q)), for networks of several depths."
)
NOTE = (
    "Points: mean over the rows with status ok (one for each layer of an instance), bar: its 95 % "
    "bootstrap interval. Layer 0 reads the tokens; the readout is at one position of each sequence."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the means of each measure by layer, and the counts by status."""
    trials = with_layers(frames.trials)
    trials = trials[trials["status"] == "ok"]
    ranks = {rule: f"{norm}_rank" for rule, norm in NORMS.items()}
    trials = trials.assign(svm_rank=of_its_norm(trials, ranks))
    keys = keys_of(frames, *X)
    parts = [statistics.summaries(trials, keys, name).assign(measure=name) for name in PANELS]
    return {
        "composition": pd.concat(parts, ignore_index=True),
        "composition_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["composition"]
    depths = {n: "1 layer" if n == 1 else f"{n} layers" for n in sorted(table["layers"].unique())}
    table = table.assign(
        rule=named(table["parameterization"], RULES), depth=named(table["layers"], depths)
    )
    return facets(
        table, "layer", "mean", hue="depth", row="measure", col="rule", panels=PANELS,
        x_label="layer", ticks=table["layer"], apart=0.06, size=(3.1, 1.9), mark=whiskers,
        nothing="no certified row",
    )[0]  # fmt: skip


draw = Pages("composition", CAPTION, _figure, NOTE, x=X).draw
