"""The lock of a folder; the operating system releases it when its process ends, even by a crash.

The lock is a file in the folder. Its owner holds it with flock(2) while it runs and removes it at
the end. A lock file without a holder means that its owner was killed: neither a heartbeat nor a
time-out is needed.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnsvm.record.files import CorruptRecordError, open_handle, open_regular

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
    path = folder / LOCK_FILE
    handle = _acquired(path, time.monotonic() + patience_s)
    try:
        os.truncate(handle, 0)
        os.write(handle, _this_process().encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquired(path: Path, deadline: float) -> int:
    while True:
        new = not path.exists()
        handle = open_handle(path, os.O_RDWR | os.O_CREAT)
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
            if new:  # it would look as if it were held
                path.unlink(missing_ok=True)
            raise NoLocksError(error, path.parent) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # the previous owner removed the file between our open and our lock


def holder(folder: Path) -> tuple[str, bool] | None:
    """Return the last owner of the lock and whether it is running; None without a lock file.

    Raises CorruptRecordError and NoLocksError as `locked`.
    """
    path = folder / LOCK_FILE
    try:
        handle = open_handle(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(path), True
    except OSError as error:
        raise NoLocksError(error, folder) from error
    finally:
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
