"""Functions of lanes against the C library."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numba import njit

from attnsvm.linalg.simd.arithmetic import LANES, exp, expm1, load, log1p, logarithm, store

EDGES = [0.0, 1e-300, 1e-17, 1e-8, 0.25, 0.499999, 0.5, 0.500001, 1.0, 36.0, 700.0]


@njit
def apply(address, count):
    for j in range(count):
        x = load(address, 5 * j)
        store(address, 5 * j + 1, exp(x))
        store(address, 5 * j + 2, expm1(x))
        store(address, 5 * j + 3, log1p(x))
        store(address, 5 * j + 4, logarithm(x))


def computed(values):
    """Return exp, expm1, log1p and logarithm of each value, (count, 4)."""
    lanes = torch.zeros(len(values), 5, LANES, dtype=torch.float64)
    lanes[:, 0] = torch.tensor(values, dtype=torch.float64)[:, None]
    apply(lanes.data_ptr(), len(values))
    assert (lanes == lanes[..., :1]).all() or lanes.isnan().any()  # every lane alike
    return lanes[:, 1:, 0].numpy()


def test_functions_are_those_of_the_c_library():
    values = [*EDGES, *(-x for x in EDGES), *np.linspace(-3, 3, 200), -0.999999]
    found = computed(values)
    for x, (e, em1, l1p, l) in zip(values, found, strict=True):
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
    found = computed(values)[:, 3]
    for x, l in zip(values, found, strict=True):
        assert abs(l - math.log(x)) <= 2 * math.ulp(math.log(x))
    ends = computed([math.inf, -1.0, -math.inf, math.nan])[:, 3]
    assert ends[0] == math.inf
    assert np.isnan(ends[1:]).all()


def test_ends_of_their_range():
    found = computed([-1.0, -math.inf, 0.0])
    assert found[0, 2] == -math.inf
    assert (found[1, 0], found[1, 1]) == (0.0, -1.0)
    assert (found[2, 0], found[2, 1], found[2, 2], found[2, 3]) == (1.0, 0.0, 0.0, -math.inf)
