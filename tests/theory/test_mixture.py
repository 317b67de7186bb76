"""The mixture that scores best, against closed forms, a search and Gen-SVM."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch

from attnsvm import solve_gen_svm
from attnsvm.head import Quadratic
from attnsvm.theory import finite_part_distance, optimal_mixture
from tests.kkt import assert_near
from tests.quick import quick
from tests.svm.instances import batch_of


@pytest.mark.parametrize("lam", quick(1e-3, 0.3, 30.0, 1e-6, 1e-9, 1e-14, 1e-300, count=3))
def test_it_meets_the_optimality_conditions_wherever_it_is_known(lam):
    """x_t^T (v - 2 lam o) is the same at attended tokens, and less at the others, in fractions.

    Also for a lambda at which v / (2 lambda) is far away, or overflows.
    """
    batch = batch_of(1, 4, 3, 12, head=Quadratic(lam))
    batch = dataclasses.replace(batch, Y=torch.ones_like(batch.Y))
    mixture = optimal_mixture(batch)[:, 0]
    known = ~mixture.isnan().any(1)
    assert known.sum() >= 10
    assert (mixture[known].sum(1) - 1).abs().max() < 1e-12
    for X, v, s in zip(batch.X[known, 0], batch.head_parameters["v"][known], mixture[known]):  # noqa: B905
        X, v, s = (np.vectorize(Fraction, otypes=[object])(V.numpy()) for V in (X, v, s))
        g = (X @ (v - 2 * Fraction(lam) * (s @ X))).astype(float)
        on = s > 0
        assert np.ptp(g[on]) < 1e-13 * (1 + 2 * lam)
        assert g[~on].max(initial=-np.inf) < g[on].min()


def test_linear_and_convex_heads_have_one_token():
    batch = batch_of(3, 4, 6, 4)
    s = optimal_mixture(batch)
    assert (s.argmax(-1) == batch.scores().argmax(-1)).all()
    assert (s.amax(-1) == 1).all()
    relu = batch_of(1, 4, 6, 20, head="relu")
    s, positive = optimal_mixture(relu), (relu.Y > 0)[:, 0]
    assert 0 < positive.sum() < 20
    assert (s[positive].amax(-1) == 1).all()
    assert s[~positive].isnan().all()  # concave, with a flat maximum where relu is zero


def test_what_is_not_unique_or_not_known_is_nan():
    batch = batch_of(2, 4, 8, 3, data="orthonormal", head=Quadratic(0.5))
    X = batch.X.clone()
    best = optimal_mixture(batch)[0, 0].argmax()
    X[0, 0, (best + 1) % 4] = X[0, 0, best]  # a copy of an attended token
    twice = dataclasses.replace(batch, X=X)
    unknown = optimal_mixture(twice).isnan().flatten(1).any(1)
    assert unknown.tolist() == [True, False, False]
    assert optimal_mixture(batch_of(2, 3, 4, 2, head="mlp")).isnan().all()
    ties = batch_of(2, 3, 4, 2, data="planted", score_gap=0.0)
    assert optimal_mixture(ties).isnan().all()


def test_the_finite_part_is_that_of_gen_svm_whatever_else_w_has():
    """P W = W_fin for W = W_fin + C W_mm, since W_mm has equal logits at attended tokens."""
    batch = batch_of(3, 4, 8, 4, data="orthonormal", head=Quadratic(0.5))
    s = optimal_mixture(batch)
    fin, mm = solve_gen_svm(batch.X, batch.Z, s > 0, s.log())
    apart, unit = finite_part_distance(batch, s), torch.ones(4, dtype=torch.float64)
    assert apart(fin.W + 1e3 * mm.W).max() < 1e-9
    assert_near(apart(3 * fin.W), 2 * unit, rtol=1e-9)
    assert_near(apart(0 * fin.W), unit, rtol=1e-12)


def test_without_log_ratios_or_with_dependent_equations_there_is_no_finite_part():
    batch = batch_of(2, 3, 4, 5)
    batch.X[4], batch.Z[4] = batch.X[4, :1].clone(), batch.Z[4, :1].clone()  # equal samples
    s = torch.tensor([[0.6, 0.4, 0.0]] * 2, dtype=torch.float64).repeat(5, 1, 1)
    s[1] = optimal_mixture(batch)[1]  # one token of a linear head
    s[2] = torch.nan
    s[3] = torch.tensor([0.5 + 1e-15, 0.5 - 1e-15, 0.0])  # no log-ratio but rounding
    apart = finite_part_distance(batch, s)(torch.zeros(5, 4, 4, dtype=torch.float64))
    assert apart[0] == pytest.approx(1)
    assert apart[1:].isnan().all()
