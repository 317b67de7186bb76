"""Functions of lanes against the C library, and products of small matrices of lanes.

The loops of training prove all else of them.
"""

import math

import numpy as np
import pytest
from numba import njit

from attnsvm.linalg.simd.arithmetic import LANES, exp, expm1, log1p, logarithm
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.matmul import inner, matmul, matmul_inline

EDGES = [0.0, 1e-300, 1e-17, 1e-8, 0.25, 0.499999, 0.5, 0.500001, 1.0, 36.0, 700.0]


@njit
def apply(A):
    for j in range(len(A)):
        x = A[j, 0]
        A[j, 1], A[j, 2], A[j, 3], A[j, 4] = exp(x), expm1(x), log1p(x), logarithm(x)


def computed(values):
    """Return exp, expm1, log1p and logarithm of each value, (count, 4)."""
    lanes = LaneArray(np.zeros((len(values), 5, LANES)))
    lanes[:, 0] = np.array(values, float)[:, None]
    apply(lanes)
    first = lanes.array[..., :1]
    np.testing.assert_array_equal(lanes.array, np.broadcast_to(first, lanes.array.shape))
    return first[:, 1:, 0]


def test_functions_are_those_of_the_c_library():
    """And their limits; the logarithm to two ulp also of subnormal numbers and next to 1."""
    values = [*EDGES, *(-x for x in EDGES), *np.linspace(-3, 3, 200), -0.999999]
    values += [*np.linspace(-707.9, 707.9, 300)]
    for x, (e, em1, l1p, _) in zip(values, computed(values), strict=True):
        assert e == pytest.approx(math.exp(x), rel=1e-15)
        assert em1 == pytest.approx(math.expm1(x), rel=2e-15)
        if x > -1:
            assert l1p == pytest.approx(math.log1p(x), rel=1e-15)
    near_one = 1 + 2.0 ** -np.arange(1, 53)
    around = [*near_one, *(2 - near_one), *np.nextafter(0.5**0.5, [0, 1]), 1e-310]
    around += [*2.0 ** np.arange(-1074, 1024, 7), *3.7 ** np.arange(-500, 500, 3)]
    for x, l in zip(around, computed(around)[:, 3], strict=True):
        assert abs(l - math.log(x)) <= 2 * math.ulp(math.log(x))
    ends = computed([-1e300, -745.0, -math.inf, -1.0, 0.0, math.inf, math.nan])
    assert ends[:, 0].tolist() == [0.0, 0.0, 0.0, pytest.approx(math.exp(-1)), 1.0, *ends[5:, 0]]
    assert ends[2:5, 1].tolist() == [-1.0, pytest.approx(math.expm1(-1)), 0.0]
    assert ends[3:5, 2].tolist() == [-math.inf, 0.0]
    np.testing.assert_array_equal(ends[2:, 3], [math.nan, math.nan, -math.inf, math.inf, math.nan])


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
