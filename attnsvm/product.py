"""Products of small matrices whose entries are lanes, for the fused training loop.

A matrix is (address, by row, by column): where its first entry lies, and how many entries apart
two rows and two columns are. With the last two swapped it is the transpose.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.simd import at, fill, fma, load, store


@njit(inline="always")  # type: ignore[untyped-decorator]
def multiply(C: Any, A: Any, B: Any, sizes: Any) -> None:
    """Write C = A B, `sizes` = (rows, columns, inner).

    Every entry is one chain of multiply-adds in the order of `inner`, whatever the tile it is in:
    four rows and two columns keep eight chains going, and share what they load.
    """
    (c, down, right), (a, a_row, a_inner), (b, b_inner, b_column) = C, A, B
    rows, columns, inner = sizes
    whole = rows // 4 * 4
    for j in range(0, columns - 1, 2):
        pair = (at(b, j * b_column), b_inner, b_column)
        for i in range(0, whole, 4):
            tile = (at(c, i * down + j * right), down, right)
            _four_by_two(tile, (at(a, i * a_row), a_row, a_inner), pair, inner)
        for i in range(whole, rows):
            tile = (at(c, i * down + j * right), down, right)
            _one_by_two(tile, (at(a, i * a_row), a_row, a_inner), pair, inner)
    for j in range(columns // 2 * 2, columns):
        last = (at(b, j * b_column), b_inner, b_column)
        for i in range(0, whole, 4):
            tile = (at(c, i * down + j * right), down, right)
            _four_by_one(tile, (at(a, i * a_row), a_row, a_inner), last, inner)
        for i in range(whole, rows):
            tile = (at(c, i * down + j * right), down, right)
            _one_by_one(tile, (at(a, i * a_row), a_row, a_inner), last, inner)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _four_by_two(C: Any, A: Any, B: Any, inner: int) -> None:
    (c, down, right), (a, a_row, a_inner), (b, b_inner, b_column) = C, A, B
    c00 = c10 = c20 = c30 = c01 = c11 = c21 = c31 = fill(0.0)
    for _ in range(inner):
        left, other = load(b, 0), load(b, b_column)
        entry = load(a, 0)
        c00, c01 = fma(entry, left, c00), fma(entry, other, c01)
        entry = load(a, a_row)
        c10, c11 = fma(entry, left, c10), fma(entry, other, c11)
        entry = load(a, 2 * a_row)
        c20, c21 = fma(entry, left, c20), fma(entry, other, c21)
        entry = load(a, 3 * a_row)
        c30, c31 = fma(entry, left, c30), fma(entry, other, c31)
        a, b = at(a, a_inner), at(b, b_inner)
    store(c, 0, c00)
    store(c, right, c01)
    store(c, down, c10)
    store(c, down + right, c11)
    store(c, 2 * down, c20)
    store(c, 2 * down + right, c21)
    store(c, 3 * down, c30)
    store(c, 3 * down + right, c31)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _four_by_one(C: Any, A: Any, B: Any, inner: int) -> None:
    (c, down, _), (a, a_row, a_inner), (b, b_inner, _) = C, A, B
    c0 = c1 = c2 = c3 = fill(0.0)
    for _ in range(inner):
        entry = load(b, 0)
        c0, c1 = fma(load(a, 0), entry, c0), fma(load(a, a_row), entry, c1)
        c2, c3 = fma(load(a, 2 * a_row), entry, c2), fma(load(a, 3 * a_row), entry, c3)
        a, b = at(a, a_inner), at(b, b_inner)
    store(c, 0, c0)
    store(c, down, c1)
    store(c, 2 * down, c2)
    store(c, 3 * down, c3)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _one_by_two(C: Any, A: Any, B: Any, inner: int) -> None:
    (c, _, right), (a, _, a_inner), (b, b_inner, b_column) = C, A, B
    c0 = c1 = fill(0.0)
    for _ in range(inner):
        entry = load(a, 0)
        c0, c1 = fma(entry, load(b, 0), c0), fma(entry, load(b, b_column), c1)
        a, b = at(a, a_inner), at(b, b_inner)
    store(c, 0, c0)
    store(c, right, c1)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _one_by_one(C: Any, A: Any, B: Any, inner: int) -> None:
    (c, _, _), (a, _, a_inner), (b, b_inner, _) = C, A, B
    total = fill(0.0)
    for _ in range(inner):
        total = fma(load(a, 0), load(b, 0), total)
        a, b = at(a, a_inner), at(b, b_inner)
    store(c, 0, total)


@njit(inline="always")  # type: ignore[untyped-decorator]
def dot(A: int, B: int, count: int) -> Any:
    """Return the sum of the products of the first `count` entries at A and B, in four chains."""
    c0 = c1 = c2 = c3 = fill(0.0)
    whole = count // 4 * 4
    for j in range(0, whole, 4):
        c0, c1 = fma(load(A, j), load(B, j), c0), fma(load(A, j + 1), load(B, j + 1), c1)
        c2, c3 = fma(load(A, j + 2), load(B, j + 2), c2), fma(load(A, j + 3), load(B, j + 3), c3)
    for j in range(whole, count):
        c0 = fma(load(A, j), load(B, j), c0)
    return (c0 + c1) + (c2 + c3)
