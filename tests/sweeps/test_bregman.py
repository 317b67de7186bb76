"""The Bregman divergence: closed forms, its definition in 50 digits, invariances."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsvm.linalg.directions import one_minus_correlation
from attnsvm.sweeps.bregman import bregman_divergence, directional_bregman_divergence

EXPONENTS = (1.1, 1.75, 2.0, 3.0, 7.5)


def matrices(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape), rng.standard_normal(shape)


@pytest.mark.parametrize("p", EXPONENTS)
def test_it_is_the_definition_in_50_digits(p: float):
    W, V = matrices(0, 4, 4)
    with mpmath.workdps(50):
        exponent, total = mpmath.mpf(p), mpmath.mpf(0)
        for w, v in zip(map(mpmath.mpf, W.ravel()), map(mpmath.mpf, V.ravel()), strict=True):
            slope = mpmath.sign(v) * abs(v) ** (exponent - 1)
            total += (abs(w) ** exponent - abs(v) ** exponent) / exponent - slope * (w - v)
    assert float(total) == pytest.approx(bregman_divergence(W, V, p), rel=1e-13)


def test_with_p_2_it_is_half_the_squared_distance_and_one_minus_correlation():
    W, V = matrices(1, 5, 3, 3)
    half = 0.5 * ((W - V) ** 2).sum((-2, -1))
    np.testing.assert_allclose(bregman_divergence(W, V, 2.0), half, rtol=1e-13)
    assert bregman_divergence(W, V, 3.0) != pytest.approx(bregman_divergence(V, W, 3.0), rel=1e-3)
    apart = one_minus_correlation(W, V)
    np.testing.assert_allclose(directional_bregman_divergence(W, V, 2.0), apart, rtol=1e-13)


@given(st.sampled_from(EXPONENTS), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_of_directions_it_is_one_minus_an_inner_product_and_free_of_scale(
    p: float, seed: int, scale: float
):
    W, V = matrices(seed, 3, 3)
    w, v = (M / (np.abs(M) ** p).sum() ** (1 / p) for M in (W, V))
    value = directional_bregman_divergence(W, V, p)
    inner = (np.sign(v) * np.abs(v) ** (p - 1) * w).sum()
    assert value == pytest.approx(1 - inner, rel=1e-9, abs=1e-13)
    assert 0 < value <= 2
    assert directional_bregman_divergence(scale * W, V / scale, p) == pytest.approx(value, rel=1e-9)
    assert directional_bregman_divergence(scale * V, V, p) < 1e-14
    assert directional_bregman_divergence(-V, V, p) == pytest.approx(2.0)


@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_a_matrix_without_a_direction_has_none_and_the_others_keep_theirs(entry: float):
    W, V = matrices(4, 3, 2, 2)
    known = directional_bregman_divergence(W, V, 3.0)
    W[0], W[1, 0, 0] = 0.0, entry
    found = directional_bregman_divergence(W, V, 3.0)
    assert np.isnan(found[:2]).all()
    assert found[2] == known[2]
    far = directional_bregman_divergence(1e200 * V, 1e-200 * V[::-1], 3.0)  # no overflow
    np.testing.assert_allclose(far, directional_bregman_divergence(V, V[::-1], 3.0))


@pytest.mark.parametrize("p", [1.0, 0.5, np.inf, np.nan])
def test_an_exponent_without_a_strictly_convex_potential_is_refused(p: float):
    with pytest.raises(ValueError, match="must be a finite number > 1"):
        bregman_divergence(np.eye(2), np.eye(2), p)
