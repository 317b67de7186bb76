"""The plan of a sweep: its runs by folder, with their overrides; and their states."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError
from attnsvm.record.files import (
    MAX_JSON_BYTES,
    CorruptRecordError,
    kind_of,
    read_json,
    remove_orphans,
    write_atomically,
    write_json,
)
from attnsvm.record.lock import LOCK_FILE, HeldError, locked, require_locks
from attnsvm.record.run import RUN_FILE, count, plain
from attnsvm.record.state import RunState, obstacle, run_state
from attnsvm.record.text import shortened

log = logging.getLogger(__name__)

PLAN_FILE = "sweep.json"

LATEST = Path("multirun/latest")
"""A link to the folder of the last sweep that was started from the current folder."""

MAX_PLAN_BYTES = MAX_JSON_BYTES - 2**10
"""Largest plan: its reader takes no larger file, and a checksum is added."""

MAX_RUNS = 100_000
"""Largest number of runs of a sweep."""


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep.

    Attributes
    ----------
    runs : mapping of str to list of str
        The overrides of every run, by the name of its folder.
    fields : mapping of str to mapping
        The fields of every run's config, by the name of its folder; {} if they are not known.
    command : list of str or None
        The arguments of `attnsvm` that began the sweep; None if they are not known.
    """

    runs: Mapping[str, list[str]]
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    command: list[str] | None = None


def write_plan(
    folder: Path,
    cells: Mapping[str, list[str]],
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the runs (folder name -> overrides) of the sweep in `folder`.

    `fields` are those of every run's config: a run without a record is described by them.

    Raises
    ------
    ConfigError
        If there are more than MAX_RUNS runs.
    CorruptRecordError
        If something else than a file lies in the place of the plan.
    """
    if len(cells) > MAX_RUNS:
        raise ConfigError(f"{len(cells)} runs in one sweep: must be at most {MAX_RUNS}")
    if (kind := kind_of(folder / PLAN_FILE)) not in ("a file", "nothing"):
        raise CorruptRecordError(f"{folder / PLAN_FILE}: is {kind}; must be a file")
    folder.mkdir(parents=True, exist_ok=True)
    command = {"command": sys.argv[1:], "runs": dict(cells)}
    content = command | {"fields": _factored(fields or {})}
    if (size := len(json.dumps(content, default=str, indent=1))) > MAX_PLAN_BYTES:
        raise ConfigError(
            f"{len(cells)} runs in one sweep: their plan has {size} bytes; must have at most "
            f"{MAX_PLAN_BYTES}: split the sweep"
        )
    write_json(folder / PLAN_FILE, content)


def _factored(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that all runs share, once, and the rest of every run."""
    runs = list(fields.values())
    shared = {
        name: value
        for name, value in (runs[0].items() if runs else ())
        if all(name in run and run[name] == value for run in runs)
    }
    own = {
        run: {name: value for name, value in given.items() if name not in shared}
        for run, given in fields.items()
    }
    return {"shared": shared, "own": own}


def tidy(folder: Path) -> None:
    """Remove the temporary files and the lock that a killed process left beside a record."""
    remove_orphans(folder)
    if kind_of(folder / LOCK_FILE) == "a file":
        with suppress(HeldError, CorruptRecordError), locked(folder, patience_s=0):
            pass  # releasing a lock removes it


def begin_sweep(
    folder: Path,
    cells: Mapping[str, list[str]],
    fields: Mapping[str, Mapping[str, Any]],
    composed: str,
) -> dict[str, list[str]]:
    """Write the plan of a sweep, remove orphaned files, and return the pending cells.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    cells : mapping of str to list of str
        Overrides of every run, by the name of its folder.
    fields : mapping of str to mapping
        The fields of every run's config, by the name of its folder.
    composed : str
        The config of the sweep, for `multirun.yaml`.

    Raises
    ------
    NoLocksError
        If the file system of the folder does not support locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_locks(folder)
    write_plan(folder, cells, fields)
    write_atomically(folder / "multirun.yaml", composed.encode())
    link_latest(folder)
    for below in (folder, folder / "figures", folder / "tables"):
        remove_orphans(below)
    found = {name: run_state(folder / name).state for name in cells}
    for name, state in found.items():
        if state == "done":
            tidy(folder / name)
    counts = ", ".join(f"{n} {state}" for state, n in sorted(Counter(found.values()).items()))
    log.info("%d runs: %s in %s", len(cells), counts, folder)
    return {n: cell for n, cell in cells.items() if found[n] not in ("done", "running")}


def unobstructed(folder: Path, cells: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the cells whose folder can be written; name what keeps the others from it."""
    obstacles = {name: obstacle(folder / name) for name in cells}
    for message in filter(None, obstacles.values()):
        log.error("%s", message)
    return {name: cell for name, cell in cells.items() if not obstacles[name]}


def link_latest(folder: Path) -> None:
    """Make LATEST a relative link to `folder`; a reader sees the old or the new link."""
    try:
        LATEST.parent.mkdir(exist_ok=True)
        target = os.path.relpath(folder.resolve(), LATEST.parent.resolve())
        with tempfile.TemporaryDirectory(dir=LATEST.parent, prefix=".latest.") as beside:
            link = Path(beside, "link")
            link.symlink_to(target)
            os.replace(link, LATEST)
    except OSError as error:  # a folder of that name, or a current folder that is read-only
        log.warning("%s: cannot be made a link to %s (%s)", LATEST, folder, error.strerror)


def read_plan(directory: Path) -> Plan | None:
    """Return the plan of the sweep in `directory`; None without one.

    Raises
    ------
    CorruptRecordError
        If it differs from what was written, has another form, or names folders outside of the
        sweep's.
    """
    path = directory / PLAN_FILE
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CorruptRecordError(f"{path}: cannot be read ({error.strerror})") from error
    runs, command = content.get("runs"), content.get("command")
    if not (isinstance(runs, dict) and runs and all(map(_words, runs.values()))):
        raise CorruptRecordError(f"{path}: runs: must be lists of overrides by folder name")
    if len(runs) > MAX_RUNS:
        raise CorruptRecordError(f"{path}: has {len(runs)} runs; must have at most {MAX_RUNS}")
    for name in runs:
        if not _names_folder(name):
            message = shortened(repr(name), 60)
            raise CorruptRecordError(f"{path}: {message} must be the name of a folder beside it")
    if not (command is None or _words(command)):
        raise CorruptRecordError(f"{path}: command: must be a list of words")
    return Plan(runs, _fields(content.get("fields"), path), command)


def planned(directory: Path) -> Mapping[str, list[str]] | None:
    """Return folder name -> overrides of the sweep's runs; None without a plan.

    Raises
    ------
    CorruptRecordError
        As `read_plan`.
    """
    plan = read_plan(directory)
    return None if plan is None else plan.runs


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _names_folder(name: str) -> bool:
    """Whether `name` is that of a folder beside the plan, on every system."""
    outside = name in ("", ".", "..") or name != Path(name).name
    return not outside and "\0" not in name and len(name.encode()) <= 255


def _fields(given: Any, path: Path) -> dict[str, dict[str, Any]]:
    """Return folder name -> fields of the config of every run, from the factored form."""
    match given:
        case None:
            return {}
        case {"shared": dict(shared), "own": dict(own)}:
            parts = [shared, *own.values()]
            if all(map(_plain_fields, parts)):
                return {name: {**shared, **rest} for name, rest in own.items()}
    raise CorruptRecordError(f"{path}: fields: must be words and numbers by field")


def _plain_fields(part: Any) -> bool:
    if not isinstance(part, dict) or not all(map(plain, part.values())):
        return False
    return all(count(part[name]) for name in ("trials", "seed") if name in part)


def recorded(directory: Path) -> list[Path]:
    """Return the folders below `directory` with a record, whatever lies in the place of it."""
    try:
        folders = sorted(directory.iterdir())
    except NotADirectoryError:
        return []
    return [
        folder for folder in folders if folder.is_dir() and kind_of(folder / RUN_FILE) != "nothing"
    ]


def states(directory: Path) -> dict[str, RunState]:
    """Return the state of every run of the sweep in `directory`, or of the run in it.

    Raises
    ------
    FileNotFoundError
        If there is neither a plan nor a record.
    """
    if kind_of(directory / RUN_FILE) != "nothing":
        directory = directory.resolve()  # "." has no name
        return {directory.name: run_state(directory)}
    found: dict[str, RunState] = {}
    names: Iterable[str] | None = None
    try:
        names = planned(directory)
    except CorruptRecordError as error:
        found[PLAN_FILE] = RunState("corrupt", shortened(error))
    if names is None:
        names = [path.name for path in recorded(directory)]
    if not names and not found:
        raise FileNotFoundError(f"{directory}: holds no sweep (no {PLAN_FILE}, no */{RUN_FILE})")
    return found | {name: run_state(directory / name) for name in sorted(names)}
