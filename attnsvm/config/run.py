"""The schema of a run: every field with its default, its unit and its range.

Group name = folder in `conf/` = module or package in `attnsvm/` = field of `RunConfig`. Defaults
are set in the schema only. No slow import: a command line is checked before torch is loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from attnsvm.config import groups
from attnsvm.config.combinations import check_combinations
from attnsvm.config.data import DataConfig
from attnsvm.config.fields import (
    MISSING,
    SEEDS,
    SIZE,
    Broken,
    Group,
    ListOf,
    OneOf,
    Range,
    Schema,
    check_fields,
)
from attnsvm.config.norm import NormName
from attnsvm.config.optimizer import OptimizerConfig
from attnsvm.config.plugins import Options
from attnsvm.config.probe import ProbeConfig
from attnsvm.config.words import MEANINGS

HYPOTHESES = MEANINGS["hypothesis"]
"""Hypotheses of theorems that a run decides on request: column of `trials` -> what it says."""


@dataclass
class SelectionConfig(Group):
    """Which tokens the SVM separates from the rest, and which instances are excluded."""

    GROUP = "selection"
    tokens: Annotated[
        str,
        OneOf(("top", "optimal", "multi", "scc")),
        "top: the token of largest softmax; optimal: argmax score, no training; multi: all "
        "tokens with softmax >= attended; scc: the component of the label, the token of best "
        "score, in the token-priority graph",
    ] = "top"
    saturation: Annotated[
        float, Range(0, 1), "an instance whose smallest top softmax is below this is unsaturated"
    ] = 0.999
    settled: Annotated[
        float,
        Range(0, 1),
        "1 - correlation of W with W half-way up to which its direction is settled",
    ] = 1e-4
    attended: Annotated[float, Range(0, 1, open=True), "smallest softmax of an attended token"] = (
        1e-3
    )
    negligible: Annotated[
        float, Range(0, 1, open=True), "largest softmax of an unattended token"
    ] = 1e-6
    reject_all_positive: Annotated[
        bool, "multi: reject instances whose labels are all +1, as published"
    ] = False
    until_accepted: Annotated[
        bool, "multi: draw further seeds until `trials` instances are accepted"
    ] = False
    keep_stalled: Annotated[bool, "keep stalled runs as data points, as published"] = False

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
    norms: Annotated[list[str], ListOf(NormName()), "norms to minimise"] = ["frobenius", "nuclear"]
    gap: Annotated[float, Range(1e-12, 0.01), "largest relative duality gap of `solved`"] = 1e-9
    rank_tolerance: Annotated[
        float, Range(0, 1, open=True, below=True), "rank: sigma > this * sigma_1"
    ] = 1e-6
    published: Annotated[
        bool, "also solve as the published scripts do: default tolerances, rank at 1e-7"
    ] = False

    def _broken(self) -> Broken:
        others = [norm for norm in self.norms if norm not in PUBLISHED]
        if self.published and others:
            ours = f"{' | '.join(PUBLISHED)} with svm.published=True"
            yield "norms", f"{ours}: no published script has {others[0]}"


PUBLISHED = ("frobenius", "nuclear")
"""Norms whose SVM the published scripts solve."""


@dataclass
class RunConfig(Schema):
    """One run: a batch of instances, trained, separated, compared and recorded."""

    model: groups.ModelConfig = MISSING
    parameterization: groups.ParameterizationConfig = MISSING
    head: groups.HeadConfig = MISSING
    data: DataConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    loss: groups.LossConfig = MISSING
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    svm: SvmConfig = dataclasses.field(default_factory=SvmConfig)
    probe: dict[str, ProbeConfig] = dataclasses.field(default_factory=dict)
    sweep: Annotated[str | None, "name of the experiment that this run belongs to"] = None
    question: Annotated[str | None, "question of the experiment, shown in its report"] = None
    trials: Annotated[int, SIZE, "number of instances"] = 100
    seed: Annotated[int, SEEDS, "seed of the first instance; instance i has seed + i"] = 0
    hypotheses: Annotated[
        list[str],
        ListOf(OneOf(tuple(HYPOTHESES)), empty=True),
        "hypotheses of theorems to decide for every instance, each a column",
    ] = []
    keep_path: Annotated[bool, "store the weights and softmax of every snapshot"] = False
    objective: Annotated[
        str | None,
        "number that a job returns to a sweeper: mean(COLUMN) | median(COLUMN) of the instances"
        " with status ok, or share(COLUMN=WORD) of all",
    ] = None
    device: Annotated[
        str,
        OneOf(("auto", "cpu", "cuda")),
        "what trains one layer; auto: the CPU, or the GPU of a SLURM job with one; the CPU does all"
        " else",
    ] = "auto"
    extensions: Annotated[list[str], "packages, besides attnsvm, that `_target_` may name"] = []
    mixed_code: Annotated[
        bool, "without effect: a sweep adds to records that other code has made and replaces none"
    ] = False
    dry_run: Annotated[bool, "list the runs and estimate their time; run nothing"] = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_combinations(self)


BASES = (
    groups.ModelConfig,
    groups.ParameterizationConfig,
    groups.HeadConfig,
    DataConfig,
    OptimizerConfig,
    groups.LossConfig,
)
GROUPS = {base.GROUP: Options(base) for base in BASES}
"""Every option of these groups, those of plug-ins included, by the name a user types."""

SECTIONS: dict[str, type] = {"selection": SelectionConfig, "svm": SvmConfig}
"""The parts of a config that have one schema."""

PROBES = Options(ProbeConfig)
"""Every probe, those of plug-ins included; a run has any number of them."""

ALL_GROUPS = {**GROUPS, "probe": PROBES}

WITHOUT_EFFECT = ("device", "sweep", "question", "objective", "mixed_code", "dry_run")
"""Fields that do not affect the numbers of a run."""
