"""How far a sweep is, read from its folder: one rewritten line on a terminal, or plain lines.

Nothing is asked of the jobs or of the launcher, so it is the same for all of them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from attnsvm.claim import CLAIM_FILE
from attnsvm.state import RUN_FILE
from attnsvm.storage import CorruptRecordError, read_json

TERMINAL_S, LOG_S = 1.0, 30.0
"""Seconds between two looks: at a terminal, and for plain lines."""


class Progress:
    """Tells in the background how many of the runs `todo` are finished.

    Parameters
    ----------
    directory : Path
        The sweep's folder.
    todo : iterable of str
        Folder names of the runs that are to be done now.
    done : int
        Number of runs that were done before.
    """

    def __init__(
        self, directory: Path, todo: Iterable[str], done: int, stream: TextIO | None = None
    ) -> None:
        self.directory, self.done_before = directory, done
        self.stream = sys.stderr if stream is None else stream
        self.begin = time.monotonic()
        self.open = {name: self._written(name) for name in todo}
        self.total = done + len(self.open)
        self.states: Counter[str] = Counter()
        self.instances = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        self.thread.join()
        if self.total > self.done_before:
            self._tell(self.line(), end="\n")

    def _watch(self) -> None:
        terminal = self.stream.isatty()
        pause_s, told = (TERMINAL_S if terminal else LOG_S), ""
        while not self.stop.wait(pause_s):
            looked = time.monotonic()
            line = self.line()
            if line != told:
                self._tell(line, end="\r" if terminal else "\n")
            told = line
            # a folder with many runs on a slow disk is looked at less often
            pause_s = max(pause_s, 20 * (time.monotonic() - looked))

    def _tell(self, line: str, end: str) -> None:
        clear = "\x1b[K" if self.stream.isatty() else ""
        self.stream.write(f"{line}{clear}{end}")
        self.stream.flush()

    def line(self) -> str:
        """Return where the sweep stands now."""
        self._look()
        finished, left = sum(self.states.values()), len(self.open)
        elapsed = time.monotonic() - self.begin
        running = sum((self.directory / name / CLAIM_FILE).exists() for name in self.open)
        parts = [f"{self.done_before + self.states['done']} of {self.total} runs done"]
        parts += [f"{n} {state}" for state, n in sorted(self.states.items()) if state != "done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{self.instances / elapsed:.3g} instances/s"] if self.instances else []
        parts += [f"{duration(left * elapsed / finished)} left"] if finished and left else []
        return ", ".join(parts)

    def _look(self) -> None:
        for name in list(self.open):
            written = self._written(name)
            if written in (None, self.open[name]):
                continue
            try:
                run = read_json(self.directory / name / RUN_FILE)
            except (FileNotFoundError, CorruptRecordError):
                continue
            del self.open[name]
            self.states[run["state"]] += 1
            self.instances += run.get("drawn", 0)

    def _written(self, name: str) -> int | None:
        try:
            return (self.directory / name / RUN_FILE).stat().st_mtime_ns
        except OSError:
            return None


def duration(seconds: float) -> str:
    """Return a time in words, two digits or so."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
