"""The mixture that scores best, against closed forms, a search and Gen-SVM."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from attnsvm import sample, solve_gen_svm
from attnsvm.head import Quadratic
from attnsvm.theory import finite_part_distance, optimal_mixture


def solved(A, b):
    """Return x with A x = b in fractions, by elimination; None if A is singular."""
    rows, count = [[*row, value] for row, value in zip(A, b, strict=True)], len(A)
    for k in range(count):
        at = next((i for i in range(k, count) if rows[i][k]), None)
        if at is None:
            return None
        rows[k], rows[at] = rows[at], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in set(range(count)) - {k}:
            rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def exactly_best(X, v, lam):
    """Return the best mixture of a quadratic head in fractions, and the least slack or attention.

    Of every set of tokens the one that meets the optimality conditions: x_t^T (v - 2 lam X^T s) is
    the same for all of them, and less for the others.
    """
    X, v, lam = ([[Fraction(x) for x in row] for row in X], [Fraction(x) for x in v], Fraction(lam))
    linear = [sum(a * b for a, b in zip(x, v, strict=True)) for x in X]
    gram = [[2 * lam * sum(a * b for a, b in zip(x, y, strict=True)) for y in X] for x in X]
    for size in range(1, len(X) + 1):
        for on in itertools.combinations(range(len(X)), size):
            A = [[*(gram[i][j] for j in on), 1] for i in on] + [[*(1 for _ in on), 0]]
            x = solved(A, [*(linear[i] for i in on), 1])
            if x is None or min(x[:-1]) <= 0:
                continue
            s = dict(zip(on, x, strict=False))
            g = [linear[t] - sum(gram[t][j] * s[j] for j in on) for t in range(len(X))]
            slack = [x[-1] - g[t] for t in range(len(X)) if t not in on]
            if min(slack, default=1) >= 0:
                return [s.get(t, 0) for t in range(len(X))], min([*slack, *x[:-1]])
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
    apart, ones = finite_part_distance(batch, s), torch.ones(4, dtype=torch.float64)
    assert apart(fin.W + 1e3 * mm.W).max() < 1e-9
    torch.testing.assert_close(apart(3 * fin.W), 2 * ones, rtol=1e-9, atol=0)
    torch.testing.assert_close(apart(0 * fin.W), ones, rtol=1e-12, atol=0)


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
