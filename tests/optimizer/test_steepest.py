"""Steepest descent in every norm: one step against the formula, momentum, and Muon's steps."""

from __future__ import annotations

import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.norm import norm_of
from tests.optimizer.test_optimizer import optimizer, step
from tests.training.test_training import draw

pytestmark = pytest.mark.processors

NORMS = ["frobenius", "max", "l1", "spectral", "nuclear", "l1.75", "l3", "schatten1.5", "schatten4"]


def moved(rule, V, G, log_scale=0.0, memory=None):
    """Return how far V moves in one step of size lr along -G exp(log_scale)."""
    return V - step(rule, V, G, log_scale, memory)


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_has_the_size_lr_and_no_other_one_descends_more(norm):
    """norm(S) = 1 and <G, S> = dual_norm(G)."""
    V, G = draw(5, 4, 3), draw(5, 4, 3, seed=1)
    S = moved(optimizer("steepest", norm=norm, lr=0.25), V, G, log_scale=-1e5)
    size = norm_of(norm)
    torch.testing.assert_close(size.value(S), torch.full((5,), 0.25, dtype=torch.float64))
    torch.testing.assert_close((G * S).sum((1, 2)), 0.25 * size.dual.value(G))


def test_spectral_steps_are_those_of_the_polar_factor_on_its_range():
    G = draw(5, 4, 2) @ draw(5, 2, 4, seed=1)
    U, _, Vh = torch.linalg.svd(G)
    S = moved(optimizer("steepest", lr=1.0), torch.zeros_like(G), G)
    torch.testing.assert_close(S, U[..., :2] @ Vh[:, :2])


def test_the_parameters_of_a_head_may_be_a_vector():
    """Its spectral norm is that of a matrix with one column: the Euclidean one."""
    v, g = draw(3, 5), draw(3, 5, seed=1)
    spectral, largest = (
        moved(optimizer("steepest", norm=norm, lr=1.0), v, g) for norm in ("spectral", "l1")
    )
    torch.testing.assert_close(spectral, g / g.norm(dim=1, keepdim=True))
    assert ((largest != 0).sum(1) == 1).all()


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("shift", [0.0, -5e4])
def test_momentum_is_the_weighted_sum_of_all_gradients_however_small(nesterov, shift):
    rule = optimizer("steepest", norm="frobenius", beta=0.5, nesterov=nesterov, lr=1.0)
    memory, V, M = {}, torch.zeros(2, 3, 3, dtype=torch.float64), 0.0
    for k, log_scale in enumerate((0.0, -3.0, -1.0, -40.0, -2.0)):
        G = draw(2, 3, 3, seed=k)
        S = moved(rule, V, G, shift + log_scale, memory)
        M = 0.5 * M + G * torch.e**log_scale
        D = G * torch.e**log_scale + 0.5 * M if nesterov else M
        torch.testing.assert_close(S, D / D.norm(dim=(1, 2), keepdim=True))


def test_a_bad_norm_is_named_with_what_it_must_be():
    with pytest.raises(ConfigError, match=r"optimizer.norm=l2: must be frobenius \| nuclear"):
        optimizer("steepest", norm="l2")
    for norm in NORMS:
        assert optimizer("steepest", norm=norm).implicit_bias == norm


def published_muon(V, gradients, lr, momentum=0.95, steps=5):
    """Return V after the steps of K. Jordan's rule, written down from its description."""
    a, b, c = 3.4445, -4.7750, 2.0315
    buffer = torch.zeros_like(V)
    for G in gradients:
        buffer = momentum * buffer + (1 - momentum) * G
        X = (1 - momentum) * G + momentum * buffer
        X = X.mT if X.shape[0] > X.shape[1] else X
        X = X / X.norm()
        for _ in range(steps):
            X = a * X + b * X @ X.mT @ X + c * X @ X.mT @ X @ X.mT @ X
        X = X.mT if G.shape[0] > G.shape[1] else X
        V = V - lr * max(1.0, G.shape[0] / G.shape[1]) ** 0.5 * X
    return V


@pytest.mark.parametrize("shape", [(4, 4), (6, 2), (2, 6)])
@pytest.mark.parametrize("shift", [0.0, -1e4])
def test_muon_steps_are_the_published_ones(shape, shift):
    rule, memory = optimizer("muon", lr=0.1), {}
    gradients = [draw(3, *shape, seed=k) for k in range(12)]
    V = V0 = draw(3, *shape, seed=99)
    for G in gradients:
        V = step(rule, V, G, shift, memory)
    for k in range(3):
        expected = published_muon(V0[k], [G[k] for G in gradients], 0.1)
        torch.testing.assert_close(V[k], expected, rtol=1e-11, atol=1e-11)
