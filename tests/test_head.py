import pytest
import torch
from torch import Generator

from attnsvm.head import Linear, Mlp, Quadratic, Relu, Vocabulary
from tests.kkt import normal

HEADS = [Linear(), Relu(), Quadratic(0.3)]
named = pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)


def parameters_of(head, B=3, d=5):
    drawn = [head.draw(Generator().manual_seed(i), d) for i in range(B)]
    return {name: torch.stack([parameters[name] for parameters in drawn]) for name in drawn[0]}


@named
def test_parameters_are_float32_draws_of_norm_one(head):
    for value in parameters_of(head).values():
        assert value.dtype == torch.float64
        assert value.equal(value.float().double())
        assert ((value.flatten(1).norm(dim=1) - 1).abs() <= 1e-6).all()


def test_values_in_closed_form():
    o = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    v = {"v": torch.tensor([[3.0, 0.5]], dtype=torch.float64)}
    V = {"V": torch.tensor([[[1.0, -1.0], [0.0, 1.0]]], dtype=torch.float64)}
    assert Linear().value(o, v).item() == 2.0
    assert Quadratic(0.1).value(o, v).item() == pytest.approx(2.0 - 0.5)
    assert Relu().value(o, V).item() == 1.0  # V^T o = (1, -3)


def test_a_module_is_evaluated_with_the_parameters_of_each_instance():
    head, o = Mlp(width=7), normal(3, 2, 5)
    parameters = parameters_of(head)
    values, slopes = head.value(o, parameters), head.gradient(o, parameters)
    for b in range(3):
        alone = head.module(5).double()
        alone.load_state_dict({name: value[b] for name, value in parameters.items()})
        tracked = o[b].clone().requires_grad_()
        expected = alone(tracked).squeeze(-1)
        torch.testing.assert_close(values[b], expected, rtol=1e-14, atol=1e-15)
        (slope,) = torch.autograd.grad(expected.sum(), tracked)
        torch.testing.assert_close(slopes[b], slope, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("size", [1.0, 60.0])
def test_the_vocabulary_gives_the_cross_entropy_also_where_its_probability_is_one(size):
    head, o, y = Vocabulary(), normal(2, 3, 4, 5), torch.tensor([[0, 2, 5], [5, 1, 1]])
    C = normal(6, 5, seed=1)
    o[0, 0, 0] = C[0] * size  # p_y = 1 - 1e-17 or less
    parameters, tracked = head.of_labels(C, y), o.clone().requires_grad_()
    scores, labels = tracked @ C.mT, y[..., None].expand(2, 3, 4)
    own = scores.gather(-1, labels[..., None])
    others = torch.ones_like(scores, dtype=torch.bool).scatter(-1, labels[..., None], False)
    rise = torch.where(others, scores - own, -torch.inf).exp().sum(-1).log1p()
    (slope,) = torch.autograd.grad(-rise.sum(), tracked)
    torch.testing.assert_close(head.value(o, parameters), -rise, rtol=1e-12, atol=0)
    entropy = torch.nn.functional.cross_entropy(scores.flatten(0, 2), labels.flatten())
    torch.testing.assert_close(-head.value(o, parameters).mean(), entropy)
    gradient = head.gradient(o, parameters)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=0)
    assert (gradient != 0).all()
