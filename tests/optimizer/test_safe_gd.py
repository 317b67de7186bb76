"""Steps that provably lower the risk: the bound of the curvature, the guarantee, the direction."""

import pytest
import torch

from attnsvm import sample, train
from attnsvm.config.instantiate import named
from attnsvm.optimizer import Step
from tests.training.test_training import objective, ragged, risk_of


@pytest.mark.parametrize("size", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize(("rule", "m"), [("w", None), ("kq", None), ("kq", 1)])
@pytest.mark.parametrize(
    ("loss", "ridge"), [("logistic", 0.0), ("exponential", 1e-2), ("linear", 0.0)]
)
def test_the_curvature_along_a_step_is_below_the_bound(rule, m, loss, ridge, size):
    """eta max_t |phi''(t)| <= lr phi'(0)^2 / |phi'(0)| for phi(t) = L(V - t grad), by autograd.

    With lr = 1, from small to saturated weights; the samples pull apart.
    """
    risk = risk_of(ragged(sample(n=15, T=4, d=2, trials=12)), rule, m, loss)
    start = risk.rule.init("uniform", 1.0, risk.batch.seeds, risk.batch.d)
    variables = tuple(size * V for V in start)
    forward = risk.forward(variables)
    gradient = risk.gradient(variables, forward, ridge=ridge)
    copies = tuple(V.clone() for V in variables)
    moved = named("optimizer", "safe_gd", lr=1.0, ridge=ridge).update(
        Step(risk, copies, forward, gradient, 1.0, {})
    )

    def along(t):
        pairs = zip(variables, moved, strict=True)
        return objective(risk, ridge, *(V + t[:, None, None] * (new - V) for V, new in pairs))

    begin = torch.zeros(risk.batch.B, dtype=torch.float64, requires_grad=True)
    (fall,) = torch.autograd.grad(along(begin).sum(), begin)
    assert (fall < 0).all()
    for share in torch.linspace(0, 1, 21, dtype=torch.float64):
        t = torch.full_like(begin, share).requires_grad_()
        (slope,) = torch.autograd.grad(along(t).sum(), t, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), t)
        assert (bend <= -fall * (1 + 1e-9)).all()


def test_nothing_to_attend_to_is_no_step():
    batch = sample(n=4, T=1, d=6, trials=12)
    path = train(batch, optimizer="safe_gd", steps=3)
    assert path.W.equal(path.snapshots[:, 0])
    shrunk = train(batch, optimizer="safe_gd", steps=3, ridge=0.1)
    assert (shrunk.W.norm(dim=(1, 2)) < 1e-6).all()  # one step of size 1 / (2 ridge) ends at 0
