"""How far a run is, told by its folder alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnsvm.claim import holder
from attnsvm.storage import CorruptRecordError, read_json, verify_file

RUN_FILE = "run.json"
PLAN_FILE = "sweep.json"
TABLES = ("trials.parquet", "history.parquet", "solutions.npz")

STATES = {
    "done": "a complete record whose checksums fit",
    "running": "claimed by a process that lives",
    "failed": "ended by an error, which is on record",
    "interrupted": "ended by a signal, which is on record",
    "lost": "claimed by a process that vanished without a word: killed, or its machine died",
    "missing": "no record and no claim: never started",
    "corrupt": "its record is not what was written",
}


@dataclass(frozen=True)
class RunState:
    """How far the run of a folder is.

    Attributes
    ----------
    state : str
        One of `STATES`.
    reason : str
        Why it is not done; empty if it is.
    run : mapping
        The content of its `run.json`, empty if it has none that can be read.
    """

    state: str
    reason: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)


def run_state(folder: Path, verify: bool = True) -> RunState:
    """Return the state of the run in `folder`; `verify` reads the tables for their checksums."""
    found = _on_record(folder, verify)
    if found.state == "done" or (claim := holder(folder)) is None:
        return found
    owner, lives = claim
    if lives:
        return RunState("running", str(owner), found.run)
    if (finished := _on_record(folder, verify)).state == "done":  # between the first look and now
        return finished
    return RunState("lost", f"{owner}: gone without a record", found.run)


def _on_record(folder: Path, verify: bool) -> RunState:
    try:
        run = read_json(folder / RUN_FILE)
        if not _belongs(run, folder):
            return RunState("corrupt", f"{folder}: holds the record of another run", run)
        if run["state"] != "done":
            return RunState(run["state"], run["reason"], run)
        for name in TABLES if verify else ():
            verify_file(folder / name, run["files"][name])
    except (FileNotFoundError, NotADirectoryError):
        return RunState("missing", "no record on disk")
    except (CorruptRecordError, OSError, KeyError, TypeError) as error:
        return RunState("corrupt", f"{type(error).__name__}: {error}")
    return RunState("done", "", run)


def _belongs(run: Mapping[str, Any], folder: Path) -> bool:
    """Return whether the folder's name, where it ends with a signature, ends with the run's."""
    named = re.search(r"-([0-9a-f]{12})$", folder.name)
    return named is None or str(run["signature"]).startswith(named[1])


def planned(directory: Path) -> dict[str, list[str]] | None:
    """Return folder name -> overrides of the sweep's runs; None without a plan.

    Raises
    ------
    CorruptRecordError
        If the plan is not what was written, or names folders outside the sweep's.
    """
    path = directory / PLAN_FILE
    if not path.exists():
        return None
    runs: dict[str, list[str]] = read_json(path)["runs"]
    for name in runs:
        if name != Path(name).name or name in ("", ".", "..") or "\0" in name:
            raise CorruptRecordError(f"{path}: {name!r} is not the name of a folder beside it")
    return runs
