"""What of a run is not known here, and what its proof trusts, in the words that it prints."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnsvm.config import GROUPS, RunConfig
from attnsvm.verify.config import plug_ins
from attnsvm.verify.rows import is_recorded

TRAINING = "trained weights and how training ended (see --retrain)"
DIRECTION, SINCE = "direction_change", "selected_since"
BETWEEN = "history between its first and last step"
SETTLED_BY_TRAINING = (TRAINING, DIRECTION, BETWEEN, SINCE)
"""What need not be trusted where every row was trained again and came out equal."""


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
    """

    groups: frozenset[str] = frozenset()
    labels: bool = False
    start: bool = False


def known_config(config: RunConfig, unknown: Unknown, skipped: Sequence[str]) -> RunConfig:
    """Return the config with an option of ours in the place of plug-ins, without `skipped` probes.

    Nothing is published again: these columns are results of another solver.
    """
    stand_ins = {
        "head": "linear",
        "model": "cross_attention",
        "loss": "logistic",
        "parameterization": "w",
        "optimizer": "normalized_gd",
        "data": "sphere",
    }
    found = copy.copy(config)
    for group in unknown.groups:
        setattr(found, group, GROUPS[group].own[stand_ins[group]]())
    found.probe = {name: node for name, node in config.probe.items() if name not in skipped}
    found.svm = dataclasses.replace(config.svm, published=False)
    found.extensions = []
    return found


def trusted_names(prover: Any) -> list[str]:
    """Return what is trusted of the run of a prover, beside instances that are not drawn."""
    config, run_proof = prover.config, prover.proof
    names = [
        f"what follows from {group} {config[group]['_target_']}"
        for group in ("parameterization", "optimizer", "loss") if group in plug_ins(config)
    ]  # fmt: skip
    if prover.tokens == "multi":
        names.append("that the margin gap of Gen-SVM is not smaller")
    if prover.tokens != "optimal":
        names += _of_training(prover)
    names += _of_hypotheses(config)
    if any(not is_recorded(row, prover.tokens) for row in prover.rows):
        names.append("softmax, norm and risk of rejected instances")
    if any(row["training"] == "diverged" for row in prover.rows):
        names.append("softmax, norm and risk of diverged instances")
    if config["svm"]["published"] and prover.tokens != "multi":
        names.append("results of the published solver")
    if run_proof.proved["undecided"]:
        names.append("that no more could be proved of undecided SVMs")
    return names


def _of_training(prover: Any) -> Iterator[str]:
    config = prover.config
    start = config["optimizer"].get("init")
    as_they_are = start == "pretrained" and config["optimizer"].get("steps") == 0
    if not (as_they_are and prover.known):
        yield TRAINING
    if not config["keep_path"] and len(prover.steps) > 2:
        if prover.tokens == "top":
            yield DIRECTION
        yield BETWEEN
    if prover.layered:
        yield SINCE
    if config["head"].get("train"):
        yield "the trained head, and scores and risk by it"
    for name in prover.skipped:
        node = config["probe"][name]
        if node["_target_"].split(".")[0] != "attnsvm":
            yield f"probe {name} ({node['_target_']})"
        elif node.get("path") is not None:
            yield f"probe {name} (its file is not here)"
        else:
            yield f"probe {name} (the instances are not known)"
    for name, node in config["probe"].items():
        if node["_target_"] == "attnsvm.probe.Balance" and len(prover.steps) > 1:
            yield f"history of probe {name} before its last step"


def _of_hypotheses(config: Any) -> list[str]:
    unknown = set(plug_ins(config)) & {"data", "head", "model", "loss"}
    return [f"hypothesis {name}" for name in config["hypotheses"]] if unknown else []


def not_drawn(prover: Any) -> list[str]:
    """Return why the instances of a prover's run cannot be drawn; empty if they can."""
    if prover.known:
        return []
    if prover.config["data"].get("transformer"):
        return ["signature and rows: the model's files are not here as they were"]
    if "path" in prover.config["data"]:
        why = "and signature: the data file is not here as it was"
        return [f"instances, labels and scores ({why})"]
    names = ", ".join(prover.config[g]["_target_"] for g in sorted(plug_ins(prover.config)))
    return [f"instances, labels and scores ({names})"]


def rejected_ranges(prover: Any) -> dict[str, Any]:
    """Return what the columns of training may hold where weights are not stored."""
    found: dict[str, Any] = {}
    for one in prover.further:
        if one.name in prover.replay.entered and one.allowed is not None and one.dtype != "str":
            found[one.name] = lambda value, one=one: one.allowed.holds(value)
    selection = prover.config["selection"]
    found["max_masked_softmax"] = lambda value: 0 <= value <= selection["attended"]
    found["min_top_softmax"] = lambda value: 0 <= value <= 1
    found["W_norm"] = lambda value: value >= 0
    found["attended_tokens"] = lambda value: value >= 0
    return found
