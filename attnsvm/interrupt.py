"""Signals as an exception: SIGTERM and SIGUSR2 end a run as Ctrl-C does, but say who they were."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)

INSIST_S = 1.0
"""Raise again after this time: an exception raised within a destructor is swallowed."""

CHILDREN_S = 3.0
"""How long the workers of a sweep have to write down that they were interrupted."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` in the block when SIGTERM or SIGUSR2 arrives (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        caught.append(signum)
        signal.setitimer(signal.ITIMER_REAL, INSIST_S, INSIST_S)
        raise Interrupted(caught[0])

    before = {s: signal.signal(s, stop) for s in (*SIGNALS, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in before.items():
            signal.signal(signum, handler)


def hand_on(stop: KeyboardInterrupt) -> None:
    """Let whoever handled the signal before have it: submitit requeues, a sweep's driver stops.

    Returns only if the earlier handler does, as one that ignores the signal.
    """
    if not isinstance(stop, Interrupted):
        raise stop
    handler = signal.getsignal(stop.signum)
    if callable(handler):
        handler(stop.signum, None)
    elif handler == signal.SIG_DFL:
        signal.raise_signal(stop.signum)


@contextmanager
def stopping_with_children() -> Iterator[None]:
    """In the block a signal goes to the child processes as well; `Interrupted` is raised then."""

    def stop(signum: int, frame: FrameType | None) -> None:
        children = _children()
        for child in children:
            _send(child, signal.SIGTERM)
        deadline = time.monotonic() + CHILDREN_S
        while time.monotonic() < deadline and any(_claims(child) for child in children):
            time.sleep(0.05)
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _children() -> list[int]:
    """Return the child processes of this one (Linux; elsewhere none are found)."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def _send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _claims(pid: int) -> bool:
    """Whether the process holds a run's claim still."""
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.endswith("/.claim") for link in links)
