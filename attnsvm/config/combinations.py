"""What the options of a run cannot be combined with: the rules between groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from attnsvm.config import data, groups
from attnsvm.config.fields import ConfigError, shown
from attnsvm.config.norm import families_of
from attnsvm.config.optimizer import NormalizedGDConfig
from attnsvm.config.probe import ExcessRiskConfig, HeldOutConfig, MixtureConfig, SlopeConfig

if TYPE_CHECKING:
    from attnsvm.config.run import RunConfig

Broken = Iterator[tuple[str, str]]
"""What is given, and what must be instead, for every rule that is broken."""


def check_combinations(run: RunConfig) -> None:
    """Raise ConfigError for the first rule that does not hold."""
    for setting, allowed in chain(_of_a_network(run), _of_groups(run), _of_probes(run)):
        raise ConfigError(f"{setting}: {allowed}")


def _get(run: RunConfig, name: str, otherwise: Any = None) -> Any:
    """Return the field that a user types as `name`; `otherwise` if the option does not have it."""
    value: Any = run
    for part in name.split("."):
        value = getattr(value, part, otherwise)
    return value


def _of_groups(run: RunConfig) -> Broken:
    tokens, norms = run.selection.tokens, run.svm.norms
    query, T = _get(run, "model.query", 0), _get(run, "data.T", math.inf)
    if query >= T:
        yield f"model.query={query}", f"must be >= 0 and < data.T={T}"
    batch, n = _get(run, "optimizer.batch"), _get(run, "data.n", math.inf)
    if batch is not None and batch > n and not isinstance(run.model, groups.SequenceConfig):
        yield f"optimizer.batch={batch}", f"must be <= data.n={n}, or null"
    m, d = _get(run, "parameterization.m"), _get(run, "data.d", math.inf)
    if m is not None and m > d:
        yield f"parameterization.m={m}", f"must be >= 1 and <= data.d={d}"
    if m not in (None, d) and tokens in ("multi", "scc") and "nuclear" in norms:
        yield (
            f"parameterization.m={m}",
            f"must be null with selection={tokens} and the nuclear norm: the SVM of several tokens "
            "is solved without a rank constraint; or svm.norms=[frobenius]",
        )
    norm = _get(run, "optimizer.norm", "")
    if "+" in norm and not isinstance(run.parameterization, groups.WConfig):
        yield f"optimizer.norm={norm}", "must be one norm without + for K and Q: only W has a bias"
    if run.hypotheses and _get(run, "head.train"):
        must = "must be [] with head.train=True, which changes the scores"
        yield f"hypotheses={shown(run.hypotheses)}", must
    if "aligned_gradient" in run.hypotheses and tokens == "optimal":
        must = "must be without it with selection=optimal, which has no initial weights"
        yield "hypotheses=[aligned_gradient]", must
    is_pretrained = isinstance(run.data, data.PretrainedConfig)
    if _get(run, "optimizer.init") == "pretrained" and not is_pretrained:
        yield "optimizer.init=pretrained", "data must be pretrained"
    fixed = isinstance(run.head, groups.LinearHeadConfig) and not run.head.train
    if is_pretrained and not (fixed and isinstance(run.model, groups.CrossAttentionConfig)):
        must = "must be with head=linear, head.train=false, model=cross_attention: it has scores"
        yield "data=pretrained", must
    if isinstance(run.head, groups.VocabularyHeadConfig):
        if not isinstance(run.data, data.VocabularyConfig | data.FileConfig):
            must = "data must be token_graph | text, or file with ids: they have next tokens"
            yield "head=vocabulary", must
        if not isinstance(run.loss, groups.LinearLossConfig):
            yield "head=vocabulary", "loss must be linear: minus log softmax is the cross-entropy"
    if run.selection.until_accepted and isinstance(run.data, data.FileConfig):
        must = "must be false with data=file, which has no further instances to draw"
        yield "selection.until_accepted=True", must
    if isinstance(run.data, data.SphereInSpanConfig):
        for part in _depending_on_the_basis(run):
            must = f"must be sphere with the {part}, which changes with the basis"
            yield "data=sphere_in_span", must


def _depending_on_the_basis(run: RunConfig) -> Iterator[str]:
    """Yield norms and classes of which it is not known that they are the same in any basis."""
    for norm in (*run.svm.norms, _get(run, "optimizer.norm", "frobenius")):
        families = families_of(norm) or ()
        entrywise = any(kind == "l" for kind, _ in families)
        if norm != "frobenius" and (entrywise or len(families) > 1):
            yield f"norm {norm}"
    optimizer, rule = run.optimizer, run.parameterization._target_
    replaced = optimizer._target_ != getattr(type(optimizer), "_target_", optimizer._target_)
    if replaced or not getattr(optimizer, "ROTATION_EQUIVARIANT", True):  # absent in a record
        yield f"optimizer {optimizer._target_}"
    if rule not in (groups.WConfig._target_, groups.KQConfig._target_):
        yield f"parameterization {rule}"


def _of_probes(run: RunConfig) -> Broken:
    if run.probe and run.selection.tokens == "optimal":
        must = "must be [] with selection=optimal, which trains nothing"
        yield f"probe=[{','.join(run.probe)}]", must
    for name, probe in run.probe.items():
        if isinstance(probe, HeldOutConfig) and not _get(run, "data.held_out"):
            yield f"probe=[{name}]", "data must be planted, with data.held_out >= 1"
        one_layer = isinstance(probe, HeldOutConfig | MixtureConfig | ExcessRiskConfig)
        if one_layer and isinstance(run.model, groups.TransformerConfig):
            yield f"probe=[{name}]", "must be [] with model=transformer"
        fixed_head = isinstance(probe, HeldOutConfig | ExcessRiskConfig | SlopeConfig)
        if fixed_head and _get(run, "head.train"):
            yield f"probe=[{name}]", "must be [] with head.train=true"


ONE_LAYER: dict[str, tuple[tuple[object, ...], str]] = {
    "selection.tokens": (("top", "multi"), "top | multi: without training a layer has no input"),
    "selection.until_accepted": ((False,), "false: layers of an instance are accepted one by one"),
    "selection.reject_all_positive": ((False,), "false: a layer's samples have scores, not labels"),
    "head.train": ((False, None), "false: model.trained=head trains it"),
    "optimizer.ridge": ((0, None), "0"),
    "optimizer.weight_decay": ((0, None), "0"),
    "optimizer.batch": ((None,), "null"),
    "optimizer.init": (groups.INITIAL, " | ".join(groups.INITIAL)),
    "parameterization._target_": ((groups.WConfig._target_, groups.KQConfig._target_), "w | kq"),
    "hypotheses": (([],), "[]: they are about one layer"),
    "keep_path": ((False,), "false"),
    "optimizer._target_": ((NormalizedGDConfig._target_,), "normalized_gd"),
}
"""Field -> its values that a transformer allows, None where it is absent; and what is allowed."""


def _of_a_network(run: RunConfig) -> Broken:
    model: Any = run.model
    if not isinstance(model, groups.TransformerConfig):
        return
    broken = {
        name: must for name, (values, must) in ONE_LAYER.items() if _get(run, name) not in values
    }
    if model.trained != "attention" and _get(run, "optimizer.gradient") == "direct":
        exact = "log_domain: only attention is trained with the ordinary gradient"
        broken["optimizer.gradient"] = exact
    if run.objective is not None and groups.one_layer_problems(vars(model)) > 1:
        broken["objective"] = "null: it would pool layers and heads"
    for name, must in broken.items():
        value = shown(_get(run, name))
        if name.endswith("._target_"):
            name, value = name.removesuffix("._target_"), value.rpartition(".")[2]
        yield f"{name}={value}", f"must be {must}, with model=transformer"
