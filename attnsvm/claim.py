"""Who works on a folder: a lock that the kernel takes back when its owner dies, however it dies.

The claim is a file in the folder, locked with flock(2) while its owner lives and removed when the
owner is finished. So a claim without a lock tells of an owner that was killed; it needs neither a
heartbeat nor a time after which it counts as stale.
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

CLAIM_FILE = ".claim"

PATIENCE_S = 2.0
"""How long a claim is tried for: a reader that looks whether it is held holds it for a moment."""


@dataclass(frozen=True)
class Owner:
    """The process that holds, or held, a claim."""

    host: str = "?"
    pid: int = 0
    slurm_job: str = ""
    started_s: float = 0.0

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started_s))
        job = f", SLURM job {self.slurm_job}" if self.slurm_job else ""
        return f"process {self.pid} on {self.host}{job}, started {since}"


class HeldError(RuntimeError):
    """The folder is claimed by another process, which lives."""


def this_process() -> Owner:
    """Return the owner of the claims of this process."""
    job, array = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    slurm = f"{job}_{array}" if job and array else os.environ.get("SLURM_JOB_ID", "")
    return Owner(socket.gethostname(), os.getpid(), slurm, time.time())


@contextmanager
def claimed(folder: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the claim on `folder`.

    Raises
    ------
    HeldError
        If another process holds it, after trying for `patience_s` seconds.
    OSError
        If the folder cannot be written or its file system knows no locks.
    """
    path = folder / CLAIM_FILE
    handle = _locked(path, time.monotonic() + patience_s)
    try:
        os.truncate(handle, 0)
        os.write(handle, json.dumps(asdict(this_process())).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path, deadline: float) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() > deadline:
                raise HeldError(f"{path.parent}: in work by {_owner(path)}") from None
            time.sleep(0.05)
            continue
        except OSError as error:
            os.close(handle)
            raise OSError(error.errno, "locks (flock) do not work here", str(path)) from error
        if _is(handle, path):
            return handle
        os.close(handle)  # the owner before us removed the file between our open and our lock


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def holder(folder: Path) -> tuple[Owner, bool] | None:
    """Return who claimed `folder` last and whether it lives; None if nobody left a claim."""
    path = folder / CLAIM_FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
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
        return Owner(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return Owner()  # it died before it wrote its name, or has just finished
