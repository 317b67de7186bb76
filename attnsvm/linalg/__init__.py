"""Linear algebra whose last bits depend neither on the batch nor on the number of threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, local

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnsvm.config import ConfigError

EPS = 2.0**-52
"""Distance of 1 from the next float64."""

MATRIX = (-2, -1)
"""The axes of a matrix in a batch of them."""

LARGE = 2**16
"""Matrices with at least this many entries are read block by block."""

BLOCK = 2**14
"""Entries of a block: its temporaries fit the cache, and torch uses one thread for it."""

CACHE_LINE = 8
"""Float64 numbers in a cache line; the last bits of LAPACK depend on a matrix's alignment."""


@contextmanager
def one_thread() -> Iterator[int]:
    """Limit torch to one thread in the block; yield the number of threads before it.

    The last bits of LAPACK's results depend on the number of threads. One thread is also faster for
    many small matrices: on two busy cores two threads take 2 to 50 times as long as one. Blocks in
    several Python threads may overlap.
    """
    outermost = not getattr(_this_thread, "inside", False)
    with _lock:
        number = _outside[0] if _outside else torch.get_num_threads()
        if outermost:
            _outside.append(number)
            torch.set_num_threads(1)
    _this_thread.inside = True
    try:
        yield number
    finally:
        if outermost:
            with _lock:
                _this_thread.inside = False
                torch.set_num_threads(_outside.pop())


_lock, _this_thread = Lock(), local()
_outside: list[int] = []
"""The number of torch's threads outside of all blocks of `one_thread`, once for each of them."""


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


def summed(term: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """Return the sum of the entries of term(A, ...), one number per matrix; the axes broadcast.

    Large matrices are read a few rows at a time: temporaries fit the cache, and the last bits
    depend neither on the batch nor on the number of threads.
    """
    shape = np.broadcast_shapes(*(tuple(A.shape) for A in given))
    *leading, rows, columns = shape
    if rows * columns < LARGE:
        return term(*given).sum(MATRIX)
    total = given[0].new_zeros(leading)
    step = max(1, BLOCK // columns)
    given = tuple(A.expand(shape) for A in given)
    for index in np.ndindex(*leading):
        matrices = [A[index] for A in given]
        for k in range(0, rows, step):
            total[index] += term(*(A[k : k + step] for A in matrices)).sum()
    return total


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
