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
from attnsvm.linalg.simd.array import LaneArray, as_matrix, integer


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
    _product(_operands(C, A, B), False)


@njit(inline="always")
def add_matmul(C: LaneArray, A: LaneArray, B: LaneArray) -> None:
    """Write C + A B to C, otherwise as `matmul`."""
    _product(_operands(C, A, B), True)


@njit(inline="always")
def matmul_inline(C: LaneArray, A: LaneArray, B: LaneArray) -> None:
    """Write C = A B as `matmul` does, in code that is made for this call."""
    _tiled(_operands(C, A, B), False)


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


@njit(inline="always")
def _operands(C: LaneArray, A: LaneArray, B: LaneArray) -> Any:
    """Return address and strides of each of C = A B, and rows, columns, inner."""
    c, down, right, rows, columns = as_matrix(C)
    a, a_row, a_inner, _, inner = as_matrix(A)
    b, b_inner, b_column, _, _ = as_matrix(B)
    return c, down, right, a, a_row, a_inner, b, b_inner, b_column, rows, columns, inner


@subroutine
def _product(operands: Any, onto: bool) -> None:
    c, down, right, a, a_row, a_inner, b, b_inner, b_column, rows, columns, inner = operands
    if rows == 1:  # as one column, of which a tile has more entries
        down, right, rows, columns = right, down, columns, rows
        a, a_row, a_inner, b, b_inner, b_column = b, b_column, b_inner, a, a_inner, a_row
    _tiled((c, down, right, a, a_row, a_inner, b, b_inner, b_column, rows, columns, inner), onto)


@njit(inline="always")
def _tiled(operands: Any, onto: bool) -> None:
    c, down, right, a, a_row, a_inner, b, b_inner, b_column, rows, columns, inner = operands
    j = 0
    while j < columns:
        wide, i = _part(columns - j, COLUMNS), 0
        while i < rows:
            high = _part(rows - i, ROWS_OF_ONE if wide == 1 else ROWS)
            C = _at(c, i * down + j * right), down, right
            A = _at(a, i * a_row), a_row, a_inner
            B = _at(b, j * b_column), b_inner, b_column
            _tile((*C, *A, *B), onto, high, wide, inner)
            i += high
        j += wide


@njit(inline="always")
def _at(address: int, index: int) -> int:
    """Return the address of entry `index` of the array at an address."""
    return address + 8 * LANES * index


@njit(inline="always")
def _part(rest: int, most: int) -> int:
    """Return the size of the next part of `rest`, at most `most`; the last two are about equal."""
    if rest >= 2 * most:
        return most
    return rest if rest <= most else (rest + 1) >> 1


@intrinsic
def _tile(typingctx, places, onto, rows, columns, inner):  # type: ignore[no-untyped-def]
    """Write one tile of C = A B, or C + A B, with all chains of multiply-adds interleaved.

    `places` are address and strides of the tile's part of C, A and B.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        packed, onto, rows, columns, inner = args
        places = cgutils.unpack_tuple(builder, packed)
        end = builder.append_basic_block("written")
        choice = builder.switch(builder.add(builder.mul(columns, integer(64)), rows), end)
        for width in range(1, COLUMNS + 1):
            for height in range(1, (ROWS_OF_ONE if width == 1 else ROWS) + 1):
                block = builder.append_basic_block(f"tile_{height}_{width}")
                choice.add_case(integer(64 * width + height), block)
                builder.position_at_end(block)
                _write_tile(builder, places, onto, height, width, inner)
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(types.UniTuple(types.intp, 9), types.boolean, *[types.intp] * 3), codegen


def _write_tile(builder: Any, places: Any, onto: Any, rows: int, columns: int, inner: Any) -> None:
    """Build the code of a tile; LLVM keeps its sums in registers."""
    c, down, right, a, a_row, a_inner, b, b_inner, b_column = places
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    entries = list(itertools.product(range(rows), range(columns)))
    sums = {entry: cgutils.alloca_once(builder, VECTOR) for entry in entries}

    def place(address: Any, i: Any, by_i: Any, j: Any, by_j: Any) -> Any:
        index = builder.add(builder.mul(i, by_i), builder.mul(j, by_j))
        return builder.gep(builder.inttoptr(address, VECTOR.as_pointer()), [index])

    def read(*where: Any) -> Any:
        return builder.load(place(*where), align=8)

    for entry in entries:
        builder.store(zero, sums[entry])
    with builder.if_then(onto, likely=False):
        for i, j in entries:
            builder.store(read(c, integer(i), down, integer(j), right), sums[i, j])
    with cgutils.for_range(builder, inner) as loop:
        left = [read(a, integer(i), a_row, loop.index, a_inner) for i in range(rows)]
        above = [read(b, loop.index, b_inner, integer(j), b_column) for j in range(columns)]
        for i, j in entries:
            total = fma(builder, left[i], above[j], builder.load(sums[i, j]))
            builder.store(total, sums[i, j])
    for i, j in entries:
        where = place(c, integer(i), down, integer(j), right)
        builder.store(builder.load(sums[i, j]), where, align=8)


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
