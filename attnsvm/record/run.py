"""The content of `run.json`, read and checked in one place."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, get_args, get_origin

from attnsvm.config import ConfigError, Quantity
from attnsvm.config.probe import MAX_NAME, MAX_TEXT, ProbeConfig, described_quantities
from attnsvm.config.run import GROUPS, PROBES, SECTIONS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.sources import package_of
from attnsvm.record.columns import columns_digest, probe_columns
from attnsvm.record.files import CorruptRecordError, read_json, shortened

RUN_FILE = "run.json"
TABLES = ("trials.parquet", "history.parquet", "solutions.npz")

MAX_RUN_BYTES = 2**22
"""Largest `run.json` that is read, in bytes."""

MAX_COUNT = 2**53
"""Largest whole number in a record: a float holds it exactly."""

MAX_NAMES = 1000
"""Largest number of statuses, stages, packages or fields of a plug-in that a record names."""

MAX_WORD = 2 * MAX_NAME
"""Largest number of characters of the name of a field, or of a column of a probe."""

OTHER_VERSION = "made by another version of attnsvm"

PLAIN = str | float | bool | None
SECTION = dict[str, PLAIN | list[PLAIN]]
"""The types of a field of the config, and of an option of a group with its fields."""

FIELDS: Mapping[str, Any] = {
    "state": Literal["done", "failed", "interrupted"],  # the others follow from what is missing
    **dict.fromkeys(("signature", "device", "version", "code", "python"), str),
    **dict.fromkeys(("sweep", "question", "git_revision"), str | None),
    **dict.fromkeys(("options", "extension_code", "slurm"), dict[str, str]),
    "packages": dict[str, str | None],
    "hardware": dict[str, str | float | bool | None],
    "config": dict[str, Any],
    "probes": dict[str, dict[str, str]],
    "overrides": list[str],
    "started_s": float,
}
DONE: Mapping[str, Any] = {
    **dict.fromkeys(("wanted", "drawn", "accepted"), int),
    "statuses": dict[str, int],
    "timings_s": dict[str, float],
    "files": dict[str, str],
}
NOT_DONE: Mapping[str, Any] = dict.fromkeys(("reason", "place", "traceback"), str)
"""The types of the fields of every run, of one that is done, and of one that is not."""


def holds(value: Any, kind: Any) -> bool:
    """Whether a value is of a type as in FIELDS: an int is >= 0, a float finite or any integer."""
    if kind is int:
        return type(value) is int and 0 <= value <= MAX_COUNT
    if kind is float:
        whole = type(value) is int and abs(value) <= MAX_COUNT
        return whole or (type(value) is float and math.isfinite(value))
    if kind in (str, bool, NoneType):
        return isinstance(value, kind)
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(holds(value, part) for part in parts)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(holds(one, parts[0]) for one in value)
    if get_origin(kind) is dict:
        few = isinstance(value, dict) and len(value) <= MAX_NAMES
        return few and all(holds(one, parts[1]) for one in value.values())
    return kind is Any or value in parts


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of the `run.json` in `folder`, every field of its declared type.

    FileNotFoundError if there is none; CorruptRecordError if it is not what was written, lacks a
    field, has one of another type, or is of another version: its config has other fields.
    """
    path = folder / RUN_FILE
    run = read_json(path, MAX_RUN_BYTES)
    try:
        _check_fields(run, FIELDS)
        _check_fields(run, DONE if run["state"] == "done" else NOT_DONE)
        config = recorded_config(run)
        if set(run["extension_code"]) != set(config.extensions):
            raise ConfigError("extension_code: must name the packages of config.extensions")
        _check_probes(run["probes"], config.probe)
        if run["state"] == "done":
            _check_result(run)
    except Exception as wrong:  # a check of the schema may raise any for what nobody wrote
        raise CorruptRecordError(f"{path}: {wrong}") from wrong
    return run


def _check_fields(run: Mapping[str, Any], fields: Mapping[str, Any], place: str = "") -> None:
    for name, kind in fields.items():
        if name not in run or not holds(run[name], kind):
            value = f"={_start(run[name])}:" if name in run else ": missing;"
            allowed = kind.__name__ if kind in (str, int, float) else kind
            raise ConfigError(f"{place}{name}{value} must be {allowed}")


def _start(value: Any) -> str:
    """Return the start of a value as text."""
    return shortened(repr(value), 60)


def _check_result(run: Mapping[str, Any]) -> None:
    if set(run["files"]) != set(TABLES):
        raise ConfigError(f"files={_start(run['files'])}: must be of {', '.join(TABLES)}")
    statuses = run["statuses"]
    if (sum(statuses.values()), statuses.get("ok", 0)) != (run["drawn"], run["accepted"]):
        raise ConfigError(
            f"statuses={_start(statuses)}: must count drawn={run['drawn']} instances, "
            f"accepted={run['accepted']} of them ok"
        )
    columns = columns_digest(run["config"], run["probes"])
    if run.get("columns", columns) != columns:  # absent from the oldest records
        raise ConfigError(f"columns={_start(run['columns'])}: must be {columns}, {OTHER_VERSION}")


# --- the config -----------------------------------------------------------------------------------

NAMES = {f.name for f in dataclasses.fields(RunConfig)} - set(WITHOUT_EFFECT)
CONFIG: Mapping[str, Any] = {
    **dict.fromkeys((*GROUPS, *SECTIONS), SECTION),
    "extensions": list[str],
    "probe": dict[str, SECTION],
}
"""The types of the fields of the config that are not checked by `RunConfig` itself."""

OF_PROBES = {vars(schema)["_target_"]: schema for schema in PROBES.own.values()}


def recorded_config(run: Mapping[str, Any]) -> RunConfig:
    """Return the config of a `run.json`, built anew: its schema checks every field.

    A plug-in, whose code is not run, is a namespace of its fields.
    """
    config, options = run["config"], run["options"]
    _check_names(config, NAMES, "config")
    _check_names(options, set(GROUPS), "options")
    _check_fields(config, CONFIG, "config.")
    packages = config["extensions"]
    parts = {name: _built(schema, config[name], name) for name, schema in SECTIONS.items()}
    for group, schemas in GROUPS.items():
        schema = schemas.own.get(options[group])
        parts[group] = _option(config[group], schema, options[group], group, packages)
    parts["probe"] = probes = dict[str, Any]()
    for name, given in config["probe"].items():
        _check_word(name, "config.probe")
        schema = OF_PROBES.get(str(given.get("_target_")))
        probes[name] = _option(given, schema, name, f"probe.{name}", packages)
    stated = {name: run[name] for name in ("sweep", "question", "device")}
    return RunConfig(**{**config, **parts, **stated})


def _check_names(given: Mapping[str, Any], known: set[str], place: str) -> None:
    for name in sorted(known ^ set(given)):
        what = "missing" if name in known else "unknown field"
        raise ConfigError(f"{place}.{name}: {what}, {OTHER_VERSION}")


def _option(
    given: dict[str, Any], schema: type | None, option: str, name: str, packages: Sequence[str]
) -> Any:
    """Return an option of ours, checked by its schema, or the fields of a plug-in.

    A plug-in is named by its class, or by an option that its package declares.
    """
    target = str(given.get("_target_", ""))
    if schema is not None:
        if target != (must := vars(schema)["_target_"]):
            raise ConfigError(f"config.{name}={_start(given)}: must have _target_={must}")
        return _built(schema, given, name)
    named, package = option == target or option.isidentifier(), package_of(target)
    if not (target and named and package in packages and package != "attnsvm"):
        must = f"must have _target_={option}, or that of a package in config.extensions"
        raise ConfigError(f"config.{name}={_start(given)}: {must}")
    for field in given:
        _check_word(field, f"config.{name}")
    return SimpleNamespace(**given)


def _built(schema: type, given: Mapping[str, Any], name: str) -> Any:
    """Return a section of the config, which its schema checks."""
    _check_names(given, {f.name for f in dataclasses.fields(schema)}, f"config.{name}")
    try:
        return schema(**given)
    except ConfigError as error:
        raise ConfigError(f"config.{error}") from error


def _check_word(name: str, place: str) -> None:
    if not name.isidentifier() or len(name) > MAX_WORD:
        raise ConfigError(f"{place}.{_start(name)}: must be a word")


def _check_probes(columns: Mapping[str, Mapping[str, str]], probes: Mapping[str, Any]) -> None:
    """Raise unless the columns are those of the probes, each with a meaning and a unit."""
    ours = {name: one for name, one in probes.items() if isinstance(one, ProbeConfig)}
    of_plugins = tuple(f"{name}_" for name in probes.keys() - ours.keys())
    declared = described_quantities(ours)
    for name, stated in columns.items():
        _check_word(name, "probes")
        sound = all(text.isprintable() and len(text) <= MAX_TEXT for text in stated.values())
        known = name in declared or name.startswith(of_plugins)
        if not (sound and known and set(stated) == {"meaning", "unit"}):
            words = ", ".join(probes) or "none"
            raise ConfigError(f"probes.{name}: must be a column of {words}, meaning and unit")
        if declared.get(name, stated) != stated:
            raise ConfigError(f"probes.{name}: must be {declared[name]}")
    for name in declared.keys() - columns.keys():
        raise ConfigError(f"probes.{name}: missing, {OTHER_VERSION}")
    probe_columns({name: Quantity(one["meaning"], one["unit"]) for name, one in columns.items()})
