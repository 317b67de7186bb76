from __future__ import annotations

import pytest
import torch
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.parameterization import KQ, W

B, D, N = 3, 5, 4
RULES = [W(), KQ(), KQ(m=2)]
each = pytest.mark.parametrize("rule", RULES, ids=["w", "kq", "kq2"])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@each
def test_query_is_combined_weights_times_query(rule):
    variables = rule.init("uniform", 1.0, torch.arange(B), D)
    Z = draw(B, N, D)
    U = torch.einsum("bij,bnj->bni", rule.combine(variables), Z)
    torch.testing.assert_close(rule.query(variables, Z), U, rtol=0, atol=1e-15)


@each
def test_pullback_is_the_gradient(rule):
    variables = tuple(V.requires_grad_() for V in rule.init("uniform", 1.0, torch.arange(B), D))
    Z, P = draw(B, N, D), draw(B, N, D, seed=1)
    pulled = rule.pullback(variables, P, Z)
    expected = torch.autograd.grad((P * rule.query(variables, Z)).sum(), variables)
    for got, wanted in zip(pulled, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-13, atol=1e-15)


@each
@pytest.mark.parametrize(("kind", "bound"), [("uniform", D**-0.5), ("small", 0.01 * D**-0.5)])
def test_initial_entries_fill_their_interval(rule, kind, bound):
    for V in rule.init(kind, 0.01, torch.arange(200), D):
        assert V.abs().max() <= bound
        assert V.max() > 0.98 * bound
        assert V.min() < -0.98 * bound


@each
def test_zero_means_no_attention_weights(rule):
    variables = rule.init("zero", 1.0, torch.arange(B), D)
    assert rule.combine(variables).eq(0).all()


def test_zero_factors_can_still_move():
    K, Q = KQ().init("zero", 1.0, torch.arange(400), D)
    assert Q.eq(0).all()
    assert K.std().item() == pytest.approx(0.1, rel=0.05)


@each
def test_initial_weights_are_of_the_instance_not_of_the_batch(rule):
    torch.manual_seed(1)
    together = rule.init("uniform", 1.0, torch.tensor([4, 9, 2]), D)
    torch.manual_seed(2)
    alone = rule.init("uniform", 1.0, torch.tensor([9]), D)
    assert all(a[1].equal(b[0]) for a, b in zip(together, alone, strict=True))
    assert not together[0][0].equal(together[0][1])


def test_initial_weights_have_a_stream_of_their_own():
    batch = sample(n=1, T=1, d=D, trials=1, seed=3)
    (V,) = W().init("uniform", 1.0, batch.seeds, D)
    same_stream = torch.rand(D, D, generator=Generator().manual_seed(3), dtype=torch.float64)
    assert not V[0].allclose((2 * same_stream - 1) / D**0.5)


def test_given_weights_are_copied_and_shared():
    K0, Q0 = torch.eye(D).double(), torch.zeros(B, D, D).double()
    K, Q = KQ().given((K0, Q0), B, D)
    K[0, 0, 0] = 7
    assert K.shape == Q.shape == (B, D, D)
    assert K[1, 0, 0] == K0[0, 0] == 1


@pytest.mark.parametrize(
    ("rule", "init", "message"),
    [
        (W(), (torch.zeros(D, D).double(),) * 2, "init: 2 tensors; must be W0"),
        (KQ(), torch.zeros(D, D).double(), "init: 1 tensors; must be K0, Q0"),
        (W(), torch.zeros(D, D), "init W0: torch.float32"),
        (W(), torch.zeros(D, 4).double(), r"init W0: shape \(3, 5, 4\); must be \(3, 5, 5\)"),
        (KQ(2), (torch.zeros(D, D).double(),) * 2, r"init K0: shape .* must be \(3, 5, 2\)"),
        (W(), torch.full((D, D), torch.nan).double(), "init W0: nan"),
    ],
)
def test_bad_initial_weights_are_named(rule, init, message):
    with pytest.raises(ConfigError, match=message):
        rule.given(init, B, D)


@pytest.mark.parametrize("m", [0, 6])
def test_columns_out_of_range(m):
    with pytest.raises(ConfigError, match=f"m={m}: must be >= 1 and <= d=5"):
        KQ(m).shapes(D)
