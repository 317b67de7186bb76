"""What the options of a run cannot be combined with: the rules between groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attnsvm.config.fields import ConfigError
from attnsvm.config.groups import (
    FileConfig,
    KQConfig,
    PretrainedConfig,
    SphereInSpanConfig,
    WConfig,
)
from attnsvm.config.norm import is_entrywise
from attnsvm.config.optimizer import NormalizedGDConfig
from attnsvm.config.probe import ExcessRiskConfig, HeldOutConfig, MixtureConfig, ProbeConfig
from attnsvm.config.transformer import INITIAL, TransformerConfig, one_layer_problems

if TYPE_CHECKING:
    from attnsvm.config.run import RunConfig


def check_combinations(run: RunConfig) -> None:
    """Raise ConfigError for the first rule that does not hold."""
    if isinstance(run.model, TransformerConfig):
        _check_transformer(run)
    query, T = _get(run, "model.query", 0), _get(run, "data.T", math.inf)
    _refuse(query >= T, f"model.query={query}", f">= 0 and < data.T={T}")
    m, d = _get(run, "parameterization.m"), _get(run, "data.d", math.inf)
    _refuse(m is not None and m > d, f"parameterization.m={m}", f">= 1 and <= data.d={d}")
    tokens = run.selection.tokens
    _refuse(
        m not in (None, d) and tokens == "multi" and "nuclear" in run.svm.norms,
        f"parameterization.m={m}",
        "null with selection=multi and the nuclear norm: the SVM of several tokens is solved "
        "without a rank constraint; or svm.norms=[frobenius]",
    )
    untrained = "[] with selection=optimal, which trains nothing"
    _refuse(run.probe and tokens == "optimal", f"probe=[{','.join(run.probe)}]", untrained)
    _refuse(
        run.hypotheses and _get(run, "head.train"),
        f"hypotheses=[{','.join(run.hypotheses)}]",
        "[] with head.train=True, which changes the scores",
    )
    _refuse(
        "aligned_gradient" in run.hypotheses and tokens == "optimal",
        "hypotheses=[aligned_gradient]",
        "without it with selection=optimal, which has no initial weights",
    )
    if _get(run, "optimizer.init") == "pretrained" and not isinstance(run.data, PretrainedConfig):
        raise ConfigError("optimizer.init=pretrained: data must be pretrained")
    for name, probe in run.probe.items():
        _check_probe(run, name, probe)
    if isinstance(run.data, SphereInSpanConfig):
        _check_in_span(run)
    _refuse(
        run.selection.until_accepted and isinstance(run.data, FileConfig),
        "selection.until_accepted=True",
        "false with data=file, which has no further instances to draw",
    )


def _refuse(wrong: object, given: str, allowed: str) -> None:
    """Raise ConfigError if `wrong`: what is `given` must be `allowed`."""
    if wrong:
        raise ConfigError(f"{given}: must be {allowed}")


def _get(run: RunConfig, name: str, otherwise: Any = None) -> Any:
    """Return the field that a user types as `name`; `otherwise` if the option does not have it."""
    value: Any = run
    for part in name.split("."):
        value = getattr(value, part, otherwise)
    return value


def _check_probe(run: RunConfig, name: str, probe: ProbeConfig) -> None:
    given = f"probe=[{name}]"
    if isinstance(probe, HeldOutConfig) and not _get(run, "data.held_out"):
        raise ConfigError(f"{given}: data must be planted, with data.held_out >= 1")
    if isinstance(probe, HeldOutConfig | MixtureConfig | ExcessRiskConfig):
        network = isinstance(run.model, TransformerConfig)
        _refuse(network, given, "[] with model=transformer")
    if isinstance(probe, HeldOutConfig | ExcessRiskConfig):
        _refuse(_get(run, "head.train"), given, "[] with head.train=true")


def _check_in_span(run: RunConfig) -> None:
    """Raise ConfigError if anything changes with the basis of the span."""
    rule = _get(run, "optimizer._target_", "").rpartition(".")[2]
    norms = [*run.svm.norms, _get(run, "optimizer.norm", "frobenius")]
    entrywise = [name for name in norms if name != "frobenius" and is_entrywise(name)]
    what = f"norm {entrywise[0]}" if entrywise else f"optimizer {rule}"
    _refuse(
        entrywise or rule in ("SignGD", "Adam", "MirrorDescent"),
        "data=sphere_in_span",
        f"sphere with the {what}, which changes with the basis",
    )


ONE_LAYER: dict[str, tuple[tuple[object, ...], str]] = {
    "selection.tokens": (("top", "multi"), "top | multi: without training a layer has no input"),
    "selection.until_accepted": (
        (False,),
        "false: the layers of an instance are accepted one by one",
    ),
    "selection.reject_all_positive": (
        (False,),
        "false: the samples of a layer have scores, not labels",
    ),
    "head.train": ((False, None), "false: model.trained=head trains it"),
    "optimizer.ridge": ((0, None), "0"),
    "optimizer.init": (INITIAL, " | ".join(INITIAL)),
    "parameterization._target_": ((WConfig._target_, KQConfig._target_), "w | kq"),
    "hypotheses": (([],), "[]: they are about one layer"),
    "keep_path": ((False,), "false"),
}
"""Field -> its values that a transformer allows, None where it is absent; and what is allowed."""


def _check_transformer(run: RunConfig) -> None:
    """Raise ConfigError if the run has what a transformer does not support."""
    model: Any = run.model
    for name, (values, allowed) in ONE_LAYER.items():
        refused = _get(run, name) not in values
        _refuse_network(refused, name.removesuffix("._target_"), _get(run, name), allowed)
    optimizer = _get(run, "optimizer._target_", "")
    _refuse_network(
        optimizer != NormalizedGDConfig._target_,
        "optimizer",
        optimizer.rpartition(".")[2],
        "normalized_gd",
    )
    _refuse_network(
        model.causal and model.readout == "first",
        "model.readout",
        "first",
        "mean | every with model.causal=true: position 0 attends to itself alone",
    )
    _refuse_network(model.trained == "mlp" and not model.mlp, "model.mlp", 0, ">= 1 to be trained")
    _refuse_network(
        model.trained != "attention" and _get(run, "optimizer.gradient") == "direct",
        "optimizer.gradient",
        "direct",
        "log_domain: only attention is trained with the ordinary gradient",
    )
    _refuse_network(
        run.objective is not None and one_layer_problems(vars(model)) > 1,
        "objective",
        run.objective,
        "null: it would pool layers and heads",
    )


def _refuse_network(wrong: object, name: str, value: object, allowed: str) -> None:
    shown = f"[{','.join(value)}]" if isinstance(value, list) else value
    _refuse(wrong, f"{name}={shown}", f"{allowed}, with model=transformer")
