"""The plan of a sweep: its runs by folder, with their overrides; and their states."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from attnsvm.config import ConfigError
from attnsvm.record.files import (
    CorruptRecordError,
    read_json,
    remove_orphans,
    write_atomically,
    write_json,
)
from attnsvm.record.lock import LOCK_FILE, HeldError, locked
from attnsvm.record.state import RUN_FILE, RunState, run_state

log = logging.getLogger(__name__)

PLAN_FILE = "sweep.json"


def write_plan(folder: Path, cells: Mapping[str, list[str]]) -> None:
    """Write the runs (folder name -> overrides) of the sweep in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PLAN_FILE, {"command": sys.argv[1:], "runs": dict(cells)})


def tidy(folder: Path) -> None:
    """Remove the temporary files and the lock that a killed process left beside a record."""
    remove_orphans(folder)
    if (folder / LOCK_FILE).exists():
        with suppress(HeldError), locked(folder, patience_s=0):
            pass  # releasing a lock removes it


def begin_sweep(
    folder: Path, cells: Mapping[str, list[str]], composed: str
) -> dict[str, list[str]]:
    """Write the plan of a sweep, remove orphaned files, and return the pending cells.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    cells : mapping of str to list of str
        Overrides of every run, by the name of its folder.
    composed : str
        The config of the sweep, for `multirun.yaml`.
    """
    write_plan(folder, cells)
    write_atomically(folder / "multirun.yaml", composed.encode())
    for below in (folder, folder / "figures", folder / "tables"):
        remove_orphans(below)
    found = {name: run_state(folder / name).state for name in cells}
    for name, state in found.items():
        if state == "done":
            tidy(folder / name)
    counts = ", ".join(f"{n} {state}" for state, n in sorted(Counter(found.values()).items()))
    log.info("%d runs: %s", len(cells), counts)
    return {n: cell for n, cell in cells.items() if found[n] not in ("done", "running")}


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raise ConfigError if the folder of a run is a link: files would be written elsewhere."""
    for name in names:
        if (folder / name).is_symlink():
            raise ConfigError(f"{folder / name}: is a link; must be a folder")


def planned(directory: Path) -> dict[str, list[str]] | None:
    """Return folder name -> overrides of the sweep's runs; None without a plan.

    Raises
    ------
    CorruptRecordError
        If the plan differs from what was written, or names folders outside of the sweep's.
    """
    path = directory / PLAN_FILE
    if not path.exists():
        return None
    runs: dict[str, list[str]] = read_json(path)["runs"]
    for name in runs:
        if name != Path(name).name or name in ("", ".", "..") or "\0" in name:
            raise CorruptRecordError(f"{path}: {name!r} must be the name of a folder beside it")
    return runs


def states(directory: Path) -> dict[str, RunState]:
    """Return the state of every run of the sweep in `directory`, or of the run in it.

    Raises
    ------
    FileNotFoundError
        If there is neither a plan nor a record.
    """
    if (directory / RUN_FILE).exists():
        directory = directory.resolve()  # "." has no name
        return {directory.name: run_state(directory)}
    found: dict[str, RunState] = {}
    try:
        names = planned(directory)
    except CorruptRecordError as error:
        names, found[PLAN_FILE] = None, RunState("corrupt", str(error))
    if names is None:
        names = {path.parent.name: [] for path in directory.glob(f"*/{RUN_FILE}")}
    if not names and not found:
        raise FileNotFoundError(f"{directory}: holds no sweep (no {PLAN_FILE}, no */{RUN_FILE})")
    return found | {name: run_state(directory / name) for name in sorted(names)}
