"""The content of `run.json`, read and checked in one place."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnsvm.config import ConfigError, Quantity
from attnsvm.config.fields import check_fields, values_before
from attnsvm.config.identity import (
    OWN_PROBES,
    digest,
    digest_before_formats,
    extension_code,
    named_files,
    option_names,
    result_fields,
    schemas_of,
)
from attnsvm.config.probe import ProbeConfig, described_quantities
from attnsvm.config.run import GROUPS, SECTIONS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.sources import package_of
from attnsvm.config.version import FORMAT, NUMBERS
from attnsvm.record.columns import columns_digest, probe_columns
from attnsvm.record.files import (
    CorruptRecordError,
    OtherVersionError,
    read_json,
    refused,
)

RUN_FILE = "run.json"
TABLES = ("trials.parquet", "history.parquet", "solutions.npz")

MAX_RUN_BYTES = 2**22
"""Largest `run.json` that is read, in bytes."""

OTHER_VERSION = "made by another version of attnsvm"

FIELDS = {
    *("state", "signature", "device", "version", "code", "python", "sweep", "question"),
    *("git_revision", "options", "extension_code", "slurm", "packages", "hardware", "config"),
    *("probes", "overrides", "started_s", "format", "numbers"),
}
"""Names of the fields of every `run.json`."""

BEFORE_FORMATS: Mapping[str, Any] = {"format": 1, "numbers": 0}
"""The fields that records have had since they have a format, with the value of older ones."""

DONE = {"wanted", "drawn", "accepted", "statuses", "timings_s", "files"}
NOT_DONE = {"reason", "place", "traceback"}
"""Names of the fields of a run that is done, and of one that is not."""


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of the `run.json` in `folder`, its config checked by the schema.

    A field of the config that it lacks has its `values_before`; `as_written` is the config without
    these, and `stale` says why a finished run may have other numbers in this version, else "".
    FileNotFoundError if there is no file; UnreadableError if it cannot be read now;
    OtherVersionError if this version does not know its format or its config; CorruptRecordError if
    it is not what was written.
    """
    path = folder / RUN_FILE
    with refused(""):
        run = {**BEFORE_FORMATS, **read_json(path, MAX_RUN_BYTES)}
    try:
        if run["format"] != FORMAT:
            must = f"must be {FORMAT}, {OTHER_VERSION}"
            raise OtherVersionError(f"{path}: format={run['format']}: {must}")
        done = run.get("state") == "done"
        own = DONE if done else NOT_DONE
        for name in (*sorted(FIELDS - run.keys()), *sorted(own - run.keys())):
            raise ConfigError(f"{name}: missing")
        run, config = _of_this_version(run, path)
        if done:
            run["stale"] = _stale(run, config)
    except (OtherVersionError, MemoryError):
        raise
    except Exception as wrong:  # a check may raise any for what nobody wrote
        raise CorruptRecordError(f"{path}: {wrong}") from wrong
    return run


def _of_this_version(run: dict[str, Any], path: Path) -> tuple[dict[str, Any], RunConfig]:
    """Return a `run.json` with the fields of the config that it lacks, and the config.

    OtherVersionError if the config is none of this version.
    """
    try:
        _check_names(run["options"], set(GROUPS), "options")
        run = {**run, "config": _completed(run), "as_written": run["config"]}
        config = recorded_config(run)
        _check_probes(run["probes"], config.probe)
    except Exception as wrong:  # what the schema raises for what it does not know
        raise OtherVersionError(f"{path}: {wrong}, {OTHER_VERSION}") from wrong
    return run, config


def _completed(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a `run.json` with the fields that it lacks."""
    config = _with_before(RunConfig, run["config"])
    config = {name: value for name, value in config.items() if name not in WITHOUT_EFFECT}
    _check_names(config, NAMES, "config")
    for name, schema in schemas_of(run["options"]).items():
        config[name] = _with_before(schema, config[name])
    config["probe"] = {
        name: _with_before(OWN_PROBES.get(str(fields.get("_target_"))), fields)
        for name, fields in config["probe"].items()
    }
    return config


def _with_before(schema: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    before = values_before(schema) if schema else {}
    return {**copy.deepcopy(dict(before)), **fields}


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
    own = {name: one for name, one in config.probe.items() if isinstance(one, ProbeConfig)}
    probes = run["probes"] | described_quantities(own)
    if run.get("columns") != columns_digest(run["config"], probes):
        return "its columns are not those of this version"
    return ""


# --- the config -----------------------------------------------------------------------------------

NAMES = {f.name for f in dataclasses.fields(RunConfig)} - set(WITHOUT_EFFECT)


def recorded_config(run: Mapping[str, Any]) -> RunConfig:
    """Return the config of a `run.json`, built anew: its schema checks every field.

    Rules between fields are not checked: they may have been others. A plug-in, whose code is not
    run, is a namespace of its fields.
    """
    config, options = run["config"], run["options"]
    packages = config["extensions"]
    parts = {name: _built(schema, config[name], name) for name, schema in SECTIONS.items()}
    for group, schemas in GROUPS.items():
        schema = schemas.own.get(options[group])
        parts[group] = _option(config[group], schema, options[group], group, packages)
    parts["probe"] = probes = dict[str, Any]()
    for name, fields in config["probe"].items():
        schema = OWN_PROBES.get(str(fields.get("_target_")))
        probes[name] = _option(fields, schema, name, f"probe.{name}", packages)
    stated = {name: run[name] for name in ("sweep", "question", "device")}
    return _checked(RunConfig, {**_with_before(RunConfig, {}), **config, **parts, **stated})


def _check_names(fields: Mapping[str, Any], known: set[str], place: str) -> None:
    for name in sorted(known ^ set(fields)):
        what = "missing" if name in known else "unknown field"
        raise ConfigError(f"{place}.{name}: {what}")


def _option(
    fields: dict[str, Any], schema: type | None, option: str, name: str, packages: Sequence[str]
) -> Any:
    """Return an option of ours, checked by its schema, or the fields of a plug-in.

    The package of a plug-in must be one of `packages`.
    """
    target = str(fields.get("_target_", ""))
    if schema is not None:
        if target != (must := vars(schema)["_target_"]):
            raise ConfigError(f"config.{name}: must have _target_={must}")
        return _built(schema, fields, name)
    if package_of(target) not in packages:
        raise ConfigError(f"config.{name}: {option} is of no package in config.extensions")
    return SimpleNamespace(**fields)


def _built(schema: type, fields: Mapping[str, Any], name: str) -> Any:
    """Return a section of the config, of which each field is checked."""
    _check_names(fields, {f.name for f in dataclasses.fields(schema)}, f"config.{name}")
    return _checked(schema, fields, f"config.{name}.")


def _checked(schema: type, fields: Mapping[str, Any], place: str = "config.") -> Any:
    """Return an object of a schema with these fields, of which each is checked by itself."""
    part: Any = object.__new__(schema)
    vars(part).update(fields)
    check_fields(part, place)
    return part


def _check_probes(columns: Mapping[str, Mapping[str, str]], probes: Mapping[str, Any]) -> None:
    """Raise unless the columns are those of the probes, each with a meaning and a unit."""
    own = {name: one for name, one in probes.items() if isinstance(one, ProbeConfig)}
    of_plugins = tuple(f"{name}_" for name in probes.keys() - own.keys())
    declared = described_quantities(own)
    for name in columns:
        if name not in declared and not name.startswith(of_plugins):
            raise ConfigError(f"probes.{name}: must be a column of {', '.join(probes) or 'none'}")
    probe_columns({name: Quantity(one["meaning"], one["unit"]) for name, one in columns.items()})
