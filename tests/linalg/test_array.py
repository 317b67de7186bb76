"""Arrays of lanes in compiled code: entries, views and assignments are those of NumPy."""

import numpy as np
import pytest
from numba import njit

from attnsvm.linalg.simd.arithmetic import any_lane, fill, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.matmul import inner, matmul, matmul_inline

SHAPE = (3, 4, 5)


def drawn(*shape, seed=0):
    return LaneArray(np.random.default_rng(seed).standard_normal((*shape, 8)))


@njit
def views(A, out):
    out[0, 0] = A[1, :, 2][1:].T[0]  # of strides
    out[0, 1] = A.rows[::3].T[1, 2]
    out[0, 2] = A.flat[17] + len(A[2, 1:3]) + len(A.rows[::5])
    block = A[1, 1:3, 2:4]
    out[1, :2] = block.T[0]
    out[2] = 7.0
    out[2, 1:] = A[0, 0, 1:3]


@njit
def comparisons(A, out):
    x, y = A[0, 0, 0], A[0, 0, 1]
    out[0] = where(x > y, x, y)
    out[1] = where((x < 0) | ~(y >= 0), 1, fill(2.0))
    out[2] = where((x != x) & (y == y), 3, 0)
    return any_lane(x > 100.0), any_lane(x <= 100.0)


def test_views_and_assignments():
    A, out = drawn(*SHAPE), LaneArray(np.zeros((3, 3, 8)))
    views(A, out)
    a = A.array
    np.testing.assert_array_equal(out.array[0, 0], a[1, 1, 2])
    np.testing.assert_array_equal(out.array[0, 1], a.reshape(12, 5, 8)[::3][2, 1])
    np.testing.assert_array_equal(out.array[0, 2], a.reshape(60, 8)[17] + 2 + 3)
    np.testing.assert_array_equal(out.array[1, :2], a[1, 1:3, 2])
    assert (out.array[2, 0] == 7).all()
    np.testing.assert_array_equal(out.array[2, 1:], a[0, 0, 1:3])


def test_comparisons_choose_lane_by_lane():
    A, out = drawn(*SHAPE), LaneArray(np.zeros((3, 8)))
    x, y = A.array[0, 0, :2]
    x[3] = np.nan
    assert comparisons(A, out) == (False, True)
    np.testing.assert_array_equal(out.array[0], np.where(x > y, x, y))
    np.testing.assert_array_equal(out.array[1], np.where((x < 0) | (y < 0), 1, 2))
    assert out.array[2].tolist() == [0, 0, 0, 3, 0, 0, 0, 0]
    x[:], x[5] = 0, 101
    assert comparisons(A, out) == (True, True)


@njit
def products(C, A, B, out):
    matmul(C, A, B)
    matmul_inline(out, A, B)
    C[0, 0] += inner(A[0], B.T[0]) - out[0, 0]


@pytest.mark.parametrize("rows", [1, 3, 8, 11])
@pytest.mark.parametrize(("columns", "count"), [(1, 1), (2, 7), (3, 2), (5, 7)])
def test_products_of_integers_are_exact(rows, columns, count):
    draw = np.random.default_rng(rows + 100 * columns).integers
    A, B = (draw(-1000, 1000, (*shape, 8)) for shape in ((rows, count), (count, columns)))
    C, out = (LaneArray(np.full((rows, columns, 8), np.nan)) for _ in range(2))
    products(C, LaneArray(A.astype(float)), LaneArray(B.astype(float)), out)
    for product in (C, out):
        np.testing.assert_array_equal(product.array, np.einsum("ikl,kjl->ijl", A, B))
