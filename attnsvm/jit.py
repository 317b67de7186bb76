"""Numba: code is compiled at its first call, cached on disk, and a log line announces it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from inspect import getsource
from threading import Timer
from types import ModuleType
from typing import Any

from numba import njit

log = logging.getLogger(__name__)

ANNOUNCED_S = 3.0
"""Seconds before compilation is announced; loading compiled code from disk takes less."""


def compiled(
    *included: ModuleType | float, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles at the first call and caches the code on disk if possible.

    Numba recompiles only if the function's own file changes. So a digest of everything else that
    is compiled in is made part of the function's name, under which the code is cached.

    Parameters
    ----------
    *included : module or number
        Modules and constants that the compiled code depends on.
    **options
        Those of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            parts = [getsource(p) if isinstance(p, ModuleType) else repr(p) for p in included]
            if parts:
                digest = sha256("".join(parts).encode()).hexdigest()[:16]
                function.__qualname__ = f"{function.__name__}_{digest}"
            made: Callable[..., Any] = njit(cache=True, **options)(function)
        except (RuntimeError, OSError):  # no writable folder, or no source
            made = njit(**options)(function)
        return made

    return decorate


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Log that `what` is being compiled, if the block takes longer than ANNOUNCED_S."""
    timer = Timer(ANNOUNCED_S, _announce, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _announce(what: str) -> None:
    log.warning("compiling the %s for this processor: once, up to half a minute", what)
