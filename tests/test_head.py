import pytest
import torch
from torch import Generator

from attnsvm.head import Linear, Quadratic, Relu, Vocabulary
from tests.kkt import normal


@pytest.mark.parametrize("head", [Linear(), Relu(), Quadratic(0.3)])
def test_parameters_are_float32_draws_of_norm_one(head):
    for seed in range(3):
        (value,) = head.draw(Generator().manual_seed(seed), 5).values()
        assert value.dtype == torch.float64
        assert value.equal(value.float().double())
        assert abs(value.norm() - 1) <= 1e-6


def test_values_in_closed_form():
    o = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    v = {"v": torch.tensor([[3.0, 0.5]], dtype=torch.float64)}
    V = {"V": torch.tensor([[[1.0, -1.0], [0.0, 1.0]]], dtype=torch.float64)}
    assert Linear().value(o, v).item() == 2.0
    assert Quadratic(0.1).value(o, v).item() == pytest.approx(2.0 - 0.5)
    assert Relu().value(o, V).item() == 1.0  # V^T o = (1, -3)


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
    torch.testing.assert_close(head.value(o, parameters), -entropy, rtol=1e-12, atol=0)
    torch.testing.assert_close(head.gradient(o, parameters), slope, rtol=1e-10, atol=0)
    assert (slope != 0).all()
