"""The content of `run.json`, read and checked in one place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from attnsvm.config import GROUPS, PROBES, WITHOUT_EFFECT, RunConfig, SelectionConfig, SvmConfig
from attnsvm.config.probe import MAX_NAME, MAX_TEXT, described_quantities
from attnsvm.config.sources import package_of
from attnsvm.record.columns import recorded_probe_columns
from attnsvm.record.files import CorruptRecordError, read_json

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


def plain(value: Any) -> bool:
    """Whether a value is a word, a finite number, true, false or null."""
    return value is None or isinstance(value, bool | str) or holds(value, float)


class _WrongError(Exception):
    """Names a field, its value and what it must be."""


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of the `run.json` in `folder`, every field of its declared type.

    Raises
    ------
    FileNotFoundError
        If there is none.
    CorruptRecordError
        If it is not what was written, lacks a field or has one of another type, or if another
        version wrote it: its config has other fields than the schema.
    """
    path = folder / RUN_FILE
    run = read_json(path, MAX_RUN_BYTES)
    try:
        _check_fields(run, FIELDS)
        _check_fields(run, DONE if run["state"] == "done" else NOT_DONE)
        _check_config(run["config"], run["options"])
        if set(run["extension_code"]) != set(run["config"]["extensions"]):
            raise _WrongError("extension_code: must name the packages of config.extensions")
        _check_probes(run["probes"], run["config"]["probe"], run["config"]["extensions"])
        if run["state"] == "done":
            _check_result(run)
    except _WrongError as wrong:
        raise CorruptRecordError(f"{path}: {wrong}") from wrong
    return run


def _check_fields(run: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    for name, kind in fields.items():
        if name not in run or not holds(run[name], kind):
            found = f"{name}={_shown(run[name])}:" if name in run else f"{name}: missing;"
            allowed = kind.__name__ if kind in (str, int, float) else kind
            raise _WrongError(f"{found} must be {allowed}")


def _shown(value: Any) -> str:
    """Return the start of a value; a number of more than 4300 digits cannot be written."""
    try:
        text = repr(value)
    except ValueError:
        text = "a very large number"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _check_result(run: Mapping[str, Any]) -> None:
    if set(run["files"]) != set(TABLES):
        raise _WrongError(f"files={_shown(run['files'])}: must be of {', '.join(TABLES)}")
    statuses = run["statuses"]
    if (sum(statuses.values()), statuses.get("ok", 0)) != (run["drawn"], run["accepted"]):
        raise _WrongError(
            f"statuses={_shown(statuses)}: must count drawn={run['drawn']} instances, "
            f"accepted={run['accepted']} of them ok"
        )


# --- the config -----------------------------------------------------------------------------------

NAMES = {f.name for f in dataclasses.fields(RunConfig)} - set(WITHOUT_EFFECT)
SECTIONS = {"selection": SelectionConfig, "svm": SvmConfig}


def _check_config(config: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Build the config anew: its schema checks type and range of every field."""
    _check_names(config, NAMES, "config")
    _check_names(options, set(GROUPS), "options")
    for name, kind in (("extensions", list[str]), ("probe", dict[str, dict[str, Any]])):
        if not holds(config[name], kind):
            raise _WrongError(f"config.{name}={_shown(config[name])}: must be {kind}")
    parts = {name: _section(config[name], schema, name) for name, schema in SECTIONS.items()}
    parts["probe"] = {}  # checked with the columns that they add
    for group in GROUPS:
        given, schema = config[group], GROUPS[group].own.get(options[group])
        if schema is None:
            _check_plugin(given, options[group], group, config["extensions"])
            parts[group] = None
        elif _target(given) != (target := vars(schema)["_target_"]):
            raise _WrongError(f"config.{group}={_shown(given)}: must have _target_={target}")
        else:
            parts[group] = _section(given, schema, group)
    _built(RunConfig, {**config, **parts})


def _target(given: Any) -> str:
    """Return the `_target_` of an option, "" if it has none."""
    target = given.get("_target_") if isinstance(given, dict) else None
    return target if isinstance(target, str) else ""


def _check_names(given: Any, known: set[str], place: str) -> None:
    if not isinstance(given, dict):
        raise _WrongError(f"{place}={_shown(given)}: must be fields by name")
    for name in sorted(known ^ set(given)):
        what = "missing" if name in known else "unknown field"
        raise _WrongError(f"{place}.{name}: {what}, {OTHER_VERSION}")


def _section(given: Any, schema: type, name: str) -> Any:
    """Return the section of the config that a record gives, checked by its schema."""
    _check_names(given, {f.name for f in dataclasses.fields(schema)}, f"config.{name}")
    _check_plain(given, name)
    return _built(schema, given)


def _check_plain(section: Mapping[str, Any], name: str) -> None:
    for field, value in section.items():
        if not all(map(plain, value if isinstance(value, list) else [value])):
            shown = _shown(value)
            raise _WrongError(f"config.{name}.{field}={shown}: must be words or finite numbers")


def _check_plugin(given: Any, option: str, group: str, packages: Sequence[str]) -> None:
    """Raise unless a class is named by itself, or by an option that its package declares.

    The code of a plug-in is not run.
    """
    target = _target(given)
    declared = option.isidentifier() and package_of(target) in packages
    if not target or (target != option and not declared):
        raise _WrongError(f"config.{group}={_shown(given)}: must have _target_={option}")
    if len(given) > MAX_NAMES:
        raise _WrongError(f"config.{group}: {len(given)} fields; must be at most {MAX_NAMES}")
    for field in given:
        _check_word(field, f"config.{group}")
    _check_plain(given, group)


def _check_word(name: str, place: str) -> None:
    if not name.isidentifier() or len(name) > MAX_WORD:
        raise _WrongError(f"{place}.{_shown(name)}: must be a word")


def _built(schema: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
    try:
        return schema(**fields)
    except Exception as error:  # the schema of a plug-in may raise any
        raise _WrongError(f"config.{error}") from error


def _check_probes(
    columns: Mapping[str, Mapping[str, str]], config: Mapping[str, Any], packages: Sequence[str]
) -> None:
    """Raise unless the columns are those of the probes, each with a meaning and a unit."""
    schemas = {vars(schema)["_target_"]: schema for schema in PROBES.own.values()}
    expected: dict[str, Any] = {}
    of_plugins = []
    for name, given in config.items():
        _check_word(name, "config.probe")
        if schema := schemas.get(_target(given)):
            expected[name] = _section(given, schema, f"probe.{name}")
        else:
            _check_plugin(given, name, f"probe.{name}", packages)
            of_plugins.append(f"{name}_")
    declared = described_quantities(expected)
    for name, stated in columns.items():
        _check_word(name, "probes")
        sound = all(text.isprintable() and len(text) <= MAX_TEXT for text in stated.values())
        known = name in declared or name.startswith(tuple(of_plugins))
        if not (sound and known and set(stated) == {"meaning", "unit"}):
            probes = ", ".join(config) or "none"
            raise _WrongError(f"probes.{name}: must be a column of {probes}, meaning and unit")
        if declared.get(name, stated) != stated:
            raise _WrongError(f"probes.{name}: must be {declared[name]}")
    for name in declared.keys() - columns.keys():
        raise _WrongError(f"probes.{name}: missing, {OTHER_VERSION}")
    _built(recorded_probe_columns, {"probes": columns})
