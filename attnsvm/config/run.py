"""The schema of a run: every field with its default, its unit and its range.

Group name = folder in `conf/` = module or package in `attnsvm/` = field of `RunConfig`. Defaults
are set in the schema only. No slow import: a command line is checked before torch is loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from omegaconf import MISSING

from attnsvm.config import fields, groups
from attnsvm.config.combinations import check_combinations
from attnsvm.config.fields import Broken, Group, ListOf, OneOf, Range, check_fields, option
from attnsvm.config.norm import NormName
from attnsvm.config.optimizer import OptimizerConfig
from attnsvm.config.plugins import Options
from attnsvm.config.probe import ProbeConfig

HYPOTHESES = {
    "unique_optimum": "every sample has one token of highest score",
    "assumption_b2": "Assumption B.2: all tokens of a sample but the best have the same score",
    "assumption_d": "Assumption D, Frobenius norm: every other feasible selection leaves out an "
    "optimal token that is its neighbour",
    "overparameterized": "d >= max(T - 1, n)",
    "optimum_feasible": "some W separates the optimal tokens",
    "order_preserving": "every mixture of a sample's tokens scores below its best token",
    "runner_up_local": "the optimal tokens, but in the first sample the second best, are locally "
    "optimal, Frobenius norm",
    "aligned_gradient": "-grad L at the initial weights separates the optimal tokens",
}
"""Hypotheses of theorems that a run decides on request: column of `trials` -> what it says."""


@dataclass
class SelectionConfig(Group):
    """Which tokens the SVM separates from the rest, and which instances are excluded."""

    GROUP = "selection"
    tokens: str = option(
        "top",
        OneOf(("top", "optimal", "multi", "scc")),
        "top: the token of largest softmax; optimal: argmax score, no training; "
        "multi: all tokens with softmax >= attended; scc: the component of the label, the token of "
        "best score, in the token-priority graph",
    )
    saturation: float = option(
        0.999, fields.SHARE, "an instance whose smallest top softmax is below this is unsaturated"
    )
    settled: float = option(
        1e-4,
        fields.SHARE,
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

    def _broken(self) -> Broken:
        if self.negligible > self.attended:
            yield "negligible", f"<= attended={self.attended}"
        if self.until_accepted and self.tokens != "multi":
            must = f"false with selection.tokens={self.tokens}, which rejects no instance"
            yield "until_accepted", must


@dataclass
class SvmConfig(Group):
    """Which attention SVMs are solved."""

    GROUP = "svm"
    norms: list[str] = option(["frobenius", "nuclear"], ListOf(NormName()), "norms to minimise")
    gap: float = option(1e-9, Range(1e-12, 1e-2), "largest relative duality gap of `solved`")
    rank_tolerance: float = option(1e-6, fields.THRESHOLD, "rank: sigma > this * sigma_1")
    published: bool = option(
        False, None, "also solve as the published scripts do: default tolerances, rank at 1e-7"
    )

    def _broken(self) -> Broken:
        others = [norm for norm in self.norms if norm not in PUBLISHED]
        if self.published and others:
            ours = f"{' | '.join(PUBLISHED)} with svm.published=True"
            yield "norms", f"{ours}: no published script has {others[0]}"


PUBLISHED = ("frobenius", "nuclear")
"""Norms whose SVM the published scripts solve."""


@dataclass
class RunConfig:
    """One run: a batch of instances, trained, separated, compared and recorded."""

    model: groups.ModelConfig = MISSING
    parameterization: groups.ParameterizationConfig = MISSING
    head: groups.HeadConfig = MISSING
    data: groups.DataConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    loss: groups.LossConfig = MISSING
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    svm: SvmConfig = dataclasses.field(default_factory=SvmConfig)
    probe: dict[str, ProbeConfig] = dataclasses.field(default_factory=dict)
    sweep: str | None = option(None, None, "name of the experiment that this run belongs to")
    question: str | None = option(None, None, "question of the experiment, shown in its report")
    trials: int = option(100, fields.POSITIVE_COUNT, "number of instances")
    seed: int = option(0, fields.SEEDS, "seed of the first instance; instance i has seed + i")
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
        check_combinations(self)


BASES = (groups.ModelConfig, groups.ParameterizationConfig, groups.HeadConfig, groups.DataConfig,
         OptimizerConfig, groups.LossConfig)  # fmt: skip
GROUPS = {base.GROUP: Options(base) for base in BASES}
"""Every option of these groups, those of plug-ins included, by the name a user types."""

PROBES = Options(ProbeConfig)
"""Every probe, those of plug-ins included; a run has any number of them."""

ALL_GROUPS = {**GROUPS, "probe": PROBES}

WITHOUT_EFFECT = ("device", "sweep", "question", "objective", "mixed_code", "dry_run")
"""Fields that do not affect the numbers of a run."""
