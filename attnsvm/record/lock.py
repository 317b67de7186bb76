"""The lock of a folder; the operating system releases it when its process ends, even by a crash.

The lock is a file in the folder. Its owner holds it with flock(2) while it runs and removes it at
the end. A lock file without a holder means that its owner was killed: neither a heartbeat nor a
time-out is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from attnsvm.record.files import CorruptRecordError, open_regular

LOCK_FILE = ".lock"

MAX_LOCK_BYTES = 2**12

PATIENCE_S = 2.0
"""Seconds to wait for a lock: a reader that tests the lock holds it for a moment."""


@dataclass(frozen=True)
class Owner:
    """The process that holds, or held, a lock."""

    host: str = "?"
    pid: int = 0
    slurm_job: str = ""
    started_s: float = 0.0

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started_s))
        job = f", SLURM job {self.slurm_job}" if self.slurm_job else ""
        return f"process {self.pid} on {self.host}{job}, started {since}"


class HeldError(RuntimeError):
    """Another running process holds the lock of the folder."""


def this_process() -> Owner:
    """Return the owner of the locks of this process."""
    job, array = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    slurm = f"{job}_{array}" if job and array else os.environ.get("SLURM_JOB_ID", "")
    return Owner(socket.gethostname(), os.getpid(), slurm, time.time())


@contextmanager
def locked(folder: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the lock of `folder`.

    Raises
    ------
    HeldError
        If another process still holds it after `patience_s` seconds.
    OSError
        If the folder cannot be written or its file system does not support locks.
    """
    path = folder / LOCK_FILE
    handle = _acquired(path, time.monotonic() + patience_s)
    try:
        os.truncate(handle, 0)
        os.write(handle, json.dumps(asdict(this_process())).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquired(path: Path, deadline: float) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() > deadline:
                raise HeldError(f"{path.parent}: locked by {_owner(path)}") from None
            time.sleep(0.05)
            continue
        except OSError as error:
            os.close(handle)
            raise OSError(error.errno, "file system without locks (flock)", str(path)) from error
        if _is(handle, path):
            return handle
        os.close(handle)  # the previous owner removed the file between our open and our lock


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def holder(folder: Path) -> tuple[Owner, bool] | None:
    """Return the last owner of the lock and whether it is running; None without a lock file."""
    path = folder / LOCK_FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _owner(path), True
    finally:
        os.close(handle)
    return (_owner(path), False) if path.exists() else None


def _owner(path: Path) -> Owner:
    try:
        with open_regular(path) as stream:
            return Owner(**json.loads(stream.read(MAX_LOCK_BYTES)))
    except (CorruptRecordError, OSError, ValueError, TypeError, RecursionError):
        return Owner()  # it was killed before it wrote its name, or has just finished
