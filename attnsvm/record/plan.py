"""The plan of a sweep: its runs by folder, with their overrides; and their states."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError, RunConfig
from attnsvm.record.files import (
    CorruptRecordError,
    kind_of,
    read_json,
    refused,
    remove_orphans,
    shortened,
    write_atomically,
    write_json,
)
from attnsvm.record.run import RUN_FILE, is_of
from attnsvm.record.state import (
    FINISHED,
    KEPT,
    LOCK_FILE,
    NEW,
    HeldError,
    RunState,
    complete,
    locked,
    obstacle,
    run_state,
)

log = logging.getLogger(__name__)

PLAN_FILE = "sweep.json"

LATEST = Path("multirun/latest")
"""A link to the folder of the last run or sweep that was started from the current folder."""

SIGNATURE = len("-0123456789ab")
"""Characters at the end of a folder's name that are of the signature of its run."""

MAX_RUNS = 100_000
"""Largest number of runs of a sweep."""

SWEEP_S = 60.0
"""Seconds to wait for another process that begins the same sweep."""


@dataclass(frozen=True)
class Plan:
    """The overrides and the fields of the config of every run, by the name of its folder.

    A folder without a plan has no runs; fields and the command may be unknown. `skipped` are the
    cells of the grid that cannot be: their overrides, and why.
    """

    runs: Mapping[str, list[str]] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    command: list[str] | None = None
    """The arguments of `attnsvm` that began the sweep."""


def write_plan(
    folder: Path,
    cells: Mapping[str, list[str]],
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> None:
    """Write the runs (folder name -> overrides) of the sweep in `folder`.

    `fields` are those of every run's config, which describe a run without a record; in the file
    those that all runs share stand once. `skipped` are the cells that cannot be, and why.
    """
    if len(cells) > MAX_RUNS:
        raise ConfigError(f"{len(cells)} runs in one sweep: must be at most {MAX_RUNS}")
    if (kind := kind_of(folder / PLAN_FILE)) not in ("a file", "nothing"):
        raise CorruptRecordError(f"{folder / PLAN_FILE}: is {kind}; must be a file")
    folder.mkdir(parents=True, exist_ok=True)
    of_runs = fields or {}
    items = [set(values.items()) for values in of_runs.values()]
    shared = dict(set.intersection(*items)) if items else {}
    own = {run: dict(values.items() - shared.items()) for run, values in of_runs.items()}
    content: dict[str, Any] = {"command": sys.argv[1:], "runs": cells}
    content["fields"] = {"shared": shared, "own": own}
    content |= {"skipped": skipped} if skipped else {}
    try:
        write_json(folder / PLAN_FILE, content)
    except ValueError as error:
        raise ConfigError(f"{len(cells)} runs in one sweep: {error}: split the sweep") from error


def tidy(folder: Path) -> None:
    """Remove the lock, and complete or remove the new record, that a killed process left."""
    if any(kind_of(folder / name) != "nothing" for name in (LOCK_FILE, NEW)):
        with suppress(HeldError, CorruptRecordError), locked(folder, patience_s=0):
            complete(folder)


def begin_sweep(
    folder: Path,
    cells: Mapping[str, list[str]],
    fields: Mapping[str, Mapping[str, Any]],
    composed: str,
    rerun: bool = False,
    skipped: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """Write the plan of a sweep, remove orphaned files, and return the pending cells.

    `cells`, `fields` and `skipped` are those of `write_plan`; `composed` is the config of the
    sweep, for `multirun.yaml`; `rerun` is whether stale records are to be made again. No other
    record that may be of worth is pending. Raises as `locked`, HeldError after SWEEP_S seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, SWEEP_S):
        write_plan(folder, cells, fields, skipped)
        write_atomically(folder / "multirun.yaml", composed.encode())
        link_latest(folder)
        for below in (folder, folder / "figures", folder / "tables"):
            remove_orphans(below)
    current = {name: run_state(folder / name) for name in cells}
    for name, state in current.items():
        if state.finished:
            tidy(folder / name)
        elif state.state in KEPT:
            log.error("%s: %s: %s; nothing is replaced", name, state.state, state.reason)
    counted = Counter(state.state for state in current.values())
    counts = ", ".join(f"{n} {state}" for state, n in sorted(counted.items()))
    log.info("%d runs: %s in %s", len(cells), counts, folder)
    kept = {*KEPT, "running"} - ({"stale"} if rerun else set())
    return {name: cell for name, cell in cells.items() if current[name].state not in kept}


def names_on_record(
    folder: Path, configs: Mapping[str, RunConfig], rerun: bool = False
) -> dict[str, str]:
    """Return, of each run by its name, the folder below `folder` with its finished record.

    It is that of the name, unless there is no finished record, and a version of attnsvm that named
    the run differently has finished it. With `rerun` a stale record of another name is left alone.
    """
    names = dict(zip(configs, configs, strict=True))
    others: dict[str, list[Path]] = {}
    for path in recorded(folder):
        if path.name not in configs:
            others.setdefault(path.name[:-SIGNATURE], []).append(path)
    kept = {*FINISHED, "unreadable"} - ({"stale"} if rerun else set())
    for name, config in configs.items():
        near = others.get(name[:-SIGNATURE])
        if near is None or run_state(folder / name, verify=False).finished:
            continue
        for path in near:
            state = run_state(path)
            if state.state in kept and state.run and is_of(state.run, config):
                names[name] = path.name
    return names


def unobstructed(folder: Path, cells: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the cells whose folder can be written; name what keeps the others from it."""
    obstacles = {name: obstacle(folder / name) for name in cells}
    for message in filter(None, obstacles.values()):
        log.error("%s", message)
    return {name: cell for name, cell in cells.items() if not obstacles[name]}


def link_latest(folder: Path, here: Path = Path()) -> None:
    """Make LATEST in the folder `here` a relative link; a reader sees the old or the new link."""
    latest = here / LATEST
    link = latest.with_name(f".{latest.name}.{os.getpid()}")
    try:
        latest.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(folder.resolve(), latest.parent.resolve()))
        os.replace(link, latest)
    except OSError as error:  # a folder of that name, or a current folder that is read-only
        log.warning("%s: cannot be made a link to %s (%s)", latest, folder, error.strerror)
        with suppress(OSError):
            link.unlink()


def or_latest(folder: Path | None) -> Path:
    """Return a folder that a command was given, else that of the last run or sweep, and say it."""
    if folder is not None or not LATEST.exists():
        return folder or LATEST
    latest = Path(os.path.relpath(LATEST.resolve()))
    sys.stderr.write(f"{LATEST}: {shortened(latest)}\n")
    return latest


def read_plan(directory: Path) -> Plan:
    """Return the plan of the sweep in `directory`; one without runs if it has none.

    CorruptRecordError if it differs from what was written, or has another form; UnreadableError if
    it cannot be read now.
    """
    path = directory / PLAN_FILE
    try:
        with refused(""):
            content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return Plan()
    with refused(f"{path}: ", KeyError, TypeError, ValueError, AttributeError):
        runs, skipped = dict(content["runs"]), dict(content.get("skipped", {}))
        fields = content.get("fields") or {"shared": {}, "own": {}}
        of_runs = {name: {**fields["shared"], **own} for name, own in fields["own"].items()}
        return Plan(runs, of_runs, skipped, content.get("command"))


def recorded(directory: Path) -> list[Path]:
    """Return the folders below `directory` with a record, whatever lies in the place of it."""
    try:
        folders = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    shown = [path for path in folders if path.is_dir() and not path.name.startswith(".")]
    return [path for path in shown if kind_of(path / RUN_FILE) != "nothing"]


@dataclass(frozen=True)
class SweepFolder:
    """A folder with the folders of its runs, its plan, and the states of what has no folder.

    Those are a plan that is damaged, and the cells that were skipped.
    """

    directory: Path
    runs: list[Path]
    plan: Plan = field(default_factory=Plan)
    without_folder: Mapping[str, RunState] = field(default_factory=dict)


def sweep_folder(directory: Path) -> SweepFolder:
    """Return the runs of a folder: those in its plan, without one all with a record, or itself.

    FileNotFoundError if it does not exist or holds neither a plan nor a record.
    """
    must = f"must have {RUN_FILE}, {PLAN_FILE} or */{RUN_FILE}"
    if not os.path.isdir(directory):  # false where `Path.is_dir` raises: a name that is too long
        raise FileNotFoundError(f"{directory}: no such folder; {must}")
    if not os.access(directory, os.R_OK | os.X_OK):
        raise FileNotFoundError(f"{directory}: must be a folder that can be read")
    if kind_of(directory / RUN_FILE) != "nothing":
        return SweepFolder(directory, [directory.resolve()])  # "." has no name
    try:
        plan = read_plan(directory)
        absent = {cell: RunState("skipped", why) for cell, why in plan.skipped.items()}
    except CorruptRecordError as error:
        plan, absent = Plan(), {PLAN_FILE: RunState(error.state, shortened(error))}
    runs = [directory / name for name in plan.runs] or recorded(directory)
    if not runs and PLAN_FILE not in absent:
        raise FileNotFoundError(f"{directory}: holds no sweep and no record of a run; {must}")
    return SweepFolder(directory, runs, plan, absent)


def states(directory: Path) -> dict[str, RunState]:
    """Return the state of every run of `sweep_folder`, and of what has no folder."""
    current = sweep_folder(directory)
    return {**current.without_folder} | {run.name: run_state(run) for run in sorted(current.runs)}
