"""The content of `run.json`, read and checked in one place."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnsvm.config import GROUPS, PROBES, WITHOUT_EFFECT, RunConfig, SelectionConfig, SvmConfig
from attnsvm.config.code import package_of
from attnsvm.config.probe import MAX_NAME, MAX_TEXT, described_quantities
from attnsvm.record.columns import recorded_probe_columns
from attnsvm.record.files import CorruptRecordError, read_json

RUN_FILE = "run.json"
TABLES = ("trials.parquet", "history.parquet", "solutions.npz")

ENDS = ("done", "failed", "interrupted")
"""States that a `run.json` can state; the others follow from what is missing."""

MAX_RUN_BYTES = 2**22
"""Largest `run.json` that is read, in bytes."""

MAX_COUNT = 2**53
"""Largest whole number in a record: a float holds it exactly."""

MAX_NAMES = 1000
"""Largest number of statuses, stages, packages or fields of a plug-in that a record names."""

MAX_WORD = 2 * MAX_NAME
"""Largest number of characters of the name of a field, or of a column of a probe."""

OTHER_VERSION = "made by another version of attnsvm"


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
            _check_counts(run)
    except _WrongError as wrong:
        raise CorruptRecordError(f"{path}: {wrong}") from wrong
    return run


class _WrongError(Exception):
    """Names a field, its value and what it must be."""


# --- the types of values --------------------------------------------------------------------------

Check = Callable[[Any], bool]


def count(value: Any) -> bool:
    """Whether a value is a whole number >= 0."""
    return type(value) is int and 0 <= value <= MAX_COUNT


def _number(value: Any) -> bool:
    whole = type(value) is int and abs(value) <= MAX_COUNT
    return whole or (type(value) is float and math.isfinite(value))


def _word(value: Any) -> bool:
    return isinstance(value, str)


def _optional(holds: Check) -> Check:
    return lambda value: value is None or holds(value)


def _each(holds: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def _by_name(holds: Check) -> Check:
    return lambda value: (
        isinstance(value, dict) and len(value) <= MAX_NAMES and all(map(holds, value.values()))
    )


def _digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def plain(value: Any) -> bool:
    """Whether a value is a word, a number, true, false or null."""
    return value is None or isinstance(value, bool | str) or _number(value)


FIELDS: Mapping[str, tuple[Check, str]] = {
    "state": (lambda value: value in ENDS, " | ".join(ENDS)),
    "signature": (_word, "a word"),
    "config": (lambda value: isinstance(value, dict), "the fields of the config by name"),
    "options": (_by_name(_word), "the option of every group by name"),
    "sweep": (_optional(_word), "a word or null"),
    "question": (_optional(_word), "a word or null"),
    "device": (_word, "a word"),
    "overrides": (_each(_word), "a list of words"),
    "version": (_word, "a word"),
    "git_revision": (_optional(_word), "a word or null"),
    "code": (_word, "a word"),
    "extension_code": (_by_name(_word), "the digest of the code of every plug-in's package"),
    "probes": (_by_name(lambda value: isinstance(value, dict)), "columns with meaning and unit"),
    "packages": (_by_name(_optional(_word)), "versions by name"),
    "python": (_word, "a word"),
    "hardware": (_by_name(plain), "words or numbers by name"),
    "slurm": (_by_name(_word), "words by name"),
    "started_s": (_number, "a number"),
}
DONE: Mapping[str, tuple[Check, str]] = {
    "wanted": (count, "a whole number >= 0"),
    "drawn": (count, "a whole number >= 0"),
    "accepted": (count, "a whole number >= 0"),
    "statuses": (_by_name(count), "whole numbers by name"),
    "timings_s": (_by_name(_number), "numbers by name"),
    "files": (
        lambda value: _by_name(_digest)(value) and set(value) == set(TABLES),
        f"the sha256 of {', '.join(TABLES)}",
    ),
}
NOT_DONE: Mapping[str, tuple[Check, str]] = {
    "reason": (_word, "a word"),
    "place": (_word, "a word"),
    "traceback": (_word, "a word"),
}


def _check_fields(run: Mapping[str, Any], fields: Mapping[str, tuple[Check, str]]) -> None:
    for name, (holds, allowed) in fields.items():
        if name not in run:
            raise _WrongError(f"{name}: missing; must be {allowed}")
        if not holds(run[name]):
            raise _WrongError(f"{name}={_shown(run[name])}: must be {allowed}")


def _shown(value: Any) -> str:
    """Return the start of a value; a number of more than 4300 digits cannot be written."""
    try:
        text = repr(value)
    except ValueError:
        text = "a very large number"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _check_counts(run: Mapping[str, Any]) -> None:
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
    parts = {name: _section(config[name], schema, name) for name, schema in SECTIONS.items()}
    packages = config["extensions"]
    if not _each(_word)(packages):
        raise _WrongError(f"config.extensions={_shown(packages)}: must be words")
    if not isinstance(config["probe"], dict):
        raise _WrongError(f"config.probe={_shown(config['probe'])}: must be probes by name")
    parts["probe"] = {}  # checked with the columns that they add
    parts |= {group: _option(config[group], options[group], group, packages) for group in GROUPS}
    rest = {name: value for name, value in config.items() if name not in parts}
    _built(RunConfig, {**rest, **parts})


def _check_names(given: Any, known: set[str], place: str) -> None:
    if not isinstance(given, dict):
        raise _WrongError(f"{place}={_shown(given)}: must be fields by name")
    for name in sorted(known ^ set(given)):
        what = "missing" if name in known else "unknown field"
        raise _WrongError(f"{place}.{name}: {what}, {OTHER_VERSION}")


def _section(given: Any, schema: type, name: str) -> Any:
    """Return the section of the config that a record gives, checked by its schema."""
    _check_names(given, {f.name for f in dataclasses.fields(schema)}, f"config.{name}")
    for field, value in given.items():
        _check_plain(value, f"config.{name}.{field}")
    return _built(schema, given)


def _option(given: Any, option: str, group: str, packages: Sequence[str]) -> Any:
    """Return the chosen option of a group; None for that of a plug-in, whose code is not run."""
    schema = GROUPS[group].own.get(option)
    if schema is None:
        return _option_of_plugin(given, option, group, packages)
    target = vars(schema)["_target_"]
    if not isinstance(given, dict) or given.get("_target_") != target:
        raise _WrongError(f"config.{group}={_shown(given)}: must have _target_={target}")
    return _section(given, schema, group)


def _option_of_plugin(given: Any, option: str, group: str, packages: Sequence[str]) -> None:
    """Raise unless a class is named by itself, or by an option that its package declares."""
    target = given.get("_target_") if isinstance(given, dict) else None
    declared = option.isidentifier() and package_of(str(target)) in packages
    if not isinstance(target, str) or (target != option and not declared):
        raise _WrongError(f"config.{group}={_shown(given)}: must have _target_={option}")
    if len(given) > MAX_NAMES:
        raise _WrongError(f"config.{group}: {len(given)} fields; must be at most {MAX_NAMES}")
    for field, value in given.items():
        if not field.isidentifier() or len(field) > MAX_WORD:
            raise _WrongError(f"config.{group}.{_shown(field)}: must be a word")
        _check_plain(value, f"config.{group}.{field}")


# --- probes ---------------------------------------------------------------------------------------


def _check_probes(
    columns: Mapping[str, Any], config: Mapping[str, Any], packages: Sequence[str]
) -> None:
    """Raise unless the columns are those of the probes, each with a meaning and a unit."""
    own = {vars(schema)["_target_"]: schema for schema in PROBES.own.values()}
    expected: dict[str, Any] = {}
    foreign = []
    for name, given in config.items():
        target = given.get("_target_") if isinstance(given, dict) else None
        if not name.isidentifier() or len(name) > MAX_WORD:
            raise _WrongError(f"config.probe.{_shown(name)}: must be a word")
        if target in own:
            expected[name] = _section(given, own[target], f"probe.{name}")
            continue
        _option_of_plugin(given, name, f"probe.{name}", packages)
        foreign.append(f"{name}_")
    declared = described_quantities(expected)
    for name, stated in columns.items():
        if not name.isidentifier() or len(name) > MAX_WORD or not _described(stated):
            raise _WrongError(f"probes.{_shown(name)}: must be a column with meaning and unit")
        known = name in declared or name.startswith(tuple(foreign))
        if not known or declared.get(name, stated) != stated:
            raise _WrongError(f"probes.{name}: must be a column of {', '.join(config) or 'none'}")
    for name in declared.keys() - columns.keys():
        raise _WrongError(f"probes.{name}: missing, {OTHER_VERSION}")
    _built(recorded_probe_columns, {"probes": columns})


def _described(stated: Any) -> bool:
    return set(stated) == {"meaning", "unit"} and all(
        isinstance(text, str) and text.isprintable() and len(text) <= MAX_TEXT
        for text in stated.values()
    )


def _check_plain(value: Any, name: str) -> None:
    for one in value if isinstance(value, list) else [value]:
        if not plain(one):
            raise _WrongError(f"{name}={_shown(value)}: must be words or finite numbers")


def _built(schema: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
    try:
        return schema(**fields)
    except Exception as error:  # the schema of a plug-in may raise any
        raise _WrongError(f"config.{error}") from error
