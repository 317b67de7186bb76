"""What of a run is not known here: whether its files are; and what its proof trusts, in words."""

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

from attnsvm.config import GROUPS, RunConfig
from attnsvm.config.identity import content_digest, folder_name, named_files
from attnsvm.config.instantiate import target_class
from attnsvm.record.run import identity

TRAINING = "trained weights (see --retrain)"
"""What need not be trusted where every row was trained again and came out equal."""

DRAWING = {"data", "head", "model"}
"""Groups without which instances, labels and scores are not known."""

FILES = {
    "path": "the data file is not here as it was",
    "text": "the text is not here as it was",
    "transformer": "the model's files are not here as they were",
    "init_path": "the file of initial weights is not here as it was",
}
"""Field that names a file -> what is said of it where it is missing."""

OF_PROBE = "the file of a probe is not here as it was"

STAND_INS = {"head": "linear", "model": "cross_attention", "loss": "logistic", "data": "sphere",
             "parameterization": "w", "optimizer": "normalized_gd"}  # fmt: skip
"""The option in the place of a plug-in, by group."""


def config_refusals(run: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what is wrong with the signature of a `run.json`, and with its folder's name."""
    contents = _contents(run)
    if None not in contents and not identity(run):
        files = " and the files that it names, which are here" if contents else ""
        yield f"signature: is not that of the config{files}"
    if re.search("-[0-9a-f]{12}$", folder.name):
        name = folder_name(run["options"], run["config"], run["signature"])
        if folder.name != name:
            yield f"folder: its name must be {name}"


def with_files_beside(run: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a `run.json`; a file that is not at its path is looked for beside the record.

    Its name counts there, in the folder of the run or of its sweep. The signature says whether it
    is the same file.
    """
    moved = copy.deepcopy(dict(run))
    parts = chain(*(named_files(moved[fields]) for fields in ("config", "as_written")))
    for part, key, content in parts:
        if content is None:
            near = (place / Path(part[key]).name for place in (folder, folder.parent))
            part[key] = next((str(path) for path in near if path.exists()), part[key])
    return moved


def _changed_files(run: Mapping[str, Any]) -> str:
    """Return which files of a run are not here as they were, "" if all are.

    All have one signature: where one is missing, no other is known to be as it was.
    """
    config = run["config"]
    missing = [
        FILES[key] if part is config["data"] or key == "init_path" else OF_PROBE
        for part, key, content in named_files(config)
        if content is None
    ]
    if not missing and not identity(run):
        return "its files are not here as they were"
    return "; ".join(missing)


def _contents(run: Mapping[str, Any]) -> list[str | None]:
    """Return the sha256 of the files that a config names; None of one that is not here."""
    return [content for *_, content in named_files(run["config"])]


@dataclass(frozen=True)
class Unknown:
    """What of a run is not known here.

    `groups` are those of the config with a plug-in, whose code is not run. `files` says which files
    are not here as they were, "" if all are. `labels` and `start` are whether labels and scores, or
    the initial weights, are unknown. `probes` that cannot be measured again say why; `columns` are
    theirs, and their quantities.
    """

    groups: frozenset[str] = frozenset()
    files: str = ""
    labels: bool = False
    start: bool = False
    probes: Mapping[str, str] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Self:
        """Return what is not known of the run of a `run.json`."""
        config = run["config"]
        files = _changed_files(run)
        groups = frozenset(
            group for group in GROUPS if not str(config[group]["_target_"]).startswith("attnsvm.")
        )
        of_file = any(config["data"].get(name) for name in ("path", "transformer"))
        labels = bool(DRAWING & groups) or (of_file and files != "")
        probes = {}
        for name, node in config["probe"].items():
            if node["_target_"].split(".")[0] != "attnsvm":
                probes[name] = str(node["_target_"])
            elif node.get("path") is not None and files:
                lacks = content_digest(node["path"]) is None
                probes[name] = "its file is not here" if lacks else files
            elif labels and target_class(node["_target_"], "probe").DRAWN:
                probes[name] = "the instances are not known"
        begins = tuple(f"{name}_" for name in probes)
        columns = frozenset(name for name in run["probes"] if name.startswith(begins))
        start = bool(config["optimizer"].get("init_path")) and files != ""
        return cls(groups, files, labels, start, probes, columns)

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


def trusted(config: Mapping[str, Any], unknown: Unknown, undecided: bool) -> list[str]:
    """Return what is trusted of a run beside columns; `undecided` is whether some SVMs are."""
    tokens, groups = config["selection"]["tokens"], unknown.groups
    follows = "parameterization", "optimizer", "loss"
    start = config["optimizer"].get("init")
    as_they_are = start == "pretrained" and config["optimizer"].get("steps") == 0
    of_training = [
        (not as_they_are or unknown.labels, TRAINING),
        (config["head"].get("train"), "the trained head, and scores and risk by it"),
        *((True, f"probe {name} ({why})") for name, why in unknown.probes.items()),
    ]
    found = [
        (unknown.labels, _not_drawn(config, unknown)),
        (unknown.start, f"the initial weights ({unknown.files})"),
        *((one in groups, f"what follows from {one} {config[one]['_target_']}") for one in follows),
        (tokens == "multi", "that the margin gap of Gen-SVM is not smaller"),
        *(of_training if tokens != "optimal" else ()),
        (undecided, "that no more could be proved of undecided SVMs"),
    ]  # fmt: skip
    return [text for holds, text in found if holds]


def _not_drawn(config: Mapping[str, Any], unknown: Unknown) -> str:
    """Return why the instances cannot be drawn."""
    plug_ins = [config[group]["_target_"] for group in sorted(DRAWING & unknown.groups)]
    if config["data"].get("transformer") and unknown.files:
        return "; ".join([f"signature and rows: {unknown.files}", *plug_ins])
    of_file = (
        [f"and signature: {unknown.files}"] if config["data"].get("path") and unknown.files else []
    )
    return f"instances, labels and scores ({'; '.join([*plug_ins, *of_file])})"
