"""The lock of a folder, and the state of a run, which is derived from its folder alone.

The lock is a file in the folder; the operating system releases it when its process ends, even by a
crash. Its owner holds it with flock(2) while it runs and removes it at the end. A lock file without
a holder means that its owner was killed: neither a heartbeat nor a time-out is needed.
"""

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnsvm.config import RunConfig
from attnsvm.config.words import MEANINGS
from attnsvm.record.files import (
    CorruptRecordError,
    OtherRunError,
    TooLargeError,
    kind_of,
    open_handle,
    open_regular,
    refused,
    shortened,
    synced,
    verified,
)
from attnsvm.record.run import RUN_FILE, TABLES, is_of, read_run

LOCK_FILE = ".lock"
MAX_LOCK_BYTES = 2**9

PATIENCE_S = 2.0
"""Seconds to wait for a lock: a reader that tests the lock holds it for a moment."""


class HeldError(RuntimeError):
    """Another running process holds the lock of the folder."""


class NoLocksError(OSError):
    """The file system does not support locks."""

    def __init__(self, error: OSError, path: Path) -> None:
        flock = f"file system without locks (flock: {os.strerror(error.errno or 0)}); must be one"
        must = "with locks, for example a local disk, NFSv4, GPFS, or Lustre mounted with -o flock"
        super().__init__(error.errno, f"{flock} {must}", str(path))


def _this_process() -> str:
    """Return the text of the locks of this process, which tells their owner."""
    job, array = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    slurm = f"{job}_{array}" if job and array else os.environ.get("SLURM_JOB_ID", "")
    named = f", SLURM job {slurm}" if slurm else ""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()}{named}, started {since}"


@contextmanager
def locked(folder: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the lock of `folder`.

    HeldError if another process still holds it after `patience_s` seconds; CorruptRecordError if
    something else than a file lies in its place; NoLocksError on a file system without locks.
    """
    path, deadline = folder / LOCK_FILE, time.monotonic() + patience_s
    while (handle := _acquired(path)) is None:
        if time.monotonic() > deadline:
            raise HeldError(f"{folder}: locked by {_owner(path)}")
        time.sleep(0.05)
    try:
        os.truncate(handle, 0)
        os.write(handle, _this_process().encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquired(path: Path) -> int | None:
    """Return a handle of the lock file, or None if another process holds or just removed it."""
    new = not path.exists()
    try:
        handle = _flocked(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
    except NoLocksError:
        if new:  # it would look as if it were held
            path.unlink(missing_ok=True)
        raise
    if handle is None:
        return None
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    os.close(handle)
    return None


def _flocked(path: Path, flags: int, operation: int) -> int | None:
    """Return a handle with a lock of the operating system; None if another process has one."""
    handle = open_handle(path, flags)
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise NoLocksError(error, path.parent) from error
    return handle


def holder(folder: Path) -> tuple[str, bool] | None:
    """Return the last owner of the lock and whether it is running; None without a lock file.

    Raises CorruptRecordError and NoLocksError as `locked`.
    """
    path = folder / LOCK_FILE
    try:
        handle = _flocked(path, os.O_RDONLY, fcntl.LOCK_SH)
    except NoLocksError:
        raise
    except OSError:
        return None
    if handle is None:
        return _owner(path), True
    os.close(handle)
    return (_owner(path), False) if path.exists() else None


def _owner(path: Path) -> str:
    """Return what the owner of a lock wrote of itself, if it can be printed."""
    try:
        with open_regular(path, MAX_LOCK_BYTES) as stream:
            text = stream.read(MAX_LOCK_BYTES).decode()
    except (CorruptRecordError, OSError, ValueError):
        text = ""  # it was killed before it wrote, or has just finished
    return text if text.startswith("process ") and text.isprintable() else "an unknown process"


NEW = ".new"
"""Name of the folder, in that of a run, in which its record is written."""


def complete(folder: Path) -> None:
    """Let the record in the folder NEW replace that in `folder`, or remove it if it is torn.

    Its `run.json` is written last, and moved last: where there is one, all files are whole, and
    those that are not in NEW were moved. What cannot be read now stays where it is.
    """
    new = folder / NEW
    if kind_of(new) != "a folder" or (kind := kind_of(new / RUN_FILE)) == "out of reach":
        return
    if kind == "a file":
        for names in (TABLES, (RUN_FILE,)):
            for name in names:
                with suppress(FileNotFoundError):
                    os.replace(new / name, folder / name)
            synced(folder)
    shutil.rmtree(new, ignore_errors=True)


FINISHED = ("done", "stale")
"""States of a run whose record has results."""

KEPT = (*FINISHED, "other_version", "other_run", "unreadable")
"""States of a run whose record may be of worth: it is not replaced unless that is asked for."""

FOLDER_OR_NOTHING = ("a folder", "nothing")
FILES = (RUN_FILE, *TABLES, LOCK_FILE)
WRITTEN_BY_HYDRA = (".log", ".yaml")


@dataclass(frozen=True)
class RunState:
    """State of the run of a folder, one of `STATES`; and why it is not done, in one line.

    `run` is the content of its `run.json`, empty if that is missing or not read.
    """

    state: str
    reason: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether its record has results."""
        return self.state in FINISHED


def run_state(folder: Path, verify: bool = True) -> RunState:
    """Return the state of the run in `folder`; `verify` checks the checksums of the tables."""
    current = _on_record(folder, verify)
    try:
        if current.state in KEPT or (lock := holder(folder)) is None:
            return current
    except CorruptRecordError as error:
        return RunState("corrupt", shortened(error), current.run)
    except NoLocksError as error:
        return RunState("running", f"whether it still runs cannot be known: {error.strerror}")
    owner, lives = lock
    if lives:
        return RunState("running", owner, current.run)
    if (finished := _on_record(folder, verify)).finished:  # it finished since the first test
        return finished
    return RunState("lost", f"{owner}: gone without a record", current.run)


def _on_record(folder: Path, verify: bool) -> RunState:
    run: Mapping[str, Any] = {}
    try:
        with refused(""):
            if kind_of(folder) not in (*FOLDER_OR_NOTHING, "out of reach"):
                raise CorruptRecordError(obstacle(folder))
            run = read_run(folder)
            named = re.search(r"-([0-9a-f]{12})$", folder.name)  # the start of its signature
            if named is not None and not run["signature"].startswith(named[1]):
                raise OtherRunError(f"{folder}: holds the record of another run")
            if run["state"] != "done":
                return RunState(run["state"], shortened(run["reason"]), run)
            for name in TABLES if verify else ():
                with verified(folder / name, run["files"][name]):
                    pass
    except (FileNotFoundError, NotADirectoryError):
        message = obstacle(folder)
        return RunState("corrupt" if message else "missing", message or "no record on disk")
    except CorruptRecordError as error:
        larger = isinstance(error, TooLargeError)  # than any record is
        return RunState("corrupt" if larger else error.state, shortened(error), run)
    return RunState("stale" if run["stale"] else "done", run["stale"], run)


def obstacle(folder: Path) -> str:
    """Return what keeps a run from writing to its folder, in one line; empty if nothing does.

    Hydra writes its log and `.hydra/*.yaml` before the run begins: a pipe in the place of one of
    them would block for ever, and a link would lead out of the folder. What lies there is not
    replaced: whoever put it there may need it.
    """
    for below in (folder, folder / ".hydra", folder / NEW):
        if (kind := kind_of(below)) not in FOLDER_OR_NOTHING:
            return shortened(f"{below}: is {kind}; must be a folder")
        try:
            for name in sorted(os.listdir(below)):
                written = name in FILES or name.endswith(WRITTEN_BY_HYDRA)
                if written and (kind := kind_of(below / name)) not in ("a file", "nothing"):
                    return shortened(f"{below / name}: is {kind}; must be a file")
                if name.endswith(WRITTEN_BY_HYDRA) and not os.access(below / name, os.W_OK):
                    return shortened(f"{below / name}: must be a file that can be written")
        except FileNotFoundError:
            return ""
        except OSError as error:
            return shortened(error)
    return ""


def refuse_obstacle(folder: Path) -> None:
    """Raise CorruptRecordError where something keeps a run from writing to its folder."""
    if message := obstacle(folder):
        raise CorruptRecordError(message)


def refuse_kept(folder: Path, current: RunState, config: RunConfig) -> None:
    """Raise where `folder` has a record, in the state `current`, that a run must not replace.

    OtherRunError for that of another run than the one of `config`; OtherVersionError or
    UnreadableError for one that cannot be used here or now.
    """
    whole = current.finished or current.state == "corrupt"
    if current.run and whole and not is_of(current.run, config):
        must = "must be a folder without one: its config, its files or its plug-ins are others"
        raise OtherRunError(f"{folder}: holds the record of another run; {must}")
    for kind in CorruptRecordError.__subclasses__() if current.state in KEPT else ():
        if kind.state == current.state:
            raise kind(f"{folder}: {current.reason}; {MEANINGS['next'][current.state]}")
