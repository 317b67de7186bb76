"""The schema of `model=transformer`, and what it cannot be combined with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnsvm.config.fields import (
    COUNT,
    POSITIVE,
    POSITIVE_COUNT,
    ConfigError,
    OneOf,
    option,
)
from attnsvm.config.groups import KQConfig, ModelConfig, WConfig
from attnsvm.config.optimizer import NormalizedGDConfig


@dataclass
class TransformerConfig(ModelConfig):
    """Several layers and heads of attention, each trained; every one has an SVM of its own."""

    _target_: str = "attnsvm.model.Transformer"
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


def check_combination(run: Any) -> None:
    """Raise ConfigError if a RunConfig with model=transformer has what it does not support."""
    optimizer, selection = run.optimizer, run.selection
    refused: list[tuple[bool, str, object, str]] = [
        (
            selection.tokens == "optimal",
            "selection.tokens",
            selection.tokens,
            "top | multi: without training a layer has no input",
        ),
        (
            selection.until_accepted,
            "selection.until_accepted",
            True,
            "false: the layers of an instance are accepted one by one",
        ),
        (
            selection.reject_all_positive,
            "selection.reject_all_positive",
            True,
            "false: the samples of a layer have scores, not labels",
        ),
        (
            run.model.causal and run.model.readout == "first",
            "model.readout",
            "first",
            "mean | every with model.causal=true: position 0 attends to itself alone",
        ),
        (run.model.trained == "mlp" and not run.model.mlp, "model.mlp", 0, ">= 1 to be trained"),
        (bool(_of(run.head, "train")), "head.train", True, "false: model.trained=head trains it"),
        (
            optimizer._target_ != NormalizedGDConfig._target_,
            "optimizer",
            optimizer._target_.rpartition(".")[2],
            "normalized_gd",
        ),
        (
            run.model.trained != "attention" and _of(optimizer, "gradient") == "direct",
            "optimizer.gradient",
            "direct",
            "log_domain: only attention is trained with the ordinary gradient",
        ),
        (bool(_of(optimizer, "ridge")), "optimizer.ridge", _of(optimizer, "ridge"), "0"),
        (
            _of(optimizer, "init") not in INITIAL,
            "optimizer.init",
            _of(optimizer, "init"),
            " | ".join(INITIAL),
        ),
        (
            run.parameterization._target_ not in (WConfig._target_, KQConfig._target_),
            "parameterization",
            run.parameterization._target_,
            "w | kq",
        ),
        (
            bool(run.hypotheses),
            "hypotheses",
            f"[{','.join(run.hypotheses)}]",
            "[]: they are about one layer",
        ),
        (run.keep_path, "keep_path", True, "false"),
        (
            run.objective is not None and one_layer_problems(vars(run.model)) > 1,
            "objective",
            run.objective,
            "null: it would pool layers and heads",
        ),
    ]
    for holds, name, value, allowed in refused:
        if holds:
            raise ConfigError(f"{name}={value}: must be {allowed}, with model=transformer")


def _of(node: Any, name: str) -> Any:
    return getattr(node, name, None)
