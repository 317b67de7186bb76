"""Numba: code is compiled at its first call, cached on disk, and a log line announces it.

This is the only module that uses private classes of numba, for what `njit` does not do:

- `njit(cache=True)` does not see changes of other modules, raises on a damaged cache or a folder
  without write access, and lets several processes compile the same code: `_Cache`.
- It optimises every subroutine twice, alone and within its callers. `_SubroutineCompiler` leaves
  out the first time, which is a third of the time of compilation; the code is as fast.
"""

import logging
import os
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from filelock import FileLock
from numba import config, njit
from numba._dynfunc import make_function
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from attnsvm.config import ConfigError
from attnsvm.display.pace import cleared, doing

if config.DISABLE_JIT:
    raise ConfigError("NUMBA_DISABLE_JIT=1: must be 0, or absent: attnsvm needs compiled code")

log = logging.getLogger(__name__)
log.addFilter(cleared)

LONGEST_S = 300.0
"""Seconds to wait for the code that another process compiles."""

DIGEST_BYTES = 32
"""Length of the digest at the begin of a file of compiled code."""


class _SubroutineCode(JITCodeLibrary):  # type: ignore[misc]
    """Code that is optimised, and turned into machine code, only within that of its callers."""

    def _optimize_final_module(self) -> None:
        """Do nothing."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _SubroutineCompiler(Compiler):  # type: ignore[misc]
    """Compiles a subroutine as far as its callers need it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
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


def compiled(name: str, duration: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles at the first call and caches the code on disk if possible.

    A cache that is damaged, or cannot be read or written, costs the time of a compilation and no
    more. A warning in the log says that the code of this name is compiled, and how long it takes.
    The options are those of `numba.njit`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(**options)(function)
        dispatcher._cache = files = _Cache(function, f"compiling the {name}", duration)
        compile_signature = dispatcher.compile

        def compile_once(signature: Any) -> Any:
            with files.compilation:  # also ends one that is interrupted: others need not wait
                return compile_signature(signature)

        dispatcher.compile = compile_once
        return dispatcher

    return decorate


class _Cache(FunctionCache):  # type: ignore[misc]
    """The compiled code of a function: a file for each signature and processor.

    A file begins with the digest of the rest: one that was truncated or damaged counts as missing.
    While a process compiles, others wait for its code.
    """

    def __init__(self, function: Callable[..., Any], action: str, duration: str) -> None:
        self.action, self.duration, self.compilation = action, duration, ExitStack()
        self.base: Path | None = None
        with suppress(RuntimeError, OSError):  # no folder that can be written, or no source
            super().__init__(function)
            self.version = numba.__version__, _sources(function.__module__)
            self.base = Path(self.cache_path, self._impl.filename_base)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code of a signature; None, and hold the lock, if it must be compiled."""
        target_context.refresh()
        code = self.base and self._read(sig, target_context.codegen())
        if code is None:
            with suppress(OSError, NotImplementedError):  # also one that takes too long
                if self.base:
                    self.base.parent.mkdir(parents=True, exist_ok=True)
                    lock = FileLock(f"{self.base}.lock", LONGEST_S, thread_local=False)
                    self.compilation.enter_context(lock)
                    code = self._read(sig, target_context.codegen())
        if code is not None:
            return self._impl.rebuild(target_context, code)
        log.warning("%s for this processor: once, about %s", self.action, self.duration)
        self.compilation.enter_context(doing(self.action))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code of a signature, if the folder takes it."""
        if self.base is None:
            return
        path, code = self._path(sig, data.codegen), dumps(self._impl.reduce(data))
        partial_file = path.with_suffix(".tmp")  # one name: what a kill leaves is overwritten
        try:
            partial_file.write_bytes(sha256(code).digest() + code)
            partial_file.replace(path)
        except OSError as error:
            log.warning("compiled code is not kept for the next command: %s", error)

    def _path(self, sig: Any, codegen: Any) -> Path:
        assert self.base is not None
        key = repr((self.version, self._index_key(sig, codegen)))
        return Path(f"{self.base}.{sha256(key.encode()).hexdigest()[:16]}.code")

    def _read(self, sig: Any, codegen: Any) -> Any:
        """Return the code in a file; None if there is none, or it is not what was written."""
        try:
            content = self._path(sig, codegen).read_bytes()
        except OSError:
            return None
        digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return pickle.loads(code) if sha256(code).digest() == digest else None  # noqa: S301 - our own


def _sources(module: str) -> str:
    """Return a digest of the modules of compiled code that a module uses, and of their numbers."""
    modules = [sys.modules[name] for name in sorted(_modules(module, set()))]
    numbers = [v for m in modules for v in vars(m).values() if isinstance(v, int | float)]
    files = {Path(str(m.__file__)) for m in modules}.union(Path(__file__).parent.rglob("*.py"))
    content = b"".join(file.read_bytes() for file in sorted(files))
    return sha256(repr(numbers).encode() + content).hexdigest()


def _modules(name: str, seen: set[str]) -> set[str]:
    """Add a module, and those of the compiled code that it uses, to those `seen`."""
    if name not in seen:
        seen.add(name)
        for value in vars(sys.modules[name]).values():
            if isinstance(value, Dispatcher):
                _modules(value.py_func.__module__, seen)
    return seen


def in_parts(
    work: Callable[[int, int], Any], count: int, parts: int, threads: int | None = None
) -> list[Any]:
    """Return work(first, end) for each of `parts` parts of range(count), at least one.

    They run in so many threads, by default one for each core.
    """
    parts = max(1, min(count, parts))
    ends = [count * k // parts for k in range(parts + 1)]
    if parts == 1:
        return [work(0, count)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    with ThreadPoolExecutor(threads or cores) as pool:
        return list(pool.map(work, ends, ends[1:]))
