from __future__ import annotations

import pytest
import torch

from attnsvm.loss import Exponential, Linear, Logistic

U = torch.linspace(-40, 40, 81, dtype=torch.float64)


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()])
def test_derivative_is_that_of_autograd_and_negative(loss):
    u = U.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss.value(u).sum(), u)
    torch.testing.assert_close(loss.derivative(U), slope, rtol=1e-14, atol=0)
    assert (loss.derivative(U) < 0).all()


def test_closed_forms():
    torch.testing.assert_close(Logistic().value(U[35:46]), torch.log(1 + torch.exp(-U[35:46])))
    assert Exponential().value(torch.tensor(0.0)).item() == 1
    assert Linear().value(U).equal(-U)


def test_logistic_keeps_its_digits_in_both_tails():
    u = torch.tensor([800.0, 50.0, -50.0, -800.0], dtype=torch.float64)
    expected = torch.tensor([0.0, torch.exp(-u[1]).item(), 50.0, 800.0], dtype=torch.float64)
    torch.testing.assert_close(Logistic().value(u), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()])
def test_scaled_slopes_are_the_slopes(loss):
    u = torch.stack([U[:40], U[:40] + 150])
    slope, c = loss.scaled_derivative(u)
    torch.testing.assert_close(slope * c.exp()[:, None], loss.derivative(u), rtol=1e-13, atol=0)


@pytest.mark.parametrize("loss", [Logistic(), Exponential()])
def test_slopes_of_large_margins_do_not_underflow(loss):
    u = torch.tensor([[2000.0, 2001.0], [1.0, 2001.0]], dtype=torch.float64)
    slope, c = loss.scaled_derivative(u)
    assert c.tolist() == [-2000, 0]
    torch.testing.assert_close(slope[0], -torch.exp(-(u[0] - 2000)), rtol=1e-15, atol=0)
    assert slope[1].equal(loss.derivative(u[1]))
