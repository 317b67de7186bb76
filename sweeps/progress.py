"""The progress of a sweep: one line, rewritten, on a terminal; plain lines in a log.

It is read from the sweep's folder, so it works with every launcher.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self, TextIO

from attnsvm.record import LOCK_FILE, RUN_FILE, CorruptRecordError, duration, kind_of, read_run

TERMINAL_S, LOG_S = 1.0, 10.0
"""Seconds between two updates, on a terminal and in a log."""


class Progress:
    """Print in the background how many of the runs `pending`, by folder name, are finished.

    `done` runs of the sweep in `directory` are done already; prints to standard error by default.
    """

    def __init__(
        self, directory: Path, pending: Iterable[str], done: int, stream: TextIO | None = None
    ) -> None:
        self.directory, self.done_before = directory, done
        self.stream = sys.stderr if stream is None else stream
        self.begin = time.monotonic()
        self.open = {name: self._written(name) for name in pending}
        self.total = done + len(self.open)
        self.states: Counter[str] = Counter()
        self.instances = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.thread.join()
        if self.total > self.done_before:
            self._print(self.line(), end="\n")

    def _watch(self) -> None:
        terminal = self.stream.isatty()
        pause_s = TERMINAL_S if terminal else LOG_S
        while not self.stop.wait(pause_s):
            begin = time.monotonic()
            self._print(self.line(), end="\r" if terminal else "\n")
            # reading many runs from a slow disk takes long: use at most 5 % of the time for it
            pause_s = max(pause_s, 20 * (time.monotonic() - begin))

    def _print(self, line: str, end: str) -> None:
        clear = "\x1b[K" if self.stream.isatty() else ""
        with suppress(OSError):  # the terminal was closed
            self.stream.write(f"{line}{clear}{end}")
            self.stream.flush()

    def line(self) -> str:
        """Return how many runs are done, have failed, are running, and the time left."""
        self._update()
        finished, left = sum(self.states.values()), len(self.open)
        elapsed = time.monotonic() - self.begin
        locks = (self.directory / name / LOCK_FILE for name in self.open)
        running = sum(kind_of(lock) == "a file" for lock in locks)
        parts = [f"{self.done_before + self.states['done']} of {self.total} runs done"]
        parts += [f"{n} {state}" for state, n in sorted(self.states.items()) if state != "done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{self.instances / elapsed:.3g} instances/s"] if self.instances else []
        parts += [f"{duration(elapsed)} so far"]
        parts += [f"{duration(left * elapsed / finished)} left"] if finished and left else []
        return ", ".join(parts)

    def _update(self) -> None:
        for name in list(self.open):
            written = self._written(name)
            if written in (None, self.open[name]):
                continue
            try:
                run = read_run(self.directory / name)
            except (OSError, CorruptRecordError):
                continue
            del self.open[name]
            self.states[run["state"]] += 1
            self.instances += run.get("drawn", 0)

    def _written(self, name: str) -> int | None:
        try:
            return (self.directory / name / RUN_FILE).stat().st_mtime_ns
        except OSError:
            return None
