"""Numba: code is compiled at its first call, cached on disk, and a log line announces it."""

import fcntl
import io
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from hashlib import sha256
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba import config, njit
from numba._dynfunc import make_function
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from numba.core.event import Listener, install_listener
from numba.core.serialize import dumps

from attnsvm.config import ConfigError
from attnsvm.display.pace import cleared, doing

if config.DISABLE_JIT:
    raise ConfigError("NUMBA_DISABLE_JIT=1: must be 0, or absent: attnsvm needs compiled code")

log = logging.getLogger(__name__)
log.addFilter(cleared)


class _SubroutineCode(JITCodeLibrary):  # type: ignore[misc]
    """Code that is optimised, and turned into machine code, only within that of its callers."""

    def _optimize_final_module(self) -> None:
        """Do nothing."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _SubroutineCompiler(Compiler):  # type: ignore[misc]
    """Compiles a subroutine as far as its callers need it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        target = self.state.targetctx
        self.state.library = _SubroutineCode(target.codegen(), "subroutine")
        target.get_executable = lambda library, about, environment: make_function(
            about.lookup_module(), about.qualname, "", 0, environment, (library,)
        )


subroutine = partial(
    njit, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_SubroutineCompiler
)
"""Decorator of what only compiled code calls: it has no entry from Python."""

inlined = partial(subroutine, forceinline=True)
"""Decorator of a long subroutine that becomes a part of its callers: numba copies it slowly."""

LONGEST_S, POLL_S = 300.0, 0.2
"""Seconds to wait for the code that another process compiles, and between two looks."""

BOUNDS = os.environ.get("ATTNSVM_BOUNDS", "0") == "1"
"""Whether compiled code checks the indices of arrays of lanes; read at import."""


DIGEST_BYTES = 32
"""Length of the digest at the begin of a file of compiled code."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles at the first call and caches the code on disk if possible.

    A cache that is damaged, or cannot be read or written, costs the time of a compilation and no
    more. A digest of the other modules of compiled code from which the function takes names, and of
    its constants, is made part of its name, under which the code is cached. The options are those
    of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher: Any = njit(**options)(function)
        try:
            parts = [*_sources(function.__module__), *["bounds"] * BOUNDS]
            digest = sha256("".join(parts).encode()).hexdigest()[:16]
            function.__qualname__ = f"{function.__name__}_{digest}"
            cache = _Cache(function)
        except (RuntimeError, OSError):  # no writable folder, or no source
            return dispatcher
        dispatcher._cache, compile_signature = cache, dispatcher.compile

        def compile_once(signature: Any) -> Any:
            try:
                return compile_signature(signature)
            finally:  # also of an interrupted compilation: others need not wait for it
                cache.files.unlock()

        dispatcher.compile = compile_once
        return dispatcher

    return decorate


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, in files that are checked."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self.files = self._cache_file = _CodeFiles(
            Path(self.cache_path), self._impl.filename_base, (numba.__version__, stamp)
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code of a signature, if the folder still takes it."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.warning("compiled code is not kept for the next command: %s", error)


class _CodeFiles:
    """The compiled code of a function: a file for each signature and processor.

    A file begins with the digest of the rest: one that was truncated or damaged counts as missing.
    While a process compiles, others wait for its code.
    """

    def __init__(self, folder: Path, name: str, version: tuple[Any, ...]) -> None:
        self.folder, self.name, self.version = folder, name, version
        self.lock: io.IOBase | None = None

    def load(self, key: Any) -> Any:
        """Return the code of a key; None, and hold the lock, if it must be compiled."""
        path = self._path(key)
        code = _checked(path)
        if code is None:
            self.lock = _locked(self.folder / f"{self.name}.lock")
            code = _checked(path)
        return code

    def save(self, key: Any, code: Any) -> None:
        """Replace the code of a key; OSError if it cannot be written."""
        path, content = self._path(key), dumps(code)
        partial_file = path.with_suffix(".tmp")  # one name: what a kill leaves is overwritten
        partial_file.write_bytes(sha256(content).digest() + content)
        partial_file.replace(path)

    def unlock(self) -> None:
        """Let other processes go on."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def _path(self, key: Any) -> Path:
        digest = sha256(repr((self.version, key)).encode()).hexdigest()[:16]
        return self.folder / f"{self.name}.{digest}.code"


def _checked(path: Path) -> Any:
    """Return the code in a file; None if there is none, or it is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return pickle.loads(code) if sha256(code).digest() == digest else None  # noqa: S301 - our own


def _locked(path: Path) -> io.IOBase | None:
    """Return a file that is locked as long as it is open; None where that takes too long."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError:
        return None
    for _ in range(round(LONGEST_S / POLL_S)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            time.sleep(POLL_S)
        except OSError:  # a file system without locks
            break
    file.close()
    return None


def _sources(first: str) -> list[str]:
    """Return the sources of the modules of compiled code that a module uses, and all constants."""
    found, waiting = {}, [first]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        values = list(vars(sys.modules[name]).values())
        numbers = [v for v in values if isinstance(v, int | float) or _all_numbers(v)]
        found[name] = repr(numbers) + ("" if name == first else getsource(sys.modules[name]))
        waiting += {module for module in map(_module_of, values) if _has_compiled_code(module)}
    return [found[name] for name in sorted(found)]


def _all_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(entry, int | float) for entry in value)


def _module_of(value: Any) -> str:
    of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return of if isinstance(of, str) else ""


def _has_compiled_code(module: str) -> bool:
    """Return whether this is one of our modules that uses numba."""
    if not module.startswith("attnsvm.") or module == __name__:
        return False
    return any(
        isinstance(value, Dispatcher) or _module_of(value).startswith("numba")
        for value in vars(sys.modules[module]).values()
    )


@contextmanager
def announced(what: str, seconds: int) -> Iterator[None]:
    """Log that `what` is being compiled, in so many seconds, if something is in the block.

    Code that is loaded from disk is not compiled. What another thread compiles counts if it runs in
    a copy of the block's context; of two nested blocks, the inner one.
    """
    announcement = _Announcement(what, seconds)
    token = _CURRENT.set(announcement)
    try:
        with announcement.going_on, install_listener("numba:compile", announcement):
            yield
    finally:
        _CURRENT.reset(token)


def in_parts(work: Callable[[int, int], Any], count: int, parts: int) -> list[Any]:
    """Return work(first, end) for each of `parts` parts of range(count), at most one for a core.

    They run in threads, in the context of the call, hence compilation is announced.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    parts = max(1, min(cores, count, parts))
    ends = list(pairwise(count * k // parts for k in range(parts + 1)))
    if parts == 1:
        return [work(0, count)]
    contexts = [copy_context() for _ in ends]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(lambda context, part: context.run(work, *part), contexts, ends))


class _Announcement(Listener):  # type: ignore[misc]
    """Logs the start of the first compilation; what it includes is compiled within it."""

    def __init__(self, what: str, seconds: int) -> None:
        self.words, self.seconds = f"compiling the {what}", seconds
        self.told, self.depth, self.going_on = False, 0, ExitStack()

    def on_start(self, event: Any) -> None:
        if _CURRENT.get() is not self:
            return
        self.depth += 1
        if not self.told:
            self.told = True
            self.going_on.enter_context(doing(self.words))
            log.warning("%s for this processor: once, about %d s", self.words, self.seconds)

    def on_end(self, event: Any) -> None:
        self.depth -= _CURRENT.get() is self
        if not self.depth:
            self.going_on.close()


_CURRENT: ContextVar[_Announcement | None] = ContextVar("announcement", default=None)
"""The innermost block that announces what is compiled in this context."""
