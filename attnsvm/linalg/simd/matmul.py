"""Products of small matrices whose entries are lanes, in compiled code."""

import itertools
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import LANES, VECTOR, fill, fma
from attnsvm.linalg.simd.array import LaneArray, View, integer


def _wide_registers() -> bool:
    """Return whether numba compiles for registers of eight lanes, of which there are 32."""
    if config.CPU_FEATURES is not None:
        return "+avx512f" in config.CPU_FEATURES
    return bool(get_host_cpu_features().get("avx512f"))


COLUMNS, ROWS, ROWS_OF_ONE = (4, 4, 8) if _wide_registers() else (2, 3, 6)
"""Largest tile: columns, rows, and rows if there is a single column.

The latency of a multiply-add is 4 cycles at 2 per cycle, so at least 8 independent accumulators are
needed; operands need registers too. A processor with registers of four lanes has 16 of them and
needs two for a value.
"""


@njit(inline="always")
def matmul(C: LaneArray, A: LaneArray, B: LaneArray) -> None:
    """Write C = A B; a vector is a matrix with one column.

    Every entry is one chain of multiply-adds in the order of the inner index, independent of its
    tile. The code is compiled once for all calls.
    """
    _product(C.matrix, A.matrix, B.matrix, False)


@njit(inline="always")
def add_matmul(C: LaneArray, A: LaneArray, B: LaneArray) -> None:
    """Write C + A B to C, otherwise as `matmul`."""
    _product(C.matrix, A.matrix, B.matrix, True)


@njit(inline="always")
def matmul_inline(C: LaneArray, A: LaneArray, B: LaneArray) -> None:
    """Write C = A B as `matmul` does, in code that is made for this call."""
    _tiled(C.matrix, A.matrix, B.matrix, False)


PANEL = 4
"""Number of rows or columns of a triangle that are processed together."""


@subroutine
def upper_matmul(C: LaneArray, R: LaneArray, A: LaneArray, upper: bool) -> None:
    """Write C = R A, with R upper triangular if `upper`."""
    for first in range(0, len(R), PANEL):
        last, before = min(first + PANEL, len(R)), first if upper else 0
        matmul_inline(C[first:last].T, A[before:].T, R[first:last, before:].T)


@subroutine
def upper_T_matmul(C: LaneArray, R: LaneArray, A: LaneArray, upper: bool) -> None:
    """Write C = R^T A, with R upper triangular if `upper`."""
    rows, columns = R.shape
    for first in range(0, columns, PANEL):
        last = min(first + PANEL, columns)
        end = min(last, rows) if upper else rows
        matmul_inline(C[first:last].T, A[:end].T, R[:end, first:last])


@subroutine
def _product(C: LaneArray, A: LaneArray, B: LaneArray, onto: bool) -> None:
    if len(C) == 1:  # as one column, of which a tile has more entries
        C, A, B = C.T, B.T, A.T
    _tiled(C, A, B, onto)


@njit(inline="always")
def _tiled(C: LaneArray, A: LaneArray, B: LaneArray, onto: bool) -> None:
    rows, columns = C.shape
    j = 0
    while j < columns:
        wide, i = _part(columns - j, COLUMNS), 0
        while i < rows:
            high = _part(rows - i, ROWS_OF_ONE if wide == 1 else ROWS)
            _tile(C[i:, j:], A[i:], B[:, j:], onto, high, wide)
            i += high
        j += wide


@njit(inline="always")
def _part(rest: int, most: int) -> int:
    """Return the size of the next part of `rest`, at most `most`; the last two are about equal."""
    if rest >= 2 * most:
        return most
    return rest if rest <= most else (rest + 1) >> 1


@intrinsic
def _tile(typingctx, C, A, B, onto, rows, columns):  # type: ignore[no-untyped-def]
    """Write one tile of C = A B, or C + A B, with all chains of multiply-adds interleaved."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        *values, onto, rows, columns = args
        kinds = zip(signature.args, values, strict=False)
        views = [View(context, builder, kind, value) for kind, value in kinds]
        end = builder.append_basic_block("written")
        choice = builder.switch(builder.add(builder.mul(columns, integer(64)), rows), end)
        for width in range(1, COLUMNS + 1):
            for height in range(1, (ROWS_OF_ONE if width == 1 else ROWS) + 1):
                block = builder.append_basic_block(f"tile_{height}_{width}")
                choice.add_case(integer(64 * width + height), block)
                builder.position_at_end(block)
                _write_tile(builder, views, onto, height, width)
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(C, A, B, types.boolean, types.intp, types.intp), codegen


def _write_tile(builder: Any, views: list[View], onto: Any, rows: int, columns: int) -> None:
    """Build the code of a tile of C = A B; LLVM keeps its sums in registers."""
    C, A, B = views
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    entries = [(integer(i), integer(j)) for i in range(rows) for j in range(columns)]
    sums = [cgutils.alloca_once(builder, VECTOR) for _ in entries]

    def read(array: View, *indices: Any) -> Any:
        return builder.load(array.pointer(indices), align=8)

    for total in sums:
        builder.store(zero, total)
    with builder.if_then(onto, likely=False):
        for entry, total in zip(entries, sums, strict=True):
            builder.store(read(C, *entry), total)
    with cgutils.for_range(builder, A.shape[1]) as loop:
        left = [read(A, integer(i), loop.index) for i in range(rows)]
        above = [read(B, loop.index, integer(j)) for j in range(columns)]
        for (a, b), total in zip(itertools.product(left, above), sums, strict=True):
            builder.store(fma(builder, a, b, builder.load(total)), total)
    for entry, total in zip(entries, sums, strict=True):
        builder.store(builder.load(total), C.pointer(entry), align=8)


@njit(inline="always")
def inner(a: LaneArray, b: LaneArray) -> Any:
    """Return <a, b> of two vectors, in four chains of multiply-adds."""
    c0 = c1 = c2 = c3 = fill(0.0)
    whole = len(a) // 4 * 4
    for j in range(0, whole, 4):
        c0, c1 = c0 + a[j] * b[j], c1 + a[j + 1] * b[j + 1]
        c2, c3 = c2 + a[j + 2] * b[j + 2], c3 + a[j + 3] * b[j + 3]
    for j in range(whole, len(a)):
        c0 += a[j] * b[j]
    return (c0 + c1) + (c2 + c3)


@njit(inline="always")
def rescale(x: LaneArray, factor: Any) -> None:
    """Multiply the entries of a vector by a number."""
    for j in range(len(x)):
        x[j] *= factor


@njit(inline="always")
def add(x: LaneArray, y: LaneArray, factor: Any) -> None:
    """Add a vector times a number to another one."""
    for j in range(len(x)):
        x[j] += factor * y[j]
