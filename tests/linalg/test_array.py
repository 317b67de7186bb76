"""Products of arrays of lanes in compiled code; the loops of training prove all else of them."""

import numpy as np
import pytest
from numba import njit

from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.matmul import inner, matmul, matmul_inline


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
