"""Signals as exceptions: SIGTERM, SIGHUP and others end a run as Ctrl-C does, recorded by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

STUCK_S = 2.5
"""Seconds that the main thread has to react to a signal."""

CHILDREN_S = 4.0
"""Seconds that the workers of a sweep have to record that they were interrupted."""

PARENT_S = 0.5
"""Seconds between two looks of a worker whether its driver is still there."""

FOLLOWER = "follower of the driver"
"""Name of the thread that ends a worker."""

_handlers: list[Mapping[signal.Signals, Any]] = []
"""The handlers before each open block of `interruptible`, the outermost first."""


class Interrupted(KeyboardInterrupt):
    """The process received a signal to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def interruptible(on_stuck: Callable[[Interrupted], None] | None = None) -> Iterator[None]:
    """Raise `Interrupted` in the block when one of SIGNALS arrives (main thread only).

    Python's handlers wait for a compiled call to return, and an exception that one raises in a
    destructor is ignored. If the block has not ended after STUCK_S, a thread calls `on_stuck` and
    the handler that the signal had before, and ends the process. Blocks may be nested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in _not_ignored()}
    _handlers.append(before)
    try:
        with _watched(_handlers[0], on_stuck or (lambda stop: None)):
            yield
    finally:
        _handlers.pop()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _not_ignored() -> list[signal.Signals]:
    """Return those of SIGNALS that are not ignored, as SIGHUP is under nohup."""
    return [s for s in SIGNALS if signal.getsignal(s) not in (signal.SIG_IGN, None)]


@contextmanager
def _watched(
    before: Mapping[signal.Signals, Any], on_stuck: Callable[[Interrupted], None]
) -> Iterator[None]:
    """End the process STUCK_S after a signal unless the block has ended by then."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    over, acting = threading.Event(), threading.Lock()

    def watch() -> None:
        signum = _first_signal(reading)
        if signum is None or over.wait(STUCK_S):
            return
        with acting:
            if over.is_set():
                return
            with suppress(BaseException):
                on_stuck(Interrupted(signum))
            if callable(handler := before.get(signal.Signals(signum))):
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
    """Return the first of SIGNALS received through the pipe; None when it is closed."""
    while received := os.read(reading, 1):
        if received[0] in SIGNALS:
            return received[0]
    return None


def hand_on(stop: KeyboardInterrupt) -> None:
    """Call the previous handler of the signal: submitit requeues, the driver of a sweep stops.

    Returns only if that handler returns, for example one that ignores the signal.
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
    """In the block, pass a signal on to the child processes, then raise `Interrupted`."""

    def stop(signum: int, frame: FrameType | None) -> None:
        children = _children()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        deadline = time.monotonic() + CHILDREN_S
        while time.monotonic() < deadline and any(_holds_lock(child) for child in children):
            time.sleep(0.05)
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in _not_ignored()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def follow(driver: int) -> None:
    """If this process is a worker of a sweep's driver: end when the driver is gone, and not before.

    A driver that is killed cannot tell its workers. And joblib kills all workers as soon as one has
    ended: after a signal to all of them some may still be recording it.
    """
    worker = multiprocessing.current_process().name != "MainProcess"
    followed = any(thread.name == FOLLOWER for thread in threading.enumerate())
    if not worker or os.getppid() != driver or followed:
        return  # the driver itself, or a worker of a process in between, which outlives it

    def leave(signum: int, frame: FrameType | None) -> None:
        deadline = time.monotonic() + CHILDREN_S
        while time.monotonic() < deadline and os.getppid() == driver:
            time.sleep(0.05)
        signal.signal(signum, signal.SIG_DFL)
        signal.raise_signal(signum)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(PARENT_S)
        os.kill(os.getpid(), signal.SIGTERM)

    for signum in _not_ignored():
        signal.signal(signum, leave)
    threading.Thread(target=watch, daemon=True, name=FOLLOWER).start()


def _children() -> list[int]:
    """Return the child processes of this one (Linux; elsewhere none are found)."""
    files = Path("/proc/self/task").glob("*/children")
    return [int(pid) for path in files for pid in path.read_text().split()]


def _holds_lock(pid: int) -> bool:
    """Whether the process still holds the lock of a run."""
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.endswith("/.lock") for link in links)
