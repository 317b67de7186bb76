"""The mixture that scores best, against closed forms, a search and Gen-SVM."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from sympy import Matrix, Rational, ones, zeros

from attnsvm import sample, solve_gen_svm
from attnsvm.head import Quadratic
from attnsvm.theory import finite_part_distance, optimal_mixture


def exactly_best(X, v, lam):
    """Return the best mixture of a quadratic head in fractions, and the least slack or attention.

    Of every set of tokens the one that meets the optimality conditions: x_t^T (v - 2 lam X^T s) is
    the same for all of them, and less for the others.
    """
    X, v, lam = Matrix(X).applyfunc(Rational), Matrix(v).applyfunc(Rational), Rational(lam)
    gram, linear, T = 2 * lam * X * X.T, X * v, X.rows
    for on in (on for size in range(T) for on in itertools.combinations(range(T), size + 1)):
        edge = ones(len(on), 1)
        A = Matrix([[gram.extract(on, on), edge], [edge.T, zeros(1)]])
        if A.det() == 0:
            continue
        *attention, level = A.LUsolve(linear.extract(on, [0]).col_join(ones(1, 1)))
        s = zeros(T, 1)
        for t, value in zip(on, attention, strict=True):
            s[t] = value
        slack = [gap for t, gap in enumerate(level * ones(T, 1) - linear + gram * s) if t not in on]
        if min(attention) > 0 and min(slack, default=1) >= 0:
            return list(s), min([*slack, *attention])
    raise AssertionError("no optimum")


TINY = [pytest.param(lam, marks=pytest.mark.full) for lam in (1e-300, 1e-14, 1e-9, 1e-6)]


@pytest.mark.parametrize("lam", [*TINY, 1e-3, 0.3, 30.0])
def test_it_is_exact_and_known_wherever_it_is_clear(lam):
    """Also for a lambda at which v / (2 lambda) is far away, or overflows."""
    batch = sample("sphere", head=Quadratic(lam), n=1, T=4, d=3, trials=12)
    batch = dataclasses.replace(batch, Y=torch.ones_like(batch.Y))
    mixture = optimal_mixture(batch)[:, 0]
    clear = 0
    for b in range(batch.B):
        X, v = batch.X[b, 0].tolist(), batch.head_parameters["v"][b].tolist()
        s, least = exactly_best(X, v, lam)
        if least > 1e-5 * (1 + 2 * lam):
            clear += 1
            np.testing.assert_allclose(mixture[b].numpy(), np.array(s, dtype=float), atol=1e-12)
    assert clear >= 10


def test_linear_and_convex_heads_have_one_token():
    batch = sample("sphere", n=3, T=4, d=6, trials=4)
    s = optimal_mixture(batch)
    assert (s.argmax(-1) == batch.scores().argmax(-1)).all()
    assert (s.amax(-1) == 1).all()
    relu = sample("sphere", head="relu", n=1, T=4, d=6, trials=20)
    s, positive = optimal_mixture(relu), (relu.Y > 0)[:, 0]
    assert 0 < positive.sum() < 20
    assert (s[positive].amax(-1) == 1).all()
    assert s[~positive].isnan().all()  # concave, with a flat maximum where relu is zero


def test_what_is_not_unique_or_not_known_is_nan():
    batch = sample("orthonormal", head=Quadratic(0.5), n=2, T=4, d=8, trials=3)
    X = batch.X.clone()
    best = optimal_mixture(batch)[0, 0].argmax()
    X[0, 0, (best + 1) % 4] = X[0, 0, best]  # a copy of an attended token
    twice = dataclasses.replace(batch, X=X)
    unknown = optimal_mixture(twice).isnan().flatten(1).any(1)
    assert unknown.tolist() == [True, False, False]
    assert optimal_mixture(sample("sphere", head="mlp", n=2, T=3, d=4, trials=2)).isnan().all()
    ties = sample("planted", score_gap=0.0, n=2, T=3, d=4, trials=2)
    assert optimal_mixture(ties).isnan().all()


def test_the_finite_part_is_that_of_gen_svm_whatever_else_w_has():
    """P W = W_fin for W = W_fin + C W_mm, since W_mm has equal logits at attended tokens."""
    batch = sample("orthonormal", head=Quadratic(0.5), n=3, T=4, d=8, trials=4)
    s = optimal_mixture(batch)
    fin, mm = solve_gen_svm(batch.X, batch.Z, s > 0, s.log())
    apart, unit = finite_part_distance(batch, s), torch.ones(4, dtype=torch.float64)
    assert apart(fin.W + 1e3 * mm.W).max() < 1e-9
    torch.testing.assert_close(apart(3 * fin.W), 2 * unit, rtol=1e-9, atol=0)
    torch.testing.assert_close(apart(0 * fin.W), unit, rtol=1e-12, atol=0)


def test_without_log_ratios_or_with_dependent_equations_there_is_no_finite_part():
    batch = sample("sphere", n=2, T=3, d=4, trials=5)
    X, Z = batch.X.clone(), batch.Z.clone()
    X[4], Z[4] = X[4, :1], Z[4, :1]  # both samples are the same
    batch = dataclasses.replace(batch, X=X, Z=Z)
    s = torch.tensor([[0.6, 0.4, 0.0]] * 2, dtype=torch.float64).repeat(5, 1, 1)
    s[1] = optimal_mixture(batch)[1]  # one token of a linear head
    s[2] = torch.nan
    s[3] = torch.tensor([0.5 + 1e-15, 0.5 - 1e-15, 0.0])  # no log-ratio but rounding
    mixture = finite_part_distance(batch, s)(torch.zeros(5, 4, 4, dtype=torch.float64))
    assert mixture[0] == pytest.approx(1)
    assert mixture[1:].isnan().all()
