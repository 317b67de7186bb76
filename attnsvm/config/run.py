"""The schema of a run: every field with its default, its unit and its range.

Group name = folder in `conf/` = module or package in `attnsvm/` = field of `RunConfig`. Defaults
are set in the schema only. No slow import: a command line is checked before torch is loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from omegaconf import MISSING

from attnsvm.config import groups
from attnsvm.config import optimizer as optimizers
from attnsvm.config import probe as probes
from attnsvm.config.fields import (
    POSITIVE_COUNT,
    SEEDS,
    ConfigError,
    Group,
    ListOf,
    OneOf,
    Range,
    check_fields,
    option,
)
from attnsvm.config.hypotheses import HYPOTHESES
from attnsvm.config.norm import NormName, is_entrywise
from attnsvm.config.plugins import Options
from attnsvm.config.transformer import TransformerConfig, check_combination

# --- selection: which tokens the SVM separates ---------------------------------------------------


@dataclass
class SelectionConfig(Group):
    """Which tokens the SVM separates from the rest, and which instances are excluded."""

    GROUP = "selection"
    tokens: str = option(
        "top",
        OneOf(("top", "optimal", "multi")),
        "top: the token of largest softmax; optimal: argmax score, no training; "
        "multi: all tokens with softmax >= attended",
    )
    saturation: float = option(
        0.999, Range(0, 1), "an instance whose smallest top softmax is below this is unsaturated"
    )
    settled: float = option(
        1e-4,
        Range(0, 1),
        "1 - correlation of W with W half-way up to which its direction is settled",
    )
    attended: float = option(1e-3, Range(0, 1, open=True), "smallest softmax of an attended token")
    negligible: float = option(
        1e-6, Range(0, 1, open=True), "largest softmax of an unattended token"
    )
    reject_all_positive: bool = option(
        False, None, "multi: reject instances whose labels are all +1, as published"
    )
    until_accepted: bool = option(
        False, None, "multi: draw further seeds until `trials` instances are accepted"
    )
    keep_stalled: bool = option(False, None, "keep stalled runs as data points, as published")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negligible > self.attended:
            raise ConfigError(
                f"selection.negligible={self.negligible}: must be <= attended={self.attended}"
            )
        if self.until_accepted and self.tokens != "multi":
            raise ConfigError(
                f"selection.until_accepted=True: must be false with "
                f"selection.tokens={self.tokens}, which rejects no instance"
            )


# --- svm: the problems to solve, and the accuracy ------------------------------------------------


@dataclass
class SvmConfig(Group):
    """Which attention SVMs are solved."""

    GROUP = "svm"
    norms: list[str] = option(["frobenius", "nuclear"], ListOf(NormName()), "norms to minimise")
    gap: float = option(1e-9, Range(1e-12, 1e-2), "largest relative duality gap of `solved`")
    rank_tolerance: float = option(
        1e-6, Range(0, 1, open=True, below=True), "rank: sigma > this * sigma_1"
    )
    published: bool = option(
        False, None, "also solve as the published scripts do: default tolerances, rank at 1e-7"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        others = [norm for norm in self.norms if norm not in PUBLISHED]
        if self.published and others:
            raise ConfigError(
                f"svm.norms=[{','.join(self.norms)}]: must be {' | '.join(PUBLISHED)} with "
                f"svm.published=True: no published script has {others[0]}"
            )


PUBLISHED = ("frobenius", "nuclear")
"""Norms whose SVM the published scripts solve."""


# --- the run -------------------------------------------------------------------------------------


@dataclass
class RunConfig:
    """One run: a batch of instances, trained, separated, compared and recorded."""

    model: groups.ModelConfig = MISSING
    parameterization: groups.ParameterizationConfig = MISSING
    head: groups.HeadConfig = MISSING
    data: groups.DataConfig = MISSING
    optimizer: optimizers.OptimizerConfig = MISSING
    loss: groups.LossConfig = MISSING
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    svm: SvmConfig = dataclasses.field(default_factory=SvmConfig)
    probe: dict[str, probes.ProbeConfig] = dataclasses.field(default_factory=dict)
    sweep: str | None = option(None, None, "name of the experiment that this run belongs to")
    question: str | None = option(None, None, "question of the experiment, shown in its report")
    trials: int = option(100, POSITIVE_COUNT, "number of instances")
    seed: int = option(0, SEEDS, "seed of the first instance; instance i has seed + i")
    hypotheses: list[str] = option(
        [],
        ListOf(OneOf(tuple(HYPOTHESES)), empty=True),
        "hypotheses of theorems to decide for every instance, each a column",
    )
    keep_path: bool = option(False, None, "store the weights and softmax of every snapshot")
    objective: str | None = option(
        None, None, "number that a job returns to a sweeper: mean(COLUMN) | median(COLUMN) of the "
        "instances with status ok, or share(COLUMN=WORD) of all"
    )  # fmt: skip
    device: str = option("auto", OneOf(("auto", "cpu", "cuda")), "device of the tensors")
    extensions: list[str] = option([], None, "packages, besides attnsvm, that `_target_` may name")
    mixed_code: bool = option(False, None, "add to a folder whose records were made by other code")
    dry_run: bool = option(False, None, "list the runs and estimate their time; run nothing")

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_across_groups()

    def _check_across_groups(self) -> None:
        if isinstance(self.model, TransformerConfig):
            check_combination(self)
        T, d = getattr(self.data, "T", None), getattr(self.data, "d", None)
        query, m = getattr(self.model, "query", None), getattr(self.parameterization, "m", None)
        if query is not None and T is not None and query >= T:
            raise ConfigError(f"model.query={query}: must be >= 0 and < data.T={T}")
        if m is not None and d is not None and m > d:
            raise ConfigError(f"parameterization.m={m}: must be >= 1 and <= data.d={d}")
        if self.probe and self.selection.tokens == "optimal":
            named = ",".join(self.probe)
            raise ConfigError(
                f"probe=[{named}]: must be [] with selection=optimal, which trains nothing"
            )
        low_rank = m is not None and m != d and self.selection.tokens == "multi"
        if low_rank and "nuclear" in self.svm.norms:
            raise ConfigError(
                f"parameterization.m={m}: must be null with selection=multi and the nuclear norm: "
                "the SVM of several tokens is solved without a rank constraint; or svm.norms="
                "[frobenius]"
            )
        if self.hypotheses and getattr(self.head, "train", False):
            raise ConfigError(
                f"hypotheses=[{','.join(self.hypotheses)}]: must be [] with head.train=True, which "
                "changes the scores"
            )
        if "aligned_gradient" in self.hypotheses and self.selection.tokens == "optimal":
            raise ConfigError(
                "hypotheses=[aligned_gradient]: must be without it with selection=optimal, which "
                "has no initial weights"
            )
        init = getattr(self.optimizer, "init", None)
        if init == "pretrained" and not isinstance(self.data, groups.PretrainedConfig):
            raise ConfigError("optimizer.init=pretrained: data must be pretrained")
        if any(isinstance(one, probes.HeldOutConfig) for one in self.probe.values()):
            self._check_held_out()
        self._check_known_scores()
        if isinstance(self.data, groups.SphereInSpanConfig):
            self._check_in_span()
        if self.selection.until_accepted and isinstance(self.data, groups.FileConfig):
            raise ConfigError(
                "selection.until_accepted=True: must be false with data=file, which has no "
                "further instances to draw"
            )

    def _check_in_span(self) -> None:
        """Raise ConfigError if anything changes with the basis."""
        rule = self.optimizer._target_.rpartition(".")[2]
        norms = [*self.svm.norms, getattr(self.optimizer, "norm", "frobenius")]
        entrywise = [name for name in norms if name != "frobenius" and is_entrywise(name)]
        if entrywise or rule in ("SignGD", "Adam", "MirrorDescent"):
            what = f"norm {entrywise[0]}" if entrywise else f"optimizer {rule}"
            raise ConfigError(
                f"data=sphere_in_span: must be sphere with the {what}, which changes with the basis"
            )

    def _check_known_scores(self) -> None:
        """Raise ConfigError if a probe follows from scores that the run does not have or keep."""
        for name, one in self.probe.items():
            excess = isinstance(one, probes.ExcessRiskConfig)
            if not excess and not isinstance(one, probes.MixtureConfig):
                continue
            if isinstance(self.model, TransformerConfig):
                raise ConfigError(f"probe=[{name}]: must be [] with model=transformer")
            if excess and getattr(self.head, "train", False):
                raise ConfigError(f"probe=[{name}]: must be [] with head.train=true")

    def _check_held_out(self) -> None:
        if not getattr(self.data, "held_out", 0):
            raise ConfigError("probe=[held_out]: data must be planted, with data.held_out >= 1")
        if isinstance(self.model, TransformerConfig):
            raise ConfigError("probe=[held_out]: must be [] with model=transformer")
        if getattr(self.head, "train", False):
            raise ConfigError("probe=[held_out]: must be [] with head.train=true")


OWN: dict[str, tuple[type, dict[str, type]]] = {
    "model": (
        groups.ModelConfig,
        {
            "cross_attention": groups.CrossAttentionConfig,
            "self_attention": groups.SelfAttentionConfig,
            "sequence": groups.SequenceConfig,
            "transformer": TransformerConfig,
        },
    ),
    "parameterization": (
        groups.ParameterizationConfig,
        {"w": groups.WConfig, "kq": groups.KQConfig},
    ),
    "head": (
        groups.HeadConfig,
        {
            "linear": groups.LinearHeadConfig,
            "relu": groups.ReluHeadConfig,
            "quadratic": groups.QuadraticHeadConfig,
            "mlp": groups.MlpHeadConfig,
        },
    ),
    "data": (
        groups.DataConfig,
        {
            "sphere": groups.SphereConfig,
            "orthonormal": groups.OrthonormalConfig,
            "prompt": groups.PromptConfig,
            "planted": groups.PlantedConfig,
            "sphere_in_span": groups.SphereInSpanConfig,
            "paths_far": groups.PathsFarConfig,
            "paths_near": groups.PathsNearConfig,
            "file": groups.FileConfig,
            "digits": groups.DigitsConfig,
            "pretrained": groups.PretrainedConfig,
        },
    ),
    "optimizer": (
        optimizers.OptimizerConfig,
        {
            "normalized_gd": optimizers.NormalizedGDConfig,
            "gd": optimizers.GDConfig,
            "safe_gd": optimizers.SafeGDConfig,
            "polyak": optimizers.PolyakConfig,
            "momentum": optimizers.MomentumConfig,
            "adam": optimizers.AdamConfig,
            "sign_gd": optimizers.SignGDConfig,
            "steepest": optimizers.SteepestConfig,
            "muon": optimizers.MuonConfig,
            "mirror_descent": optimizers.MirrorDescentConfig,
            "regularization_path": optimizers.RegularizationPathConfig,
        },
    ),
    "loss": (
        groups.LossConfig,
        {
            "logistic": groups.LogisticLossConfig,
            "exponential": groups.ExponentialLossConfig,
            "linear": groups.LinearLossConfig,
            "squared": groups.SquaredLossConfig,
        },
    ),
}
"""The base of every group that has several implementations, and attnsvm's own options."""

GROUPS = {group: Options(group, base, own) for group, (base, own) in OWN.items()}
"""Every option of these groups, those of plug-ins included, by the name a user types."""

PROBES = Options("probe", probes.ProbeConfig, probes.OWN)
"""Every probe, those of plug-ins included; a run has any number of them."""

WITHOUT_EFFECT = ("device", "sweep", "question", "objective", "mixed_code", "dry_run")
"""Fields that do not affect the numbers of a run."""
