"""The schema of a run: every field with its default, its unit and its range.

Group name = folder in `conf/` = module or package in `attnsvm/` = field of `RunConfig`. Defaults
are set in the schema only. No slow import: a command line is checked before torch is loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from omegaconf import MISSING

from attnsvm.config import groups
from attnsvm.config.combinations import check_combinations
from attnsvm.config.fields import Broken, Group, ListOf, OneOf, Schema, check_fields, option
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
    tokens: str = "top"
    saturation: float = 0.999
    settled: float = 1e-4
    attended: float = 1e-3
    negligible: float = 1e-6
    reject_all_positive: bool = False
    until_accepted: bool = False
    keep_stalled: bool = False

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
    norms: list[str] = ["frobenius", "nuclear"]
    gap: float = 1e-9
    rank_tolerance: float = 1e-6
    published: bool = False

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
    data: groups.DataConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    loss: groups.LossConfig = MISSING
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    svm: SvmConfig = dataclasses.field(default_factory=SvmConfig)
    probe: dict[str, ProbeConfig] = dataclasses.field(default_factory=dict)
    sweep: str | None = None
    question: str | None = None
    trials: int = 100
    seed: int = 0
    hypotheses: list[str] = option(
        [],
        ListOf(OneOf(tuple(HYPOTHESES)), empty=True),
        "hypotheses of theorems to decide for every instance, each a column",
    )
    keep_path: bool = False
    objective: str | None = None
    device: str = "auto"
    extensions: list[str] = []
    mixed_code: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_combinations(self)


BASES = (groups.ModelConfig, groups.ParameterizationConfig, groups.HeadConfig, groups.DataConfig,
         OptimizerConfig, groups.LossConfig)  # fmt: skip
GROUPS = {base.GROUP: Options(base) for base in BASES}
"""Every option of these groups, those of plug-ins included, by the name a user types."""

SECTIONS: dict[str, type] = {"selection": SelectionConfig, "svm": SvmConfig}
"""The parts of a config that have one schema."""

PROBES = Options(ProbeConfig)
"""Every probe, those of plug-ins included; a run has any number of them."""

ALL_GROUPS = {**GROUPS, "probe": PROBES}

WITHOUT_EFFECT = ("device", "sweep", "question", "objective", "mixed_code", "dry_run")
"""Fields that do not affect the numbers of a run."""
