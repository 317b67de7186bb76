"""The gradient against 60-digit arithmetic on saturated instances, where float64 has no digits."""

from __future__ import annotations

import pytest
import torch
from mpmath import exp, matrix, mp, mpf, sqrt
from torch import Generator

from attnsvm.build import named
from attnsvm.data import sample
from attnsvm.risk import Risk
from attnsvm.training import parameterization_named

DIGITS = 60
SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 1, "seed": 8}


def exact_gradient(batch, variables, loss, ridge):
    """Return the gradient of risk + ridge as matrices of DIGITS digits (straightforwardly)."""
    X, Z, Y = batch.X[0].tolist(), batch.Z[0].tolist(), batch.Y[0].tolist()
    n, T, d = batch.n, batch.T, batch.d
    factors = [matrix(V[0].tolist()) for V in variables]
    W = factors[0] if len(factors) == 1 else factors[0] * factors[1].T
    G = matrix(d, d)
    for i in range(n):
        u = W * matrix(Z[i])
        logits = [sum(mpf(X[i][t][j]) * u[j] for j in range(d)) for t in range(T)]
        e = [exp(logit - max(logits)) for logit in logits]
        s = [value / sum(e) for value in e]
        o = [sum(s[t] * mpf(X[i][t][j]) for t in range(T)) for j in range(d)]
        f, slope = exact_head(batch, o)
        r = [exact_slope(loss, Y[i] * f) * mpf(Y[i]) / n * slope[j] for j in range(d)]
        c = [sum(r[j] * mpf(X[i][t][j]) for j in range(d)) for t in range(T)]
        mean = sum(s[t] * c[t] for t in range(T))
        q = [s[t] * (c[t] - mean) for t in range(T)]
        for a in range(d):
            pulled = sum(q[t] * mpf(X[i][t][a]) for t in range(T))
            for b in range(d):
                G[a, b] += pulled * mpf(Z[i][b])
    parts = [G] if len(factors) == 1 else [G * factors[1], G.T * factors[0]]
    return [part + 2 * mpf(ridge) * V for part, V in zip(parts, factors, strict=True)]


def exact_head(batch, o):
    name = type(batch.head).__name__
    if name == "Relu":
        V = batch.head_parameters["V"][0].tolist()
        hidden = [sum(mpf(V[a][j]) * o[a] for a in range(len(o))) for j in range(len(o))]
        on = [j for j, value in enumerate(hidden) if value > 0]
        return sum(hidden[j] for j in on), [sum(mpf(row[j]) for j in on) for row in V]
    v = [mpf(value) for value in batch.head_parameters["v"][0].tolist()]
    lam = mpf(batch.head.lam) if name == "Quadratic" else mpf(0)
    value = sum(a * b for a, b in zip(v, o, strict=True)) - lam * sum(a * a for a in o)
    return value, [a - 2 * lam * b for a, b in zip(v, o, strict=True)]


def exact_slope(loss, u):
    return {"logistic": -1 / (1 + exp(u)), "exponential": -exp(-u), "linear": mpf(-1)}[loss]


def relative_error(part, exact):
    """Return ||part/||part|| - exact/||exact|| ||, computed with DIGITS digits."""
    got = matrix(part.tolist())
    if not part.any():
        return 1.0
    a, b = (value / sqrt(sum(x * x for x in value)) for value in (got, exact))
    return float(sqrt(sum(x * x for x in a - b)))


def errors(head, parameterization, m, loss, size, ridge, how, shape=SHAPE, digits=DIGITS):
    batch = sample(head=head, **shape)
    risk = Risk(batch, parameterization_named(parameterization, m), named("loss", loss))
    draws = (
        torch.randn(1, *shape, generator=Generator().manual_seed(i), dtype=torch.float64)
        for i, shape in enumerate(risk.rule.shapes(batch.d))
    )
    count = len(risk.rule.NAMES)
    variables = tuple(size ** (1 / count) * V / V.norm() for V in draws)
    G = risk.gradient(variables, risk.forward(variables), how, ridge)
    with mp.workdps(digits):
        exact = exact_gradient(batch, variables, loss, ridge)
        pairs = zip(G.parts, exact, strict=True)
        return [relative_error(part[0], wanted) for part, wanted in pairs]


SETTINGS = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), ("kq", 2)]
)


@SETTINGS
@pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
@pytest.mark.parametrize("size", [1.0, 1e2, 3e2])
@pytest.mark.parametrize("ridge", [0.0, 1e-30])
def test_exact_step_at_any_norm(head, parameterization, m, size, ridge):
    assert max(errors(head, parameterization, m, "logistic", size, ridge, "log_domain")) <= 1e-10


@SETTINGS
@pytest.mark.parametrize("loss", ["exponential", "linear"])
def test_exact_step_with_other_losses(loss, parameterization, m):
    assert max(errors("relu", parameterization, m, loss, 3e2, 0.0, "log_domain")) <= 1e-10


@pytest.mark.parametrize("head", ["linear", "relu"])
def test_exact_step_at_the_largest_norm(head):
    """The straightforward sum needs as many digits as s is small, e^-80000."""
    shape = {**SHAPE, "n": 2, "T": 3, "d": 3}
    error = errors(head, "w", None, "logistic", 1e5, 0.0, "log_domain", shape, digits=40_000)
    assert max(error) <= 1e-10


@pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
def test_direct_step_has_no_digit_left(head):
    assert max(errors(head, "w", None, "logistic", 1e3, 0.0, "direct")) > 0.1
