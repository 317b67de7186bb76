"""What a command is doing, said every ten seconds, or on one line of a terminal.

Work tells what it does by `doing` and `each`, also in a library, where nobody says it. A command
says it in `speaking`, from a thread of its own, so that no work of any length is silent. How far
work is, and the time that is left, is the text of tqdm.
"""

import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TextIO, TypeVar

from tqdm import tqdm

from attnsvm.display.command import prepare
from attnsvm.record.files import duration

TERMINAL_S, LOG_S = 1.0, 10.0
"""Seconds between two updates of the line of a terminal, and between two lines of a log."""

T = TypeVar("T")


@dataclass(eq=False)
class Work:
    """Work that is going on: its name, or a function that returns it, and how much is done."""

    name: str | Callable[[], str]
    total: int = 0
    done: int = 0
    begin: float = 0.0

    def __str__(self) -> str:
        name = self.name if isinstance(self.name, str) else self.name()
        spent = monotonic() - self.begin
        meter = tqdm.format_meter(self.done, self.total, spent, prefix=name, ascii=True)
        return meter if self.total else name


_open: list[Work] = []
"""The work that is going on, each a part of the one before."""


@contextmanager
def doing(name: str | Callable[[], str], total: int = 0) -> Iterator[Work]:
    """Tell what the block does; it sets how much is `done` of a `total`."""
    work = Work(name, total, begin=monotonic())
    _open.append(work)
    try:
        yield work
    finally:
        _open.remove(work)


def each(name: str, items: Collection[T]) -> Iterator[T]:
    """Yield the items, and tell how many are done."""
    with doing(name, len(items)) as work:
        for work.done, item in enumerate(items):
            yield item


@contextmanager
def speaking() -> Iterator[None]:
    """Say on standard error what the block, a command, does."""
    prepare()
    over = threading.Event()
    thread = threading.Thread(target=speak, args=(sys.stderr, over.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def speak(stream: TextIO, over: Callable[[float], bool]) -> None:
    """Say what is going on until `over(seconds)`, which waits at most so long, returns True."""
    begin, terminal = monotonic(), stream.isatty()
    pause_s = TERMINAL_S if terminal else LOG_S
    while not over(pause_s):
        now = monotonic()
        works = ", ".join(filter(None, map(str, list(_open)))) or "at work"
        say(f"{works}, {duration(now - begin)} so far", stream, end="\r" if terminal else "\n")
        # to describe many runs on a slow disk takes long: use at most 5 % of the time for it
        pause_s = max(pause_s, 20 * (monotonic() - now))
    if terminal:
        say("", stream, end="\r")


def cleared(record: object) -> bool:
    """Clear the line of a terminal for a record of a logger, of which this is a filter."""
    if sys.stderr.isatty():
        say("", sys.stderr, end="\r")
    return True


def say(line: str, stream: TextIO, end: str = "\n") -> None:
    """Print a line, on a terminal in the place of the one that is rewritten there."""
    if end == "\r":
        line = line[: shutil.get_terminal_size().columns - 1]
    with suppress(OSError, ValueError):  # the terminal or the stream was closed
        stream.write(line + "\x1b[K" * stream.isatty() + end)
        stream.flush()
