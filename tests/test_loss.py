import itertools

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from attnsvm.head import Vocabulary
from attnsvm.loss import Exponential, LinearLoss, Log, Logistic, Squared
from tests.kkt import assert_near, normal

U = torch.linspace(-40, 40, 81, dtype=torch.float64)
ALL = [Logistic(), Exponential(), LinearLoss(), Squared(0.25), Log()]
LOSSES = pytest.mark.parametrize("loss", ALL)

EXACT = {
    Logistic: (lambda u, _: mp.log1p(mp.exp(-u)), lambda u, _: -1 / (1 + mp.exp(u))),
    Exponential: (lambda u, _: mp.exp(-u), lambda u, _: -mp.exp(-u)),
    LinearLoss: (lambda u, _: -u, lambda u, _: mpf(-1)),
    Squared: (lambda u, c: (u - mpf(c)) ** 2, lambda u, c: 2 * (u - mpf(c))),
    Log: (lambda u, _: -mp.log(u), lambda u, _: -1 / u),
}
"""l(u) and l'(u), with the target as second argument."""


def exact(loss, u, derivative=False):
    """Return l(u), or l'(u), in the digits that are set."""
    return EXACT[type(loss)][derivative](u, getattr(loss, "target", None))


MARGINS = [-5000.0, -720.0, -36.0, -0.5, 0.0, 0.5, 36.0, 50.0, 200.0, 341.0, 720.0, 5000.0]
MARGINS += [-501.0, -499.0, -301.0, 299.0, 299.5, 499.0, 501.0, 539.0, 541.0]
LENGTHS = [10.0**-k for k in (300, 280, 250, 100, 16, 9, 5, 0)]
LENGTHS += [30.0, 299.0, 301.0, 499.0, 501.0, 720.0, 3000.0]

DIGITS = 700
"""Enough for chords of these lengths."""


@LOSSES
def test_slopes_neither_underflow_nor_overflow(loss):
    """-l'(u) against 30 digits, for margins of which e^u is no float64 either."""
    u = torch.tensor([-1e5, -2000.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, 2000.0, 1e5], dtype=torch.float64)
    u, most = (V[V > 0] if loss.POSITIVE else V for V in (u, U))
    factor, exponent = loss.slope(u)
    with mp.workdps(30):
        for a, c, at in zip(factor.tolist(), exponent.tolist(), u.tolist(), strict=True):
            allowed = 1e-15 * (1 + loss.POSITIVE * abs(c))  # that of the exponent, a logarithm
            assert abs(mpf(a) * mp.exp(mpf(c)) / -exact(loss, mpf(at), True) - 1) < allowed
        for value, at in zip(loss.value(u).tolist(), u.tolist(), strict=True):
            assert value == pytest.approx(float(exact(loss, mpf(at))), rel=1e-15)
        for slope, at in zip(loss.derivative(most).tolist(), most.tolist(), strict=True):
            assert slope == pytest.approx(float(exact(loss, mpf(at), True)), rel=1e-14)


@LOSSES
def test_secants_neither_cancel_nor_underflow_nor_overflow(loss):
    """log of (l(u - delta) - l(u)) / delta against 700 digits, far from each other and from 0."""
    grid = np.array(list(itertools.product(MARGINS, [*LENGTHS, *(-x for x in LENGTHS)])))
    if loss.POSITIVE:
        grid = grid[(grid[:, 0] > 0) & (grid[:, 0] > grid[:, 1])]
    u, delta = torch.from_numpy(grid).unbind(1)
    factor, exponent = loss.excess_slope(u, delta)
    rows = zip(factor.tolist(), exponent.tolist(), u.tolist(), delta.tolist(), strict=True)
    with mp.workdps(DIGITS):
        known = {at: exact(loss, mpf(at)) for at in u.tolist()}
        for a, c, at, by in rows:
            expected = (exact(loss, mpf(at) - mpf(by)) - known[at]) / mpf(by)
            allowed = 1e-15 * (4 + abs(at) + abs(by))  # that of the exponent
            if loss.DECREASING:
                assert abs(mpf(a) * mp.exp(mpf(c)) / expected - 1) < allowed, (at, by)
            else:
                assert abs(a - expected) < allowed
                assert c == 0


@pytest.mark.parametrize("size", [1.0, 60.0])
def test_the_vocabulary_gives_the_cross_entropy_also_where_its_probability_is_one(size):
    head, o, y = Vocabulary(), normal(2, 3, 4, 5), torch.tensor([[0, 2, 5], [5, 1, 1]])
    C = normal(6, 5, seed=1)
    o[0, 0, 0] = C[0] * size  # p_y = 1 - 1e-17 or less
    parameters, tracked = head.of_labels(C, y), o.clone().requires_grad_()
    scores, labels = tracked @ C.mT, y[..., None, None].expand(2, 3, 4, 1)
    rise = (scores - scores.gather(-1, labels)).scatter(-1, labels, -torch.inf)
    entropy = rise.exp().sum(-1).log1p()
    (slope,) = torch.autograd.grad(-entropy.sum(), tracked)
    assert_near(head.value(o, parameters), -entropy, rtol=1e-12)
    assert_near(head.gradient(o, parameters), slope, rtol=1e-10)
    assert (slope != 0).all()
