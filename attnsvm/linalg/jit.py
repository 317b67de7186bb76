"""Numba: code is compiled at its first call, cached on disk, and a log line announces it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from inspect import getsource
from types import ModuleType
from typing import Any

from numba import njit
from numba.core.event import Listener, install_listener

log = logging.getLogger(__name__)

BOUNDS = os.environ.get("ATTNSVM_BOUNDS", "0") == "1"
"""Whether compiled code checks the indices of arrays of lanes; read at import."""


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
            parts += ["bounds"] * BOUNDS
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
    """Log that `what` is being compiled, if something is compiled in the block.

    Code that is loaded from disk is not compiled. What another thread compiles counts if it runs in
    a copy of the block's context; of two nested blocks, the inner one.
    """
    announcement = _Announcement(what)
    token = _CURRENT.set(announcement)
    try:
        with install_listener("numba:compile", announcement):
            yield
    finally:
        _CURRENT.reset(token)


class _Announcement(Listener):  # type: ignore[misc]
    """Logs the start of the first compilation; what it includes is compiled within it."""

    def __init__(self, what: str) -> None:
        self.what, self.told = what, False

    def on_start(self, event: Any) -> None:
        if self.told or _CURRENT.get() is not self:
            return
        self.told = True
        log.warning("compiling the %s for this processor: once, about a minute at most", self.what)

    def on_end(self, event: Any) -> None:
        pass


_CURRENT: ContextVar[_Announcement | None] = ContextVar("announcement", default=None)
"""The innermost block that announces what is compiled in this context."""
