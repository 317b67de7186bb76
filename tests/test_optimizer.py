from __future__ import annotations

import pytest
import torch
from torch import Generator

from attnsvm.build import named
from attnsvm.config import MACHINE_EPS, ConfigError


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def test_step_size_grows_linearly():
    optimizer = named("optimizer", "gd", lr=0.2, growth=0.5)
    assert [optimizer.step_size(k) for k in range(3)] == pytest.approx([0.2, 0.3, 0.4])


def test_normalised_step_has_the_length_of_the_step_size():
    optimizer = named("optimizer", "normalized_gd", lr=0.3)
    V, g = draw(4, 3, 3), draw(4, 3, 3, seed=1)
    (moved,) = optimizer.update((V.clone(),), (g,), torch.full((4,), -1e5), 0)
    torch.testing.assert_close((moved - V).norm(dim=(1, 2)), torch.full((4,), 0.3).double())
    torch.testing.assert_close(moved, V - 0.3 * g / g.norm(dim=(1, 2), keepdim=True))


def test_each_factor_is_normalised_by_its_own_norm():
    optimizer = named("optimizer", "normalized_gd", lr=0.3)
    K, Q = torch.zeros(1, 2, 2).double(), torch.zeros(1, 2, 2).double()
    moved = optimizer.update((K, Q), (draw(1, 2, 2), 1e-9 * draw(1, 2, 2)), torch.zeros(1), 0)
    assert [V.norm().item() for V in moved] == pytest.approx([0.3, 0.3])


def test_published_normalisation_carries_eps():
    optimizer = named("optimizer", "normalized_gd", lr=1.0, gradient="direct")
    g = torch.tensor([[[MACHINE_EPS]]], dtype=torch.float64)
    (moved,) = optimizer.update((torch.zeros_like(g),), (g,), torch.zeros(1), 0)
    assert moved.item() == -0.5


def test_zero_gradient_is_a_zero_step():
    for gradient in ("direct", "log_domain"):
        optimizer = named("optimizer", "normalized_gd", gradient=gradient)
        V = draw(2, 3, 3)
        (moved,) = optimizer.update((V.clone(),), (torch.zeros_like(V),), torch.zeros(2), 0)
        assert moved.equal(V)


def test_gradient_descent_takes_the_true_size():
    optimizer = named("optimizer", "gd", lr=0.5)
    V, g = draw(2, 3, 3), draw(2, 3, 3, seed=1)
    (moved,) = optimizer.update((V.clone(),), (g,), torch.tensor([0.0, -2.0]).double(), 0)
    torch.testing.assert_close(moved[0], V[0] - 0.5 * g[0])
    torch.testing.assert_close(moved[1], V[1] - 0.5 * torch.e**-2 * g[1])


@pytest.mark.parametrize(
    ("field", "value"), [("lr", 0.0), ("steps", -1), ("gradient", "exact"), ("lrr", 1)]
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ConfigError, match=f"optimizer.{field}"):
        named("optimizer", "gd", **{field: value})
