"""The content of `run.json`, read and checked in one place."""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, get_args, get_origin

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
from attnsvm.config.probe import MAX_NAME, MAX_TEXT, ProbeConfig, described_quantities
from attnsvm.config.run import GROUPS, SECTIONS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.sources import package_of
from attnsvm.config.version import FORMAT, NUMBERS
from attnsvm.record.columns import columns_digest, probe_columns
from attnsvm.record.files import (
    CorruptRecordError,
    OtherVersionError,
    read_json,
    refused,
    shortened,
)

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
    **dict.fromkeys(("format", "numbers"), int),
}
BEFORE_FORMATS: Mapping[str, Any] = {"format": 1, "numbers": 0}
"""The fields that records have had since they have a format, with the value of older ones."""

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
        if holds(run["format"], int) and run["format"] != FORMAT:
            must = f"must be {FORMAT}, {OTHER_VERSION}"
            raise OtherVersionError(f"{path}: format={run['format']}: {must}")
        _check_fields(run, FIELDS)
        _check_fields(run, DONE if run["state"] == "done" else NOT_DONE)
        run, config = _of_this_version(run, path)
        if set(run["extension_code"]) != set(run["config"]["extensions"]):
            raise ConfigError("extension_code: must name the packages of config.extensions")
        if run["state"] == "done":
            _check_result(run)
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
    _check_fields(config, CONFIG, "config.")
    for name, schema in schemas_of(run["options"]).items():
        config[name] = _with_before(schema, config[name])
    config["probe"] = {
        name: _with_before(OWN_PROBES.get(str(fields.get("_target_"))), fields)
        for name, fields in config["probe"].items()
    }
    return config


def _with_before(schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    before = values_before(schema) if schema else {}
    return {**copy.deepcopy(dict(before)), **given}


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
    ours = {name: one for name, one in config.probe.items() if isinstance(one, ProbeConfig)}
    probes = run["probes"] | described_quantities(ours)
    if run.get("columns") != columns_digest(run["config"], probes):
        return "its columns are not those of this version"
    return ""


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


# --- the config -----------------------------------------------------------------------------------

NAMES = {f.name for f in dataclasses.fields(RunConfig)} - set(WITHOUT_EFFECT)
CONFIG: Mapping[str, Any] = {
    **dict.fromkeys((*GROUPS, *SECTIONS), SECTION),
    "extensions": list[str],
    "probe": dict[str, SECTION],
}
"""The types of the fields of the config that are not checked by `RunConfig` itself."""


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
    for name, given in config["probe"].items():
        _check_word(name, "config.probe")
        schema = OWN_PROBES.get(str(given.get("_target_")))
        probes[name] = _option(given, schema, name, f"probe.{name}", packages)
    stated = {name: run[name] for name in ("sweep", "question", "device")}
    return _checked(RunConfig, {**_with_before(RunConfig, {}), **config, **parts, **stated})


def _check_names(given: Mapping[str, Any], known: set[str], place: str) -> None:
    for name in sorted(known ^ set(given)):
        what = "missing" if name in known else "unknown field"
        raise ConfigError(f"{place}.{name}: {what}")


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
    """Return a section of the config, of which each field is checked."""
    _check_names(given, {f.name for f in dataclasses.fields(schema)}, f"config.{name}")
    return _checked(schema, given, f"config.{name}.")


def _checked(schema: type, fields: Mapping[str, Any], place: str = "config.") -> Any:
    """Return an object of a schema with these fields, of which each is checked by itself."""
    part: Any = object.__new__(schema)
    vars(part).update(fields)
    check_fields(part, place)
    return part


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
    probe_columns({name: Quantity(one["meaning"], one["unit"]) for name, one in columns.items()})
