"""What the readout sees of the input as a network gets deeper, and the rank of each layer."""

import pandas as pd

from ..facets import facets, named, panel_of, panels_of, whiskers
from ..notation import RULES
from . import CellAxes, Figure, Pages, SweepFrames, Tables, paged
from ._networks import NORMS, of_its_norm, with_layers
from ._numbers import means_of, outcomes

X = ("parameterization", "layers", "layer")
RANKS = panels_of("rank_stable", "svm_rank")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the means of each measure by layer, and the counts by status."""
    trials = with_layers(frames.trials)
    trials = trials[trials["status"] == "ok"]
    ranks = {rule: f"{norm}_rank" for rule, norm in NORMS.items()}
    trials = trials.assign(svm_rank=of_its_norm(trials, ranks))
    keys = [*frames.axes.besides(*X), *X]
    return {
        "composition": means_of(trials, keys, ("positions_seen", *RANKS), "measure"),
        "composition_counts": outcomes(frames.trials, frames.axes),
    }


def _seen(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["composition"]
    table = table[(table["measure"] == "positions_seen") & (table["layer"] == 0)]
    table = table.assign(rule=named(table["parameterization"], RULES))
    return facets(
        table, "layers", "mean", hue="rule", panels=panel_of("positions_seen"),
        x_label="layers of the network", ticks=table["layers"], apart=0.06, mark=whiskers,
        nothing="no certified row",
    )[0]  # fmt: skip


def _ranks(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["composition"]
    depths = {n: "1 layer" if n == 1 else f"{n} layers" for n in sorted(table["layers"].unique())}
    table = table[table["measure"].isin(RANKS)]
    table = table.assign(
        rule=named(table["parameterization"], RULES), depth=named(table["layers"], depths)
    )
    return facets(
        table, "layer", "mean", hue="depth", row="measure", col="rule", panels=RANKS,
        x_label="layer", ticks=table["layer"], apart=0.06, height=1.4, mark=whiskers,
        nothing="no certified row",
    )[0]  # fmt: skip


draw = paged(Pages("composition", _seen, x=X), Pages("composition_ranks", _ranks, x=X))
