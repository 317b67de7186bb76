"""Functions of lanes against the C library."""

import math

import numpy as np
import pytest
from numba import njit

from attnsvm.linalg.simd.arithmetic import LANES, exp, expm1, log1p, logarithm
from attnsvm.linalg.simd.array import LaneArray

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
    values = [*EDGES, *(-x for x in EDGES), *np.linspace(-3, 3, 200), -0.999999]
    values += [*np.linspace(-707.9, 707.9, 300)]
    for x, (e, em1, l1p, l) in zip(values, computed(values), strict=True):
        assert e == pytest.approx(math.exp(x), rel=1e-15)
        assert em1 == pytest.approx(math.expm1(x), rel=2e-15)
        if x > -1:
            assert l1p == pytest.approx(math.log1p(x), rel=1e-15)
        if x > 0:
            assert l == pytest.approx(math.log(x), rel=1e-15)


def test_logarithm_at_all_sizes():
    """Two ulp at most, also of subnormal numbers and next to 1, where log x is small."""
    near_one = 1 + 2.0 ** -np.arange(1, 53)
    around = [*near_one, *(2 - near_one), *np.nextafter(0.5**0.5, [0, 1])]
    values = [*around, *2.0 ** np.arange(-1074, 1024, 7), *3.7 ** np.arange(-500, 500, 3), 1e-310]
    for x, l in zip(values, computed(values)[:, 3], strict=True):
        assert abs(l - math.log(x)) <= 2 * math.ulp(math.log(x))
    ends = computed([math.inf, -1.0, -math.inf, math.nan])[:, 3]
    assert ends[0] == math.inf
    assert np.isnan(ends[1:]).all()


def test_ends_of_their_range():
    assert computed([-1e300, -709.0, -745.0])[:, 0].tolist() == [0.0] * 3
    ends = computed([-1.0, -math.inf, 0.0])
    assert ends[0, 2] == -math.inf
    assert ends[1, :2].tolist() == [0.0, -1.0]
    assert ends[2].tolist() == [1.0, 0.0, 0.0, -math.inf]
