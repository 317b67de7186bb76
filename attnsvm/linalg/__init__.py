"""Linear algebra whose last bits depend neither on the batch nor on the number of threads.

And the correlation of matrices, and one minus it to full relative accuracy.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from attnsvm.config import ConfigError

EPS = 2.0**-52
"""Distance of 1 from the next float64."""

CPU = torch.device("cpu")

MATRIX = (-2, -1)
"""The axes of a matrix in a batch of them."""

LARGE = 2**16
"""Matrices with at least this many entries are read block by block."""

BLOCK = 2**14
"""Entries of a block: its temporaries fit the cache, and torch uses one thread for it."""

CACHE_LINE = 8
"""Float64 numbers in a cache line; the last bits of LAPACK depend on a matrix's alignment."""


@contextmanager
def own_settings() -> Iterator[int]:
    """Give torch the settings of an import in the block; yield its number of threads before it.

    Nothing that is drawn or decided inside depends on torch's default dtype and device, inference
    mode, autocast or number of threads. The last bits of LAPACK's results depend on the number of
    threads, and one thread is faster for many small matrices: on two busy cores two threads take 2
    to 50 times as long as one. Blocks in several Python threads may overlap.
    """
    with ExitStack() as stack:
        number = stack.enter_context(_own_process_settings())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device() != CPU:
            stack.enter_context(CPU)
        for kind in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield number


@contextmanager
def _own_process_settings() -> Iterator[int]:
    """Set what all Python threads share, one thread and float32; yield the threads before it."""
    outermost = not getattr(_this_thread, "inside", False)
    with _lock:
        settings = _outside[0] if _outside else (torch.get_num_threads(), torch.get_default_dtype())
        if outermost:
            _outside.append(settings)
            _set(1, torch.float32)
    _this_thread.inside = True
    try:
        yield settings[0]
    finally:
        if outermost:
            with _lock:
                _this_thread.inside = False
                _set(*_outside.pop())


def _set(threads: int, dtype: torch.dtype) -> None:
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


_lock, _this_thread = Lock(), local()
_outside: list[tuple[int, torch.dtype]] = []
"""Threads and default dtype outside of all blocks of `own_settings`, once for each of them."""


def _after_fork() -> None:
    """Free the lock, and leave a forked child its one thread."""
    global _lock
    _lock = Lock()
    _outside[:] = [(1, dtype) for _, dtype in _outside]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def times(A: Tensor, B: Tensor) -> Tensor:
    """Return A B, (b, m, k) times (b, k, n), with the same bits in every batch.

    torch uses a different routine for a batch of one matrix.
    """
    if len(A) > 1:
        return torch.bmm(A, B)
    return torch.bmm(A.expand(2, -1, -1), B.expand(2, -1, -1))[:1]


def orthonormal(V: Tensor) -> tuple[Tensor, Tensor]:
    """Return E (b, m, c), E^T E = I, and R (b, c, n) with V = E R, of V (b, m, n), c = min(m, n).

    V is padded with rows of zeros, so that every matrix of the batch starts at a cache line.
    """
    m = V.shape[1]
    E, R = torch.linalg.qr(pad(V, (0, 0, 0, -m % CACHE_LINE)))
    c = min(V.shape[1:])
    return E[:, :m, :c].contiguous(), R[:, :c]


def summed(term: Callable[..., Tensor], *arrays: Tensor) -> Tensor:
    """Return the sum of the entries of term(A, ...), one number per matrix; the axes broadcast.

    Large matrices are read a few rows at a time: temporaries fit the cache, and the last bits
    depend neither on the batch nor on the number of threads.
    """
    shape = np.broadcast_shapes(*(tuple(A.shape) for A in arrays))
    *leading, rows, columns = shape
    if rows * columns < LARGE:
        return term(*arrays).sum(MATRIX)
    total = arrays[0].new_zeros(leading)
    step = max(1, BLOCK // columns)
    arrays = tuple(A.expand(shape) for A in arrays)
    for index in np.ndindex(*leading):
        matrices = [A[index] for A in arrays]
        for k in range(0, rows, step):
            total[index] += term(*(A[k : k + step] for A in matrices)).sum()
    return total


PLAIN = [Tensor, Parameter]
"""The classes of tensors whose values are the entries that they store."""


def check_plain(name: str, tensor: Tensor) -> None:
    """Raise ConfigError unless the values of a tensor are the entries that it stores.

    Those of other layouts, and of subclasses but parameters, are not.
    """
    kind = type(tensor)
    if kind not in PLAIN:
        raise ConfigError(f"{name}: {kind.__module__}.{kind.__qualname__}; must be a torch.Tensor")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise ConfigError(f"{name}: {tensor.dtype}, {layout}; must be a dense tensor")


def tensor_of(name: str, array: Any, device: torch.device | str | None = None) -> Tensor:
    """Return a tensor, an array or nested lists as a contiguous tensor; ConfigError if none is.

    Without `device` a tensor stays where it is, and arrays go to the CPU.
    """
    if isinstance(array, Tensor):
        check_plain(name, array)
        if array.is_meta:
            raise ConfigError(f"{name}: on the device meta; must have values")
        tensor = array
    elif hasattr(array, "toarray"):
        raise ConfigError(f"{name}: {type(array).__name__}; must be dense: {name}.toarray()")
    else:
        try:
            entries = np.ma.asarray(array)
            native = entries.data.astype(entries.dtype.newbyteorder("="), order="C")
            tensor = torch.from_numpy(native)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"{name}: {error}; must be an array of numbers") from error
        if np.ma.is_masked(entries):
            raise ConfigError(f"{name}: has masked entries; must be filled")
    tensor = tensor.to(device).resolve_neg().contiguous()
    return tensor.clone() if tensor.is_inference() else tensor  # autograd can save the clone


def real(name: str, array: Any, device: torch.device | str | None = None) -> Tensor:
    """Return an array of real numbers as a contiguous float64 tensor, as `tensor_of`."""
    tensor = tensor_of(name, array, device)
    if tensor.is_complex():
        raise ConfigError(f"{name}: {tensor.dtype}; must be real numbers")
    return tensor.to(torch.float64)


def check_array(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ConfigError unless `tensor` is finite and has this shape and type."""
    if tensor.shape != shape:
        raise ConfigError(f"{name}: shape {tuple(tensor.shape)}; must be {tuple(shape)}")
    if tensor.dtype != dtype:
        convert = "double" if dtype.is_floating_point else str(dtype).removeprefix("torch.")
        raise ConfigError(
            f"{name}: {tensor.dtype}; must be {dtype}: {name.split()[-1]}.{convert}()"
        )
    if not tensor.dtype.is_floating_point or tensor.sum().isfinite():  # far faster than each entry
        return
    if not tensor.isfinite().all():
        bad = (~tensor.isfinite()).nonzero()[0].tolist()
        value = tensor[tuple(bad)].item()
        raise ConfigError(f"{name}: {value} at index {bad}; must be finite numbers")


@own_settings()
def correlation(A: Any, B: Any) -> Any:
    """Return <A, B> / (||A||_F ||B||_F), one number per matrix.

    Parameters
    ----------
    A, B : (..., d, d)
        Tensors or arrays; leading axes broadcast.

    Returns
    -------
    (...)
        Array type as `A`; NaN where a matrix is zero or not finite.
    """
    return _over_units(lambda A, a, r, U: A / a / r * U, A, B)


@own_settings()
def one_minus_correlation(A: Any, B: Any) -> Any:
    """Return 1 - correlation(A, B) as half the squared distance of the unit matrices.

    1 - <a, b> = ||a - b||^2 / 2 for ||a|| = ||b|| = 1. The right-hand side is accurate where the
    left one cancels: the left one loses half of its digits at 1e-8 and all of them at 1e-16.
    """
    return 0.5 * _over_units(lambda A, a, r, U: (A / a / r - U).square(), A, B)


def _over_units(term: Callable[..., Tensor], A: Any, B: Any) -> Any:
    """Return the sum of `term(A, a, r, U)` per matrix, A / a / r and U the units of A and B."""
    if not isinstance(A, Tensor):
        return _over_units(term, real("A", A), B).numpy()
    A, B = real("A", A), real("B", B, A.device)
    pairs = zip(A.shape[-3::-1], B.shape[-3::-1], strict=False)
    if A.shape[-2:] != B.shape[-2:] or any(a != b and 1 not in (a, b) for a, b in pairs):
        shapes = f"shape {tuple(B.shape)}; must be that of A, {tuple(A.shape)}"
        raise ValueError(f"B: {shapes}, but for leading axes of length 1")
    return summed(term, A, *_size(A), unit(B))


def unit(A: Tensor) -> Tensor:
    """Return A / ||A||_F, (..., d, d); NaN where a matrix is zero or not finite."""
    a, r = _size(A)
    return (A / a).div_(r)


def _size(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = max |A_ij| and r = ||A / a||_F, (..., 1, 1): A / a / r has norm one."""
    largest = torch.maximum(A.amax(MATRIX, keepdim=True), -A.amin(MATRIX, keepdim=True))
    squares = summed(lambda A, a: (A / a).square(), A, largest)
    return largest, squares.sqrt()[..., None, None]
