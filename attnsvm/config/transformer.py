"""The schema of `model=transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnsvm.config.fields import COUNT, POSITIVE, POSITIVE_COUNT, OneOf, option
from attnsvm.config.groups import ModelConfig


class TransformerConfig(ModelConfig, name="transformer", target="Transformer"):
    """Several layers and heads of attention, each trained; every one has an SVM of its own."""

    layers: int = option(2, POSITIVE_COUNT, "number of layers")
    heads: int = option(1, POSITIVE_COUNT, "attention heads of each layer")
    residual: bool = option(True, None, "a layer adds its input: (x + o) / sqrt(2)")
    causal: bool = option(False, None, "position k attends to tokens t <= k only")
    values: str = option(
        "identity", OneOf(("identity", "orthogonal")), "value matrix of every head, at the start"
    )
    mlp: int = option(0, COUNT, "hidden units of the MLP after each layer; 0: none")
    readout: str = option(
        "first",
        OneOf(("first", "mean", "every")),
        "where a prediction is made: at position 0, of the mean of all, at every position",
    )
    trained: str = option(
        "attention",
        OneOf(("attention", "values", "mlp", "head", "all")),
        "what is trained: attention alone, or with values, MLPs, the prediction head, or all",
    )
    rate: float = option(
        0.1,
        POSITIVE,
        "step of values, MLPs and head, as a share of the optimizer's; each along its own "
        "normalised gradient",
    )


INITIAL = ("zero", "uniform", "small")
"""Initial weights that do not depend on the instance."""


def is_transformer(model: Mapping[str, Any]) -> bool:
    """Return whether the fields of `model` are those of a transformer."""
    return bool(model["_target_"] == TransformerConfig._target_)


def one_layer_problems(model: Mapping[str, Any]) -> int:
    """Return how many one-layer problems an instance is: one for each layer and head."""
    return int(model["layers"] * model["heads"]) if is_transformer(model) else 1
