"""The progress of a sweep, read from the sweep's folder, so that it works with every launcher."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attnsvm.display.pace import doing, say
from attnsvm.record import LOCK_FILE, RUN_FILE, CorruptRecordError, duration, kind_of, read_run


@contextmanager
def progress(directory: Path, pending: Iterable[str], done: int) -> Iterator[None]:
    """Tell during the block how many of the runs `pending`, by folder name, are finished.

    `done` runs of the sweep in `directory` are done already. At the end a line is printed.
    """
    runs = Runs(directory, pending, done)
    try:
        with doing(runs.line):
            yield
    finally:
        if runs.total > done:
            say(f"{runs.line()}, {duration(time.monotonic() - runs.begin)} in all", sys.stderr)


class Runs:
    """The runs of a sweep in a folder: those that are pending, and the number of the others."""

    def __init__(self, directory: Path, pending: Iterable[str], done: int) -> None:
        self.directory, self.done_before = directory, done
        self.begin = time.monotonic()
        self.open = {name: self._written(name) for name in pending}
        self.total = done + len(self.open)
        self.states: Counter[str] = Counter()
        self.instances = 0
        self.reading = threading.Lock()

    def line(self) -> str:
        """Return how many runs are done, have failed, are running, and the time left."""
        with self.reading:
            self._update()
        finished, left = sum(self.states.values()), len(self.open)
        elapsed = time.monotonic() - self.begin
        locks = (self.directory / name / LOCK_FILE for name in self.open)
        running = sum(kind_of(lock) == "a file" for lock in locks)
        parts = [f"{self.done_before + self.states['done']} of {self.total} runs done"]
        parts += [f"{n} {state}" for state, n in sorted(self.states.items()) if state != "done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{self.instances / elapsed:.3g} instances/s"] if self.instances else []
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
