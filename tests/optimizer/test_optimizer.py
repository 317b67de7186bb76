from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.nn.risk import Gradient
from attnsvm.optimizer import Step
from attnsvm.selection import select_tokens
from attnsvm.training import train
from tests.training.test_training import SMALL, draw, objective, risk_of


def step(optimizer, V, g, log_scale=0.0, memory=None):
    """Return the variable after one step of size lr along the gradient g exp(log_scale)."""
    gradient = Gradient((g,), (torch.full((len(V),), log_scale, dtype=torch.float64),), None)
    memory = {} if memory is None else memory
    risk = SimpleNamespace(
        rule=SimpleNamespace(shapes=lambda d: (V.shape[1:],)),
        batch=SimpleNamespace(d=V.shape[1], widths=(V.shape[1],) * 2),
    )
    return optimizer.update(Step(risk, (V.clone(),), None, gradient, optimizer.lr, memory))[0]


def optimizer(name, **fields):
    return named("optimizer", name, **fields)


def test_step_sizes_and_recorded_steps():
    sizes = {"linear": (0.2, 0.3, 0.4), "geometric": (0.2, 0.3, 0.45), "decay": (0.2, 2 / 15, 0.1)}
    for schedule, expected in sizes.items():
        rule = optimizer("gd", lr=0.2, steps=3, growth=0.5, schedule=schedule, decay=1.0)
        assert [rule.step_size(k) for k in range(3)] == pytest.approx(expected)
    grids = {"linear": [0, 100, 200, 250], "geometric": [0, 1, 2, 5, 10, 20, 50, 100, 200, 250]}
    for record, grid in grids.items():
        assert optimizer("gd", steps=250, record=record).grid() == grid
        assert optimizer("gd", steps=0, record=record).grid() == [0]


@pytest.mark.parametrize("p", [1.25, 1.75, 2.0, 3.0])
def test_a_mirror_step_moves_the_dual_and_normalised_by_its_size_in_the_dual_norm(p):
    """Of each instance by itself, whatever the scale of its gradient; p = 2 is gradient descent."""
    V, g = draw(3, 3, 3), draw(3, 3, 3, seed=1)
    g[1] *= 1e-200
    g[2] = 0

    def change(**fields):
        moved = step(optimizer("mirror_descent", p=p, lr=0.2, **fields), V, g)
        return moved.sign() * moved.abs() ** (p - 1) - V.sign() * V.abs() ** (p - 1)

    assert_close(change(normalized=False), -0.2 * g)
    size = torch.linalg.vector_norm(change().flatten(1), ord=p / (p - 1), dim=1)
    assert_close(size, torch.tensor([0.2, 0.2, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("adam", {"eps": 0.0}),
        ("steepest", {"norm": "frobenius", "beta": 0.5, "nesterov": True}),
    ],
)
@pytest.mark.parametrize("shape", [(4, 4), (6, 2)])
def test_steps_are_blind_to_the_size_of_the_gradient(name, fields, shape):
    moved = []
    for shift in (0.0, -5e4):
        rule, memory, V = optimizer(name, **fields), {}, draw(3, *shape)
        for k in range(20):
            V = step(rule, V, draw(3, *shape, seed=k), log_scale=shift - 0.3 * k, memory=memory)
        moved.append(V)
    assert_close(moved[0], moved[1], rtol=1e-11, atol=1e-11)


def test_polyak_step_is_excess_risk_over_squared_gradient():
    batch = sample(**SMALL)
    W, moved = train(batch, optimizer="polyak", steps=1, lr=1.0, record_every=1).snapshots.unbind(1)
    W, risk = W.clone().requires_grad_(), risk_of(batch)
    value = objective(risk, 0.0, W)
    (G,) = torch.autograd.grad(value.sum(), W)
    excess = value - risk.loss.value(batch.scores().amax(-1)).mean(-1)
    size = (excess / G.square().sum((1, 2)))[:, None, None]
    assert_close(moved, (W - size * G).detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["polyak", "regularization_path", "safe_gd"])
@pytest.mark.parametrize("head", ["relu", "linear"])
def test_a_head_or_loss_of_which_too_little_is_known_is_refused(name, head):
    batch = sample(head=head, **SMALL)
    with pytest.raises(ConfigError, match=f"optimizer={name}: (head|loss) must be"):
        train(batch, optimizer=name, loss="squared")
    batch.head.train = True
    for other, must in ((name, "head must be linear with"), ("muon", r"head\.train must be false")):
        with pytest.raises(ConfigError, match=f"optimizer={other}: {must}"):
            train(batch, optimizer=other)


@pytest.mark.full
@pytest.mark.processors
def test_polyak_reaches_the_optimal_tokens_or_diverges():
    """Where attention saturates at other tokens, (L - L*) / ||grad|| exceeds every number."""
    batch = sample(n=6, T=8, d=10, trials=30)
    path = train(batch, optimizer="polyak", steps=500, record_every=500)
    selection = select_tokens(batch, path)
    optimal = (selection.selected == selection.optimal).all(-1)
    assert 0 < path.diverged.sum() < 15
    assert optimal.equal(~path.diverged)


@pytest.mark.processors
def test_the_parameters_of_a_head_may_be_a_vector():
    """Its spectral norm is that of a matrix with one column: the Euclidean one."""
    v, g = draw(3, 5), draw(3, 5, seed=1)
    spectral, largest = (
        v - step(optimizer("steepest", norm=norm, lr=1.0), v, g) for norm in ("spectral", "l1")
    )
    assert_close(spectral, g / g.norm(dim=1, keepdim=True))
    assert ((largest != 0).sum(1) == 1).all()
