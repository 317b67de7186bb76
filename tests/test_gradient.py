"""The gradient against 60-digit arithmetic on saturated instances, where float64 has no digits."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from mpmath import exp, matrix, mp, mpf, sqrt
from torch import Generator

from attnsvm.attention import Risk
from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.linalg import EPS as MACHINE_EPS
from attnsvm.training import train
from attnsvm.training.batch import parameterization_named
from attnsvm.training.ending import Ending

DIGITS = 60
SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 1, "seed": 8}
HEADS = ["linear", "relu", "quadratic"]


def exact_gradient(batch, variables, loss, ridge):
    """Return the gradient of risk + ridge as matrices of DIGITS digits.

    Exponents of mpmath have no bounds, so e^-80000 is a number like others, and
    dL/dlogit_t = s_t sum_u s_u (c_t - c_u) does not cancel.
    """
    X, Z, Y = batch.X[0].tolist(), batch.Z[0].tolist(), batch.Y[0].tolist()
    n, T, d = batch.n, batch.T, batch.d
    factors = [matrix(V[0].tolist()) for V in variables]
    W = factors[0] if len(factors) == 1 else factors[0] * factors[1].T
    G = matrix(d, d)
    for i in range(n):
        s = exact_softmax(W, X[i], Z[i])
        o = [sum(s[t] * mpf(X[i][t][j]) for t in range(T)) for j in range(d)]
        f, slope = exact_head(batch, o)
        r = [exact_slope(loss, Y[i] * f) * mpf(Y[i]) / n * slope[j] for j in range(d)]
        c = [sum(r[j] * mpf(X[i][t][j]) for j in range(d)) for t in range(T)]
        q = [s[t] * sum(s[u] * (c[t] - c[u]) for u in range(T)) for t in range(T)]
        for a in range(d):
            pulled = sum(q[t] * mpf(X[i][t][a]) for t in range(T))
            for b in range(d):
                G[a, b] += pulled * mpf(Z[i][b])
    parts = [G] if len(factors) == 1 else [G * factors[1], G.T * factors[0]]
    return [part + 2 * mpf(ridge) * V for part, V in zip(parts, factors, strict=True)]


def exact_softmax(W, x, z):
    u = W * matrix(z)
    logits = [sum(mpf(a) * b for a, b in zip(row, u, strict=True)) for row in x]
    e = [exp(logit - max(logits)) for logit in logits]
    return [value / sum(e) for value in e]


def exact_head(batch, o):
    """Return h(o) and its gradient."""
    parameters = {name: value[0].tolist() for name, value in batch.head_parameters.items()}
    name = type(batch.head).__name__
    if name == "Relu":
        V = parameters["V"]
        hidden = [sum(mpf(V[a][j]) * o[a] for a in range(len(o))) for j in range(len(o))]
        on = [j for j, value in enumerate(hidden) if value > 0]
        return sum(hidden[j] for j in on), [sum(mpf(row[j]) for j in on) for row in V]
    v = [mpf(value) for value in parameters["v"]]
    lam = mpf(batch.head.lam) if name == "Quadratic" else mpf(0)
    value = sum(a * b for a, b in zip(v, o, strict=True)) - lam * sum(a * a for a in o)
    return value, [a - 2 * lam * b for a, b in zip(v, o, strict=True)]


def exact_slope(loss, u):
    return {
        "logistic": -1 / (1 + exp(u)),
        "exponential": -exp(-u),
        "linear": mpf(-1),
        "squared": 2 * (u - 1),
    }[loss]


def relative_error(part, exact):
    """Return ||part/||part|| - exact/||exact|| ||, computed with DIGITS digits."""
    got = matrix(part.tolist())
    if not part.any():
        return 1.0
    a, b = (value / sqrt(sum(x * x for x in value)) for value in (got, exact))
    return float(sqrt(sum(x * x for x in a - b)))


def risk_of(head, parameterization, m, loss="logistic"):
    rule = parameterization_named(parameterization, m)
    return Risk(sample(head=head, **SHAPE), rule, named("loss", loss))


def weights(risk, size):
    """Return random variables with norms whose product is `size`."""
    draws = (
        torch.randn(1, *shape, generator=Generator().manual_seed(i), dtype=torch.float64)
        for i, shape in enumerate(risk.rule.shapes(risk.batch.d))
    )
    count = len(risk.rule.NAMES)
    return tuple(size ** (1 / count) * V / V.norm() for V in draws)


def errors(risk, variables, ridge, how):
    """Return the relative error of the normalised step in each variable."""
    G = risk.gradient(variables, risk.forward(variables), how, ridge)
    loss = type(risk.loss).__name__.removesuffix("Loss").lower()
    with mp.workdps(DIGITS):
        pairs = zip(G.parts, exact_gradient(risk.batch, variables, loss, ridge), strict=True)
        return [relative_error(part[0], wanted) for part, wanted in pairs]


SETTINGS = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), ("kq", 2)]
)


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", [1.0, 1e2, 1e5])
@pytest.mark.parametrize("ridge", [0.0, MACHINE_EPS])
def test_exact_step_at_any_norm(head, parameterization, m, size, ridge):
    """At 1e5 the attention of all but one token is e^-10000 or less."""
    risk = risk_of(head, parameterization, m)
    variables = weights(risk, size)
    assert max(errors(risk, variables, ridge, "log_domain")) <= 1e-10
    if size == 1e5 and not ridge:
        assert min(errors(risk, variables, ridge, "direct")) > 0.1


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear", "squared"])
@pytest.mark.parametrize("size", [1.0, 1e5])
@pytest.mark.parametrize("far", [(0, 0, 0), (2000, 2000, 2001), (-2000, -2001, -2000), (30, -5, 3)])
def test_exact_step_with_slopes_of_any_size(far, size, loss, parameterization, m):
    """Tokens + c_i v add c_i to the margins of sample i: e^2000 and e^-2000 are no float64."""
    risk = far_along_the_head(risk_of("linear", parameterization, m, loss), far)
    variables = weights(risk, size)
    u = risk.forward(variables).margins[0]
    assert ((u - torch.tensor(far)).abs() < 5).all()
    assert max(errors(risk, variables, 0.0, "log_domain")) <= 1e-10


def far_along_the_head(risk, far):
    """Return the risk with all labels 1 and the tokens of sample i moved by far_i along v."""
    batch = risk.batch
    offset = torch.tensor(far, dtype=torch.float64)[None, :, None, None]
    X = batch.X + offset * batch.head_parameters["v"][:, None, None]
    batch = dataclasses.replace(batch, X=X, Y=torch.ones_like(batch.Y))
    return Risk(batch, risk.rule, risk.loss)


@SETTINGS
def test_a_sample_that_does_not_pull_hides_no_other(parameterization, m):
    """The first sample attends to all its tokens at a flat place of the head, the others to one."""
    risk = flat_at_first(risk_of("relu", parameterization, m))
    variables = weights(risk, 1e6)
    forward = risk.forward(variables)
    assert forward.softmax[0, 0].max() < 0.9
    assert forward.log_softmax[0, 1:].sort(-1).values[:, -2].max() < -1000
    assert max(errors(risk, variables, 0.0, "log_domain")) <= 1e-10
    W = risk.rule.combine(variables)
    for compiled in (True, False):
        path = train(risk.batch, risk.rule, init=variables, steps=1, compiled=compiled)
        assert 0.01 < (path.W - W).norm() < 1e3


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_a_sample_without_a_query_hides_no_other(size, parameterization, m):
    """W has no say in its attention, whose gradient in the logits is not zero."""
    risk = risk_of("linear", parameterization, m)
    batch = risk.batch
    Z = batch.Z.clone()
    Z[:, 0] = 0
    risk = Risk(dataclasses.replace(batch, Z=Z), risk.rule, risk.loss)
    variables = weights(risk, size)
    assert max(errors(risk, variables, 0.0, "log_domain")) <= 1e-10
    for compiled in (True, False):
        path = train(risk.batch, risk.rule, init="uniform", steps=1000, compiled=compiled)
        assert not path.diverged.any()
        assert path.status() == ["unsaturated"]
        moved = path.snapshots[0, 1:] - path.snapshots[0, :-1]
        assert (moved.norm(dim=(1, 2)) > 1).all()


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", [1.0, 3e3, 1e5])
def test_exact_step_where_the_top_token_has_a_copy(size, head, parameterization, m):
    """Both get half the attention, and what pulls is that of the others, e^-1000 or less."""
    risk = risk_of(head, parameterization, m)
    variables = weights(risk, size)
    risk = with_copies(risk, risk.forward(variables).top)
    log_s = risk.forward(variables).log_softmax[0].sort(-1).values
    if size == 1e5:
        assert (log_s[:, -2] > -1).all()
        assert (log_s[:, -3] < -90).all()
        assert log_s[:, -3].min() < -700
    assert max(errors(risk, variables, 0.0, "log_domain")) <= 1e-10
    steps = {"init": variables, "steps": 1, "lr": 1.0}
    paths = [train(risk.batch, risk.rule, compiled=compiled, **steps) for compiled in (True, False)]
    for path in paths:
        moved = (path.W,) if m is None and parameterization == "w" else (path.K, path.Q)
        for V, V0 in zip(moved, variables, strict=True):
            assert abs((V - V0).norm() - 1) < 1e-9
    torch.testing.assert_close(paths[0].W, paths[1].W, rtol=0, atol=1e-12 * size)


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_the_error_of_the_direction_is_bounded_and_not_by_far(size, apart, parameterization, m):
    """Also where the second token is nearly the top one, and what the two pull nearly cancels."""
    risk = risk_of("linear", parameterization, m)
    batch, variables = risk.batch, weights(risk, size)
    copied = with_copies(risk, risk.forward(variables).top).batch
    X = copied.X + apart * (batch.X - copied.X)
    risk = Risk(dataclasses.replace(batch, X=X), risk.rule, risk.loss)
    W = risk.rule.combine(variables)
    stated = Ending(risk, variables, W, 0.0).direction_error("log_domain").item()
    error = max(errors(risk, variables, 0.0, "log_domain"))
    assert error <= stated + 1e-15
    assert stated <= 1e-15 * (10 + size) * 100 / apart


def with_copies(risk, tokens):
    """Return the risk where a neighbour of each of these tokens (B, n, 1) is a copy of it."""
    batch = risk.batch
    d, T = batch.d, batch.T
    copies = batch.X.gather(-2, tokens.unsqueeze(-1).expand(-1, -1, -1, d))
    X = batch.X.scatter(-2, ((tokens + 1) % T).unsqueeze(-1).expand(-1, -1, -1, d), copies)
    return Risk(dataclasses.replace(batch, X=X), risk.rule, risk.loss)


def flat_at_first(risk):
    """Return the risk where V^T x < 0 for all tokens of the first sample, whose query is tiny."""
    batch = risk.batch
    X, Z, V = batch.X.clone(), batch.Z.clone(), batch.head_parameters["V"]
    X[:, 0] = -torch.linalg.solve(V.mT, X[:, 0].mT.abs() + 0.1).mT
    Z[:, 0] *= 1e-8
    return Risk(dataclasses.replace(batch, X=X, Z=Z), risk.rule, risk.loss)
