"""Signals as exceptions: SIGTERM, SIGHUP and others end a run as Ctrl-C does, recorded by name."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

STUCK_S, CHILDREN_S, PARENT_S = 2.5, 4.0, 0.5
"""Seconds that the main thread has to react to a signal; that the workers of a sweep have to record
that they were interrupted; and between two looks of a worker whether its driver is still there."""

Handlers = Mapping[signal.Signals, Any]

_before: list[Handlers] = []
"""The handlers before each open block of `interruptible`, the outermost first."""


class Interrupted(KeyboardInterrupt):
    """The process received a signal to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def _interrupt(signum: int, frame: object) -> None:
    raise Interrupted(signum)


def _handle(
    handler: Callable[[int, object], None], signals: Iterable[signal.Signals] = SIGNALS
) -> Handlers:
    """Let `handler` get the signals that are not ignored, as SIGHUP is under nohup."""
    heard = [s for s in signals if signal.getsignal(s) not in (signal.SIG_IGN, None)]
    return {s: signal.signal(s, handler) for s in heard}


@contextmanager
def _handled_by(
    handler: Callable[[int, object], None], signals: Iterable[signal.Signals] = SIGNALS
) -> Iterator[Handlers]:
    before = _handle(handler, signals)
    try:
        yield before
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


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
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    over, acting = threading.Event(), threading.Lock()

    def watch() -> None:
        received = iter(lambda: os.read(reading, 1), b"")  # until it is closed
        signum = next((byte[0] for byte in received if byte[0] in SIGNALS), None)
        if signum is None or over.wait(STUCK_S):
            return
        with acting:
            if over.is_set():
                return
            with suppress(BaseException):
                if on_stuck is not None:
                    on_stuck(Interrupted(signum))
            with suppress(BaseException):  # that of submitit requeues; there may be none
                _before[0][signal.Signals(signum)](signum, None)
            os._exit(128 + signum)

    with _handled_by(_interrupt) as before:
        _before.append(before)
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
            _before.pop()


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
def stopping_with_children(signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """In the block, pass signals on to the child processes, as SIGTERM; raise `Interrupted`.

    Ctrl-C reaches children in the terminal's session by itself: they need no SIGINT passed on.
    """

    def stop(signum: int, frame: object) -> None:
        files = Path("/proc/self/task").glob("*/children")  # Linux; elsewhere none are found
        children = [int(pid) for path in files for pid in path.read_text().split()]
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        _wait_while(lambda: any(map(_holds_lock, children)))
        raise Interrupted(signum)

    with _handled_by(stop, signals):
        yield


def _wait_while(holds: Callable[[], bool]) -> None:
    """Wait while `holds()`, at most CHILDREN_S."""
    deadline = time.monotonic() + CHILDREN_S
    while time.monotonic() < deadline and holds():
        time.sleep(0.05)


def _holds_lock(pid: int) -> bool:
    """Whether the process still holds the lock of a run."""
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.endswith("/.lock") for link in links)


def follow_by_joblib() -> None:
    """Let the workers that joblib starts from now on follow this process, before their first task.

    An idle worker, or one that is still importing, would outlive a killed driver by minutes.
    """
    from joblib.parallel import BACKENDS, register_parallel_backend

    usual: Any = BACKENDS["loky"]

    class Followed(usual):  # type: ignore[misc]
        def configure(self, **options: Any) -> Any:
            return super().configure(**options, initializer=follow, initargs=(os.getpid(),))

    register_parallel_backend("loky", Followed)


def follow(driver: int) -> None:
    """End this process, a worker of process `driver`, when that is gone, and not before.

    A driver that is killed cannot tell its workers. And joblib kills all workers as soon as one has
    ended: after a signal to all of them some may still be recording it.
    """

    def leave(signum: int, frame: object) -> None:
        _wait_while(lambda: os.getppid() == driver)
        signal.signal(signum, signal.SIG_DFL)
        signal.raise_signal(signum)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(PARENT_S)
        main = threading.main_thread().ident  # one that waits for a task is woken by its own signal
        signal.pthread_kill(main or 0, signal.SIGTERM)
        time.sleep(CHILDREN_S)  # a run is recorded; compiled code or a compilation goes on
        os._exit(128 + signal.SIGTERM)

    _handle(leave)
    threading.Thread(target=watch, daemon=True, name="follower of the driver").start()
