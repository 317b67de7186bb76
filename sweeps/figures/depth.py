"""Several layers: each against the SVM of its own input, over the steps, and why one is not."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .. import style
from ..facets import named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._layers import RULES, cause_counts, keys_of, over_steps, over_steps_and_causes
from ._numbers import outcomes

X = ("parameterization", "residual", "layers", "layer")
STYLES = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)))
"""Lines of networks of 1, 2, 3, ... layers."""

CAPTION = (
    "Median 1-correlation of every layer with the SVM of its own input, and its margin gap, over "
    "the steps: least Frobenius norm for W, least nuclear norm for (K, Q). Below: how the layers "
    "ended. Left to right: W and (K, Q), with and without a residual connection."
)
NOTE = (
    "Curves: median of the saturated rows whose SVM is certified, band: its 95 % bootstrap "
    "interval. A row is one layer of one instance. Unseen positions pull: at least 1 % of the last "
    "gradient comes from positions that the readout does not see. Dotted: 1e-3."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the medians over the steps, how rows ended, and the counts by status."""
    keys = keys_of(frames, *X)
    return {
        "depth": over_steps(frames, keys),
        "depth_causes": cause_counts(frames, keys),
        "depth_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    curves, causes = (_with_names(tables[name]) for name in ("depth", "depth_causes"))
    looks: dict[str, dict[str, Any]] = {
        f"layer {layer} of {layers}": {
            "color": style.PALETTE[layer % len(style.PALETTE)],
            "linestyle": STYLES[(layers - 1) % len(STYLES)],
        }
        for layers, layer in curves[["layers", "layer"]].drop_duplicates().to_numpy().tolist()
    }
    return over_steps_and_causes(
        curves, causes, looks, "layers of the network, and layer", (2.9, 2.4)
    )


def _with_names(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the names of its columns of panels, curves and bars."""
    table = table.sort_values(["layers", "layer"])
    pairs = [(rule, residual) for rule in RULES for residual in (True, False)]
    columns = {
        pair: f"{RULES[pair[0]]}, {'residual' if pair[1] else 'no residual'}" for pair in pairs
    }
    layers, layer = (table[name].astype(str) for name in ("layers", "layer"))
    pair = pd.Series(list(zip(table["parameterization"], table["residual"], strict=True)),
                     index=table.index, dtype=object)  # fmt: skip
    return table.assign(
        column=named(pair, columns), curve="layer " + layer + " of " + layers,
        bar=layers + "\n" + layer,
    )  # fmt: skip


draw = Pages("depth", CAPTION, _figure, NOTE, x=X).draw
