"""The content of `run.json`, read and checked in one place."""

import copy
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError
from attnsvm.config.fields import check_fields, values_before
from attnsvm.config.groups import one_layer_problems
from attnsvm.config.identity import (
    digest,
    digest_before_formats,
    extension_code,
    in_parts,
    named_files,
    option_names,
    result_fields,
)
from attnsvm.config.probe import ProbeConfig, described_quantities
from attnsvm.config.run import GROUPS, RunConfig
from attnsvm.config.sources import package_of
from attnsvm.config.version import FORMAT, NUMBERS
from attnsvm.record.columns import columns_digest
from attnsvm.record.files import CorruptRecordError, OtherVersionError, read_json, refused

RUN_FILE = "run.json"
TABLES = ("trials.parquet", "history.parquet", "solutions.npz")

MAX_RUN_BYTES = 2**22
"""Largest `run.json` that is read, in bytes."""

OTHER_VERSION = "made by another version of attnsvm"

FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("signature", "version", "code", "python"), str),
    **dict.fromkeys(("extension_code", "packages", "hardware"), dict),
    "git_revision": str | None,
    "overrides": list,
}
DONE: Mapping[str, Any] = {"drawn": int, "timings_s": dict, "files": dict}
NOT_DONE: Mapping[str, Any] = {"reason": str}
"""Fields beside the config of every `run.json`; of a run that is done, and of one that is not."""

BEFORE_FORMATS: Mapping[str, Any] = {"format": 1, "numbers": 0}
"""The fields that records have had since they have a format, with the value of older ones."""


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of the `run.json` in `folder`, its config checked by the schema.

    A field of the config that it lacks has its `values_before`; `as_written` is the config without
    these, and `stale` says why a finished run may have other numbers in this version, else "".
    FileNotFoundError if there is no file; UnreadableError if it cannot be read now;
    CorruptRecordError if it is not what was written; OtherVersionError if this version does not
    know its format or its config.
    """
    path = folder / RUN_FILE
    with refused(""):
        run = {**BEFORE_FORMATS, **read_json(path, MAX_RUN_BYTES)}
    known = {**FIELDS, **(DONE if run.get("state") == "done" else NOT_DONE)}
    for name, kind in known.items() if run["format"] == FORMAT else ():
        if name not in run:
            raise CorruptRecordError(f"{path}: {name}: missing")
        if not isinstance(run[name], kind):
            must = getattr(kind, "__name__", kind)
            raise CorruptRecordError(f"{path}: {name}={run[name]}: must be of type {must}")
    try:
        if run["format"] != FORMAT:
            raise ConfigError(f"format={run['format']}: must be {FORMAT}")
        config = recorded_config(run)
        run = {**run, "config": result_fields(config), "as_written": run["config"]}
        return {**run, "stale": _stale(run, config) if run["state"] == "done" else ""}
    except MemoryError:
        raise
    except Exception as wrong:  # what the schema raises for what it does not know
        raise OtherVersionError(f"{path}: {wrong}, {OTHER_VERSION}") from wrong


def counts_of(statuses: Iterable[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `run.json` that count rows, which have these statuses."""
    counts = Counter(statuses)
    return {
        "wanted": config["trials"] * one_layer_problems(config["model"]),
        "drawn": counts.total(),
        "accepted": counts["ok"],
        "statuses": dict(counts),
    }


def identity(run: Mapping[str, Any]) -> str:
    """Return the signature of the run of a `run.json` in this version; "" if it is not known.

    The signature of older records has all fields, and so another one after each change of the
    schema. It shows whether the files that the config names are here as they were.
    """
    code = run["extension_code"]
    named = digest(run["config"], run["options"], code)
    before = digest_before_formats(run["as_written"], code, run["version"])
    return named if run["signature"] in (named, before) else ""


def is_of(run: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether a `run.json` is that of a run of this config.

    If a file that the config names is not here, its path counts and not its content.
    """
    fields, options, code = result_fields(config), option_names(config), extension_code(config)
    if all(content is not None for *_, content in named_files(fields)):
        return identity(run) == digest(fields, options, code)
    recorded = run["config"], run["options"], run["extension_code"]
    return digest(*recorded, contents=False) == digest(fields, options, code, contents=False)


def _stale(run: Mapping[str, Any], config: RunConfig) -> str:
    """Return why the numbers of a finished run may differ from those of this version; else ""."""
    if run["numbers"] != NUMBERS:
        return f"its numbers are of version {run['numbers']}, those of this code of {NUMBERS}"
    own = {name: probe for name, probe in config.probe.items() if isinstance(probe, ProbeConfig)}
    probes = run["probes"] | described_quantities(own)
    if run.get("columns") != columns_digest(run["config"], probes):
        return "its columns are not those of this version"
    return ""


# --- the config -----------------------------------------------------------------------------------


def recorded_config(run: Mapping[str, Any]) -> RunConfig:
    """Return the config of a `run.json`, built anew: its schema checks every field.

    Rules between fields are not checked: they may have been others. A plug-in, whose code is not
    run, is a mapping of its fields.
    """
    stated = {name: run[name] for name in ("sweep", "question", "device")}
    fields, options = {**values_before(RunConfig), **run["config"], **stated}, run["options"]
    _check_names("options", options, GROUPS)
    parts = in_parts(fields, options, partial(_built, fields["extensions"]))
    config: RunConfig = _built((), "", RunConfig, {**fields, **parts})
    return config


def _check_names(place: str, fields: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(known) ^ set(fields)):
        what = "missing" if name in known else "unknown field"
        raise ConfigError(f"{place}.{name}: {what}")


def _built(packages: Sequence[str], place: str, schema: Any, fields: Mapping[str, Any]) -> Any:
    """Return a part of the config, of which each field is checked by itself.

    A field that it lacks has its `values_before`. A plug-in must be of one of the `packages`.
    """
    target, place = str(fields.get("_target_", "")), f"config.{place}".rstrip(".")
    if schema is None:
        if package_of(target) not in packages:
            raise ConfigError(f"{place}._target_={target}: must be in config.extensions")
        return dict(fields)
    if target != (must := vars(schema).get("_target_", "")):
        raise ConfigError(f"{place}._target_={target}: must be {must}")
    part, fields = object.__new__(schema), {**values_before(schema), **fields}
    _check_names(place, fields, [f.name for f in dataclasses.fields(schema)])
    vars(part).update(copy.deepcopy(fields))
    check_fields(part, f"{place}.")
    return part
