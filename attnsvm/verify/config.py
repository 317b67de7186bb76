"""What follows from a recorded config: its options, its signature, its folder's name, its plan."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnsvm.config import GROUPS, PROBES, ConfigError, RunConfig, SelectionConfig, SvmConfig
from attnsvm.config.pretrained import model_files
from attnsvm.record import CorruptRecordError
from attnsvm.verify.stored import content_of

NOT_RECORDED = ("sweep", "question", "objective", "device", "mixed_code", "dry_run")
"""Fields of a config that do not affect the numbers of a run."""


def config_refusals(
    run: Mapping[str, Any], options: Mapping[str, str], folder: Path
) -> Iterator[str]:
    """Yield what is wrong with options and signature of a `run.json`, and its folder's name.

    `options` are those of its config, which is valid.
    """
    if run["options"] != options:
        yield f"options are {options}, stated are {run['options']}"
    contents = _contents(run)
    if None not in contents and run["signature"] != _signature(run):
        told = " and the files that it names, which are here" if contents else ""
        yield f"signature: is not that of the config{told}"
    if re.search("-[0-9a-f]{12}$", folder.name):
        name = _name(run["config"], options, run["signature"])
        if folder.name != name:
            yield f"folder: its name must be {name}"


def files_are_here(run: Mapping[str, Any]) -> bool:
    """Return whether the files of a config have the content that the run was started with."""
    return None not in _contents(run) and run["signature"] == _signature(run)


def with_files_beside(run: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a `run.json`; a file that is not at its path is looked for beside the record.

    Its name counts there, in the folder of the run or of its sweep. The signature says whether it
    is the same file.
    """
    moved = copy.deepcopy(dict(run))
    for part, key in _with_files(moved["config"]):
        if _content(part, key) is None:
            near = (place / Path(str(part[key])).name for place in (folder, folder.parent))
            part[key] = next((str(path) for path in near if path.exists()), part[key])
    return moved


def _contents(run: Mapping[str, Any]) -> list[str | None]:
    """Return the sha256 of the files that a config names; None of one that is not here."""
    return [_content(node, key) for node, key in _with_files(run["config"])]


def _with_files(config: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the parts of a config that name files, with the field: data, probes, optimizer."""
    parts = [(part, "path") for part in (config["data"], *config["probe"].values())]
    parts += [(config["optimizer"], "init_path")]
    parts += [(config["data"], key) for key in ("text", "transformer")]
    return [(p, key) for p, key in parts if isinstance(p, dict) and p.get(key) is not None]


def _content(node: Mapping[str, Any], key: str) -> str | None:
    """Return the sha256 of a file, or of the digests of a model's files; None if they lack."""
    if key != "transformer":
        return content_of(str(node[key]))
    found = [content_of(str(path)) for path in model_files(str(node[key]))]
    if not found or None in found:
        return None
    return hashlib.sha256("".join(map(str, found)).encode()).hexdigest()


def plan_refusals(run: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[str]:
    """Yield overrides of the plan `key=value` that the recorded config contradicts."""
    for override in overrides:
        key, _, text = str(override).lstrip("+").partition("=")
        if key in ("sweep", "question", "device"):
            found: Any = run.get(key)
        elif key in run["options"]:
            found = run["options"][key] if text in GROUPS[key].own else _ABSENT  # else one's own
        else:
            found = run["config"]
            for part in key.split("."):
                found = found.get(part, _ABSENT) if isinstance(found, Mapping) else _ABSENT
        if found is not _ABSENT and not _is(found, text):
            yield f"the plan says {override}, the config has {found}"


_ABSENT = object()

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0"), False),
}
"""What a command line may write for a boolean."""


def _is(found: Any, text: str) -> bool:
    """Return whether the text of a command line means the value; True for lists and mappings."""
    if isinstance(found, Mapping | list) or text[:1] in ("{", "[", "'", '"', "$"):
        return True
    if found is None:
        return text.lower() in ("null", "none", "")
    if isinstance(found, bool):
        return BOOLEANS.get(text.lower(), found) == found
    if isinstance(found, int | float):
        try:
            return float(text) == found
        except ValueError:
            return True  # a number that only Hydra reads is not compared
    return str(found) == text.replace("\\", "")


def recorded_config(run: Mapping[str, Any]) -> tuple[RunConfig, dict[str, str]]:
    """Return the checked config of a `run.json`, and the name of every group's option.

    Raises
    ------
    ConfigError
        If a field is unknown, missing or out of range.
    """
    config = run["config"]
    known = {f.name for f in dataclasses.fields(RunConfig)} - set(NOT_RECORDED)
    if set(config) != known:
        raise ConfigError(f"its fields must be {', '.join(sorted(known))}")
    parts: dict[str, Any] = {}
    names = {}
    for group, options in GROUPS.items():
        names[group], parts[group] = _option(group, options.own, config, run["options"][group])
    for group, schema in (("selection", SelectionConfig), ("svm", SvmConfig)):
        parts[group] = _made(group, schema, config[group])
    probes = {vars(schema)["_target_"]: schema for schema in PROBES.own.values()}
    parts["probe"] = {}
    for name, fields in config["probe"].items():
        made = probes.get(str(fields["_target_"]), SimpleNamespace)
        parts["probe"][name] = made(**fields)
    beside = {"sweep": run["sweep"], "question": run["question"], "device": run["device"]}
    return RunConfig(**{**config, **parts, **beside}), names


def _made(group: str, schema: type, fields: Mapping[str, Any]) -> Any:
    """Return the options of a group, every one of them given and in range."""
    known = {f.name for f in dataclasses.fields(schema)}
    if set(fields) != known:
        raise ConfigError(f"{group}: its fields must be {', '.join(sorted(known))}")
    return schema(**fields)


def _option(
    group: str, options: Mapping[str, type], config: Mapping[str, Any], stated: str
) -> tuple[str, Any]:
    """Return the name of the option and its checked fields.

    A plug-in is named by its target or by a word, as stated; its code is not run.
    """
    fields = config[group]
    target = fields["_target_"]
    for name, schema in options.items():
        if vars(schema)["_target_"] == target:
            return name, _made(group, schema, fields)
    if target.split(".")[0] not in config["extensions"]:
        raise ConfigError(f"{group}._target_={target}: must be an option of {group}, or a class "
                          "of a package in extensions")  # fmt: skip
    declared = stated.isidentifier() and stated not in options
    return (stated if declared else target), SimpleNamespace(**fields)


def _signature(run: Mapping[str, Any]) -> str:
    """Return the sha256 of version and config, with the content of each file for its path."""
    config = copy.deepcopy({**run["config"], "extensions": run["extension_code"]})
    for part, key in _with_files(config):
        if (content := _content(part, key)) is not None:
            part[key] = content
    text = json.dumps([run["version"], config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _name(config: Mapping[str, Any], options: Mapping[str, str], signature: str) -> str:
    data = config["data"]
    shape = "".join(f"_{key}{data[key]}" for key in "nTd" if key in data)
    words = f"{options['data']}{shape}_{options['parameterization']}_{options['head']}"
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "-" for c in words)
    return f"{safe[:80]}-{signature[:12]}"


def plug_ins(config: Mapping[str, Any]) -> list[str]:
    """Return the groups of a recorded config whose option is a plug-in."""
    return [group for group in GROUPS if not str(config[group]["_target_"]).startswith("attnsvm.")]


def recorded_steps(optimizer: Mapping[str, Any], at_most: int) -> list[float]:
    """Return the steps, or radii, at which snapshots are recorded.

    Raises
    ------
    CorruptRecordError
        If there are more than `at_most`.
    """
    if "radii" in optimizer:
        return [0.0, *optimizer["radii"]]
    steps = optimizer["steps"]
    if optimizer["record"] == "linear":
        if steps // optimizer["record_every"] > at_most:
            raise CorruptRecordError("history.parquet: has fewer rows than recorded steps")
        return [*range(0, steps, optimizer["record_every"]), steps]
    series = [m * 10**e for e in range(len(str(steps))) for m in (1, 2, 5)]
    return [0, *(k for k in series if k < steps), *([steps] if steps else [])]
