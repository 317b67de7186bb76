"""What of a run is not known here, and what its proof trusts, in the words that it prints."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnsvm.config import GROUPS, RunConfig
from attnsvm.config.groups import is_transformer
from attnsvm.verify.config import files_are_here
from attnsvm.verify.rows import is_recorded

TRAINING = "trained weights and how training ended (see --retrain)"
DIRECTION, SINCE = "direction_change", "selected_since"
BETWEEN = "history between its first and last step"
SETTLED_BY_TRAINING = (TRAINING, DIRECTION, BETWEEN, SINCE)
"""What need not be trusted where every row was trained again and came out equal."""

OF_DATA = ("attnsvm.probe.HeldOut", "attnsvm.probe.OtherHeads")
"""Probes that need the instances as they were drawn."""

STAND_INS = {
    "head": "linear",
    "model": "cross_attention",
    "loss": "logistic",
    "parameterization": "w",
    "optimizer": "normalized_gd",
    "data": "sphere",
}
"""The option in the place of a plug-in, by group."""


@dataclass(frozen=True)
class Unknown:
    """What of a run is not known here.

    Attributes
    ----------
    groups : frozenset of str
        Groups of the config with a plug-in, whose code is not run.
    labels : bool
        Labels and scores: the instances cannot be drawn.
    start : bool
        The initial weights.
    probes : mapping of str to str
        Probes that cannot be measured again -> why.
    columns : frozenset of str
        Their columns and quantities.
    """

    groups: frozenset[str] = frozenset()
    labels: bool = False
    start: bool = False
    probes: Mapping[str, str] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Unknown:
        """Return what is not known of the run of a `run.json`."""
        config, here = run["config"], files_are_here(run)
        groups = frozenset(
            group for group in GROUPS if not str(config[group]["_target_"]).startswith("attnsvm.")
        )
        of_file = any(config["data"].get(name) for name in ("path", "transformer"))
        labels = bool({"data", "head", "model"} & groups) or (of_file and not here)
        probes = {}
        for name, node in config["probe"].items():
            if node["_target_"].split(".")[0] != "attnsvm":
                probes[name] = str(node["_target_"])
            elif node.get("path") is not None and not here:
                probes[name] = "its file is not here"
            elif labels and node["_target_"] in OF_DATA:
                probes[name] = "the instances are not known"
        begins = tuple(f"{name}_" for name in probes)
        columns = frozenset(name for name in run["probes"] if name.startswith(begins))
        start = config["optimizer"].get("init") == "file" and not here
        return cls(groups, labels, start, probes, columns)

    def config(self, config: RunConfig) -> RunConfig:
        """Return the config with an option of ours in the place of plug-ins, without these probes.

        Nothing is published again: these columns are results of another solver.
        """
        found = copy.copy(config)
        for group in self.groups:
            setattr(found, group, GROUPS[group].own[STAND_INS[group]]())
        found.probe = {name: p for name, p in config.probe.items() if name not in self.probes}
        found.svm = dataclasses.replace(config.svm, published=False)
        found.extensions = []
        return found


def trusted(
    config: Mapping[str, Any],
    unknown: Unknown,
    rows: Sequence[Mapping[str, Any]],
    steps: Sequence[float],
    undecided: bool,
) -> Iterator[str]:
    """Yield what is trusted of a run; `undecided` is whether some of its SVMs are."""
    tokens = config["selection"]["tokens"]
    if unknown.labels:
        yield _not_drawn(config, unknown)
    for group in ("parameterization", "optimizer", "loss"):
        if group in unknown.groups:
            yield f"what follows from {group} {config[group]['_target_']}"
    if tokens == "multi":
        yield "that the margin gap of Gen-SVM is not smaller"
    if tokens != "optimal":
        yield from _of_training(config, unknown, steps)
    if {"data", "head", "model", "loss"} & unknown.groups:
        yield from (f"hypothesis {name}" for name in config["hypotheses"])
    if any(not is_recorded(row, tokens) for row in rows):
        yield "softmax, norm and risk of rejected instances"
    if any(row["training"] == "diverged" for row in rows):
        yield "softmax, norm and risk of diverged instances"
    if config["svm"]["published"] and tokens != "multi":
        yield "results of the published solver"
    if undecided:
        yield "that no more could be proved of undecided SVMs"


def _of_training(
    config: Mapping[str, Any], unknown: Unknown, steps: Sequence[float]
) -> Iterator[str]:
    start = config["optimizer"].get("init")
    as_they_are = start == "pretrained" and config["optimizer"].get("steps") == 0
    if not as_they_are or unknown.labels:
        yield TRAINING
    if not config["keep_path"] and len(steps) > 2:
        if config["selection"]["tokens"] == "top":
            yield DIRECTION
        yield BETWEEN
    if is_transformer(config["model"]):
        yield SINCE
    if config["head"].get("train"):
        yield "the trained head, and scores and risk by it"
    yield from (f"probe {name} ({why})" for name, why in unknown.probes.items())
    for name, node in config["probe"].items():
        if node["_target_"] == "attnsvm.probe.Balance" and len(steps) > 1:
            yield f"history of probe {name} before its last step"


def _not_drawn(config: Mapping[str, Any], unknown: Unknown) -> str:
    """Return why the instances cannot be drawn."""
    if config["data"].get("transformer"):
        return "signature and rows: the model's files are not here as they were"
    why = ", ".join(config[group]["_target_"] for group in sorted(unknown.groups))
    if "path" in config["data"]:
        why = "and signature: the data file is not here as it was"
    return f"instances, labels and scores ({why})"
