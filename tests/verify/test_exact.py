"""Exact numbers become the nearest float64, also where the format has fewer bits."""

import math
from fractions import Fraction

import numpy as np
import pytest

from attnsvm.verify.exact import Exact, RejectedError, sum_of_squares

rng = np.random.default_rng(0)


def integers(values: list[int]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def long_integers(bits: int, count: int = 50) -> list[int]:
    return [(-1) ** k * int(rng.integers(1 << 62)) * 3**k << (bits // 2) for k in range(count)]


@pytest.mark.parametrize("exponent", [-53, 0, -1074, -1100, -1130, 60])
def test_floats_are_the_nearest(exponent: int):
    # ties of 54 bits, which are rounded to even, among them
    values = [0, 1, -1, *long_integers(8), (1 << 53) + 1, (1 << 53) + 3, (1 << 54) + 2, 3]
    exact = Exact(integers(values), exponent)
    must = [float(Fraction(value) * Fraction(2) ** exponent) for value in values]
    assert exact.floats().tolist() == must


def test_subnormal_numbers_are_rounded_once():
    # 2^53 + 1 is first rounded to 2^53: half of the smallest number would then become zero
    value = (1 << 53) + 1
    exponent = -1075 - 53
    assert Exact(integers([value]), exponent).floats().tolist() == [2.0**-1074]
    assert math.ldexp(float(value), exponent) == 0.0
    # the border of the normal numbers: below it there is a bit less
    value, exponent = (((1 << 53) - 1) << 10) - 1, -1085
    must = float(Fraction(value) * Fraction(2) ** exponent)
    assert Exact(integers([value]), exponent).floats().tolist() == [must]
    assert math.ldexp(float(value), exponent) != must


def test_integers_beyond_the_largest_float_are_exact_numbers_too():
    values = [(1 << 2000) + 1, 7, 0]
    assert Exact(integers(values), -2000).floats().tolist() == [1.0, 0.0, 0.0]


def test_a_number_that_no_float64_holds_is_refused():
    for value, exponent in ((1 << 1030, 1020), (1 << 5, 1020), (1 << 2000, 0)):
        with pytest.raises(RejectedError, match="too large"):
            Exact(integers([value]), exponent).floats()


def test_every_float_is_exact():
    x = np.concatenate([rng.normal(size=20) * 2.0 ** rng.integers(-60, 60, 20), [0.0, 5e-324]])
    assert (Exact.of(x).floats() == x).all()
    assert Exact.of(x).squared_norm == sum(Fraction(v) ** 2 for v in x.tolist())
    assert sum_of_squares(integers([])) == 0
