"""Steps that provably lower the risk: the bound of the curvature, the guarantee, the direction."""

import pytest
import torch

from attnsvm import sample, train
from attnsvm.config.instantiate import named
from attnsvm.optimizer import Step
from tests.training.test_training import objective, ragged, risk_of

SHAPE = {"n": 4, "T": 5, "d": 6, "trials": 12}
CROWDED = {"n": 15, "T": 4, "d": 2, "trials": 12}
RULES = pytest.mark.parametrize(("rule", "m"), [("w", None), ("kq", None), ("kq", 1)])
SIZES = (0.1, 1.0, 4.0, 12.0)


def states(rule, m, loss):
    """Yield the risk and random variables, from small to saturated; the samples pull apart."""
    risk = risk_of(ragged(sample(**CROWDED)), rule, m, loss)
    for size in SIZES:
        start = risk.rule.init("uniform", 1.0, risk.batch.seeds, risk.batch.d)
        yield risk, tuple(size * V for V in start)


def one_step(risk, variables, ridge, lr):
    """Return the variables after a step, and the gradient's parts with their common scale."""
    gradient = risk.gradient(variables, risk.forward(variables), ridge=ridge)
    copies = tuple(V.clone() for V in variables)
    rule = named("optimizer", "safe_gd", lr=lr, ridge=ridge)
    return rule.update(Step(risk, copies, risk.forward(variables), gradient, lr, {})), gradient


@RULES
@pytest.mark.parametrize(
    ("loss", "ridge"), [("logistic", 0.0), ("exponential", 1e-2), ("linear", 0.0)]
)
def test_the_curvature_along_a_step_is_below_the_bound(rule, m, loss, ridge):
    """eta max_t |phi''(t)| <= lr phi'(0)^2 / |phi'(0)| for phi(t) = L(V - t grad), by autograd."""
    for risk, variables in states(rule, m, loss):
        moved, _ = one_step(risk, variables, ridge, 1.0)
        shifts = tuple(new - V for new, V in zip(moved, variables, strict=True))

        def along(t, risk=risk, variables=variables, shifts=shifts):
            at = tuple(V + t[:, None, None] * d for V, d in zip(variables, shifts, strict=True))
            return objective(risk, ridge, *at)

        begin = torch.zeros(risk.batch.B, dtype=torch.float64, requires_grad=True)
        (fall,) = torch.autograd.grad(along(begin).sum(), begin)
        assert (fall < 0).all()
        for share in torch.linspace(0, 1, 21, dtype=torch.float64):
            t = torch.full_like(begin, share).requires_grad_()
            (slope,) = torch.autograd.grad(along(t).sum(), t, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), t)
            assert (bend <= -fall * (1 + 1e-9)).all()


def test_nothing_to_attend_to_is_no_step():
    batch = sample(**{**SHAPE, "T": 1})
    path = train(batch, optimizer="safe_gd", steps=3)
    assert path.W.equal(path.snapshots[:, 0])
    shrunk = train(batch, optimizer="safe_gd", steps=3, ridge=0.1)
    assert (shrunk.W.norm(dim=(1, 2)) < 1e-6).all()  # one step of size 1 / (2 ridge) ends at 0
