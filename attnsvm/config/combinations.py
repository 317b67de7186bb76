"""What the options of a run cannot be combined with: the rules between groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attnsvm.config import groups
from attnsvm.config.fields import ConfigError
from attnsvm.config.norm import is_entrywise
from attnsvm.config.optimizer import NormalizedGDConfig
from attnsvm.config.probe import ExcessRiskConfig, HeldOutConfig, MixtureConfig

if TYPE_CHECKING:
    from attnsvm.config.run import RunConfig

Rule = tuple[object, str, str]
"""Whether it is broken; what is given; and what must be instead."""


def check_combinations(run: RunConfig) -> None:
    """Raise ConfigError for the first rule that does not hold."""
    for rules in (_of_a_network, _of_groups, _of_probes):
        for broken, given, allowed in rules(run):
            if broken:
                raise ConfigError(f"{given}: {allowed}")


def _get(run: RunConfig, name: str, otherwise: Any = None) -> Any:
    """Return the field that a user types as `name`; `otherwise` if the option does not have it."""
    value: Any = run
    for part in name.split("."):
        value = getattr(value, part, otherwise)
    return value


def _of_groups(run: RunConfig) -> Iterator[Rule]:
    tokens, norms = run.selection.tokens, run.svm.norms
    query, T = _get(run, "model.query", 0), _get(run, "data.T", math.inf)
    yield query >= T, f"model.query={query}", f"must be >= 0 and < data.T={T}"
    m, d = _get(run, "parameterization.m"), _get(run, "data.d", math.inf)
    yield m is not None and m > d, f"parameterization.m={m}", f"must be >= 1 and <= data.d={d}"
    ranks = "the SVM of several tokens is solved without a rank constraint"
    yield (
        m not in (None, d) and tokens == "multi" and "nuclear" in norms,
        f"parameterization.m={m}",
        f"must be null with selection=multi and the nuclear norm: {ranks}; or "
        "svm.norms=[frobenius]",
    )
    yield (
        run.hypotheses and _get(run, "head.train"),
        f"hypotheses=[{','.join(run.hypotheses)}]",
        "must be [] with head.train=True, which changes the scores",
    )
    yield (
        "aligned_gradient" in run.hypotheses and tokens == "optimal",
        "hypotheses=[aligned_gradient]",
        "must be without it with selection=optimal, which has no initial weights",
    )
    start, is_pretrained = (
        _get(run, "optimizer.init"),
        isinstance(run.data, groups.PretrainedConfig),
    )
    broken = start == "pretrained" and not is_pretrained
    yield broken, "optimizer.init=pretrained", "data must be pretrained"
    yield (
        run.selection.until_accepted and isinstance(run.data, groups.FileConfig),
        "selection.until_accepted=True",
        "must be false with data=file, which has no further instances to draw",
    )
    if isinstance(run.data, groups.SphereInSpanConfig):
        rule = _get(run, "optimizer._target_").rpartition(".")[2]
        all_norms = [*norms, _get(run, "optimizer.norm", "frobenius")]
        entrywise = [name for name in all_norms if name != "frobenius" and is_entrywise(name)]
        what = f"norm {entrywise[0]}" if entrywise else f"optimizer {rule}"
        broken = bool(entrywise) or rule in ("SignGD", "Adam", "MirrorDescent")
        must = f"must be sphere with the {what}, which changes with the basis"
        yield broken, "data=sphere_in_span", must


def _of_probes(run: RunConfig) -> Iterator[Rule]:
    broken = run.probe and run.selection.tokens == "optimal"
    listed = f"probe=[{','.join(run.probe)}]"
    yield broken, listed, "must be [] with selection=optimal, which trains nothing"
    is_network, trains_head = (
        isinstance(run.model, groups.TransformerConfig),
        _get(run, "head.train"),
    )
    for name, probe in run.probe.items():
        given, held_out = f"probe=[{name}]", isinstance(probe, HeldOutConfig)
        broken = held_out and not _get(run, "data.held_out")
        yield broken, given, "data must be planted, with data.held_out >= 1"
        one_layer = isinstance(probe, HeldOutConfig | MixtureConfig | ExcessRiskConfig)
        yield one_layer and is_network, given, "must be [] with model=transformer"
        fixed_head = isinstance(probe, HeldOutConfig | ExcessRiskConfig)
        yield fixed_head and trains_head, given, "must be [] with head.train=true"


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
    "optimizer.init": (groups.INITIAL, " | ".join(groups.INITIAL)),
    "parameterization._target_": ((groups.WConfig._target_, groups.KQConfig._target_), "w | kq"),
    "hypotheses": (([],), "[]: they are about one layer"),
    "keep_path": ((False,), "false"),
    "optimizer._target_": ((NormalizedGDConfig._target_,), "normalized_gd"),
}
"""Field -> its values that a transformer allows, None where it is absent; and what is allowed."""


def _of_a_network(run: RunConfig) -> Iterator[Rule]:
    model: Any = run.model
    if not isinstance(model, groups.TransformerConfig):
        return
    rules = [
        (_get(run, name) not in values, name, must) for name, (values, must) in ONE_LAYER.items()
    ]
    mean = "mean | every with model.causal=true: position 0 attends to itself alone"
    rules += [(model.causal and model.readout == "first", "model.readout", mean)]
    rules += [(model.trained == "mlp" and not model.mlp, "model.mlp", ">= 1 to be trained")]
    broken = model.trained != "attention" and _get(run, "optimizer.gradient") == "direct"
    exact = "log_domain: only attention is trained with the ordinary gradient"
    rules += [(broken, "optimizer.gradient", exact)]
    broken = run.objective is not None and groups.one_layer_problems(vars(model)) > 1
    rules += [(broken, "objective", "null: it would pool layers and heads")]
    for broken, name, must in rules:
        value = _get(run, name)
        shown = f"[{','.join(value)}]" if isinstance(value, list) else str(value)
        if name.endswith("._target_"):
            name, shown = name.removesuffix("._target_"), shown.rpartition(".")[2]
        yield broken, f"{name}={shown}", f"must be {must}, with model=transformer"
