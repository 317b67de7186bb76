"""Signals as an exception: SIGTERM and SIGUSR2 end a run as Ctrl-C does, but say who they were."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)

INSIST_S = 1.0
"""Raise again after this time: an exception raised within a destructor is swallowed."""

STUCK_S = 2.5
"""How long the main thread has to notice a signal."""

CHILDREN_S = 4.0
"""How long the workers of a sweep have to write down that they were interrupted."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def interruptible(last_words: Callable[[Interrupted], None] | None = None) -> Iterator[None]:
    """Raise `Interrupted` in the block when SIGTERM or SIGUSR2 arrives (main thread only).

    Python's handlers wait for a compiled call to return. Where it has not after STUCK_S, a thread
    calls `last_words`, lets whoever handled the signal before have it, and ends the process.
    """
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
        with _watched(before, last_words or (lambda stop: None)):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def _watched(
    before: Mapping[signal.Signals, Any], last_words: Callable[[Interrupted], None]
) -> Iterator[None]:
    """End the process STUCK_S after a signal unless the block has ended by then."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    over = threading.Event()
    acting = threading.Lock()

    def watch() -> None:
        signum = _first_signal(reading)
        if signum is None or over.wait(STUCK_S):
            return
        with acting:
            if over.is_set():
                return
            stop = Interrupted(signum)
            with suppress(BaseException):
                last_words(stop)
            if callable(handler := before[signal.Signals(signum)]):
                with suppress(BaseException):
                    handler(signum, None)
            os._exit(128 + signum)

    watcher = threading.Thread(target=watch, daemon=True, name="signals")
    watcher.start()
    earlier = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        with acting:
            over.set()
        signal.set_wakeup_fd(earlier)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _first_signal(reading: int) -> int | None:
    """Return the first of SIGNALS that the pipe tells of; None when it is closed."""
    while received := os.read(reading, 1):
        if received[0] in SIGNALS:
            return received[0]
    return None


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
