"""The gradient against 60-digit arithmetic on saturated instances, where float64 has no digits."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from mpmath import exp, mp, mpf, sqrt

from attnsvm.data import sample
from attnsvm.linalg import EPS as MACHINE_EPS
from attnsvm.nn.risk import Risk
from attnsvm.training import train
from attnsvm.training.ending import Ending
from tests.kkt import assert_near, normal
from tests.quick import quick_rows
from tests.test_loss import exact
from tests.training.test_training import risk_of

DIGITS = 60
SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 1, "seed": 8}
HEADS = ["linear", "relu", "quadratic"]
exact_exp = np.vectorize(exp, otypes=[object])


def exact_array(tensor):
    """Return the first instance of a tensor as an array of exact numbers."""
    return np.vectorize(mpf, otypes=[object])(tensor[0].numpy())


def exact_gradient(batch, variables, loss, ridge):
    """Return the gradient of risk + ridge as arrays of DIGITS digits.

    Exponents of mpmath have no bounds, so e^-80000 is a number like others, and
    dL/dlogit_t = s_t sum_u s_u (c_t - c_u) does not cancel.
    """
    factors = [exact_array(V) for V in variables]
    W = factors[0] if len(factors) == 1 else factors[0] @ factors[1].T
    G = 0 * W
    for x, z, y in zip(*(exact_array(part) for part in (batch.X, batch.Z, batch.Y)), strict=True):
        s = exact_softmax(x @ W @ z)
        f, slope = exact_head(batch, s @ x)
        c = x @ slope * exact(loss, y * f, derivative=True) * y / batch.n
        q = s * ((c[:, None] - c) @ s)
        G += np.outer(q @ x, z)
    parts = [G] if len(factors) == 1 else [G @ factors[1], G.T @ factors[0]]
    return [part + 2 * mpf(ridge) * V for part, V in zip(parts, factors, strict=True)]


def exact_softmax(logits):
    e = exact_exp(logits - logits.max())
    return e / e.sum()


def exact_head(batch, o):
    """Return h(o) and its gradient."""
    name = type(batch.head).__name__
    parameters = {name: exact_array(p) for name, p in batch.head_parameters.items()}
    if name == "Relu":
        hidden = o @ parameters["V"]
        return np.maximum(hidden, 0).sum(), parameters["V"] @ (hidden > 0)
    lam = mpf(batch.head.lam) if name == "Quadratic" else mpf(0)
    return parameters["v"] @ o - lam * o @ o, parameters["v"] - 2 * lam * o


def relative_error(part, exact):
    """Return ||part/||part|| - exact/||exact|| ||, computed with DIGITS digits."""
    if not part.any():
        return 1.0
    units = (V / sqrt((V * V).sum()) for V in (exact_array(part[None]), exact))
    return float(sqrt((np.subtract(*units) ** 2).sum()))


def weights(risk, size):
    """Return random variables with norms whose product is `size`."""
    shapes = risk.rule.shapes(risk.batch.d)
    draws = (normal(1, *shape, seed=i) for i, shape in enumerate(shapes))
    return tuple(size ** (1 / len(shapes)) * V / V.norm() for V in draws)


def errors(risk, variables, ridge, how):
    """Return the relative error of the normalised step in each variable."""
    G = risk.gradient(variables, risk.forward(variables), how, ridge)
    with mp.workdps(DIGITS):
        pairs = zip(G.parts, exact_gradient(risk.batch, variables, risk.loss, ridge), strict=True)
        return [relative_error(part[0], wanted) for part, wanted in pairs]


SETTINGS = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), ("kq", 2)]
)


def changed(risk, **parts):
    return Risk(dataclasses.replace(risk.batch, **parts), risk.rule, risk.loss)


def stepped(risk, variables, compiled):
    """Return how far each variable moves in a normalised step of size 1."""
    path = train(risk.batch, risk.rule, init=variables, steps=1, lr=1.0, compiled=compiled)
    moved = (path.W,) if path.K is None else (path.K, path.Q)
    return [V - V0 for V, V0 in zip(moved, variables, strict=True)]


def with_copies(risk, variables):
    """Return the risk where a neighbour of the token of largest attention is a copy of it."""
    X, tokens = risk.batch.X, risk.forward(variables).top.unsqueeze(-1)
    copies = X.gather(-2, tokens.expand(-1, -1, -1, risk.batch.d))
    neighbours = ((tokens + 1) % risk.batch.T).expand_as(copies)
    return changed(risk, X=X.scatter(-2, neighbours, copies))


def at_margins(*far):
    """Tokens + c_i v add c_i to the margins of sample i: e^2000 and e^-2000 are no float64."""

    def change(risk, variables):
        v, offset = risk.batch.head_parameters["v"], torch.tensor(far, dtype=torch.float64)
        X = risk.batch.X + offset[None, :, None, None] * v[:, None, None]
        moved = changed(risk, X=X, Y=torch.ones_like(risk.batch.Y))
        assert ((moved.forward(variables).margins[0] - offset).abs() < 5).all()
        return moved

    return change


def flat(risk, variables):
    """The first sample attends to all its tokens at a flat place of the head, the others to one."""
    X, Z, V = risk.batch.X.clone(), risk.batch.Z.clone(), risk.batch.head_parameters["V"]
    X[:, 0] = -torch.linalg.solve(V.mT, X[:, 0].mT.abs() + 0.1).mT  # V^T x < 0
    Z[:, 0] *= 1e-8
    risk = changed(risk, X=X, Z=Z)
    forward = risk.forward(variables)
    assert forward.softmax[0, 0].max() < 0.9
    assert forward.log_softmax[0, 1:].sort(-1).values[:, -2].max() < -1000
    return risk


def without_a_query(risk, variables):
    """W has no say in the attention of a sample, whose gradient in the logits is not zero."""
    return changed(risk, Z=risk.batch.Z.clone().index_fill_(1, torch.tensor(0), 0.0))


LOSSES = ["logistic", "exponential", "linear", "squared"]
FAR = [(0, 0, 0), (2000, 2000, 2001), (-2000, -2001, -2000), (30, -5, 3)]
CASES = [
    (flat, "relu", "logistic", 1e6, 0.0),
    *((None, head, "logistic", size, 0.0) for head in HEADS for size in (1.0, 1e2, 1e5)),
    *((None, head, "logistic", size, MACHINE_EPS) for head in HEADS for size in (1.0, 1e2, 1e5)),
    *(
        (at_margins(*far), "linear", *of)
        for far in FAR
        for of in product(LOSSES, (1.0, 1e5), (0.0,))
    ),
    *((without_a_query, "linear", "logistic", size, 0.0) for size in (1.0, 1e6)),
    *((with_copies, head, "logistic", size, 0.0) for head in HEADS for size in (1.0, 3e3, 1e5)),
]


@SETTINGS
@pytest.mark.parametrize(("change", "head", "loss", "size", "ridge"), quick_rows(*CASES))
def test_the_step_is_exact(change, head, loss, size, ridge, parameterization, m):
    """At 1e5 the attention of all but one token is e^-10000 or less."""
    risk = risk_of(sample(head=head, **SHAPE), parameterization, m, loss)
    variables = weights(risk, size)
    risk = change(risk, variables) if change else risk
    assert max(errors(risk, variables, ridge, "log_domain")) <= 1e-10
    if change is None and size == 1e5 and not ridge:
        assert min(errors(risk, variables, ridge, "direct")) > 0.1
    if change in (flat, with_copies, without_a_query):
        pair = (stepped(risk, variables, compiled) for compiled in (True, False))
        for kernel, loop in zip(*pair, strict=True):
            assert abs(kernel.norm() - 1) < 1e-8
            assert_near(kernel, loop, atol=1e-12 * size)


@pytest.mark.full
@SETTINGS
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_the_error_of_the_direction_is_bounded_and_not_by_far(size, apart, parameterization, m):
    """Also where the second token is nearly the top one, and what the two pull nearly cancels."""
    risk = risk_of(sample(**SHAPE), parameterization, m)
    variables = weights(risk, size)
    copied = with_copies(risk, variables).batch.X
    risk = changed(risk, X=copied + apart * (risk.batch.X - copied))
    W = risk.rule.combine(variables)
    stated = Ending(risk, variables, W, 0.0).direction_error("log_domain").item()
    error = max(errors(risk, variables, 0.0, "log_domain"))
    assert error <= stated + 1e-15
    assert stated <= 1e-15 * (10 + size) * 100 / apart
