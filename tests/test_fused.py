"""The compiled kernel against the torch loop, step by step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Generator

from attnsvm import fused, simd
from attnsvm.build import named
from attnsvm.data import sample
from attnsvm.risk import Risk
from attnsvm.training import parameterization_named, train

SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 11, "seed": 20}
HEADS = pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
RULES = pytest.mark.parametrize(("parameterization", "m"), [("w", None), ("kq", None), ("kq", 2)])


def ragged(batch):
    mask = torch.rand(batch.mask.shape, generator=Generator().manual_seed(3)) > 0.4
    mask[:, :, 0] = True
    return dataclasses.replace(batch, mask=mask)


def both(batch, *arguments, **options):
    return [train(batch, *arguments, fused=kernel, **options) for kernel in (True, False)]


def assert_same(kernel, loop, tolerance=1e-12):
    error = (kernel.snapshots - loop.snapshots).norm(dim=(-2, -1))
    assert (error <= tolerance * loop.snapshots.norm(dim=(-2, -1))).all()


def relative_error_of_exp(x):
    padded = np.resize(x, -(-len(x) // simd.LANES) * simd.LANES)
    got = np.array([evaluated(padded[i : i + 8]) for i in range(0, len(padded), 8)]).ravel()
    exact = np.exp(padded)
    return np.abs(got - exact) / exact


def evaluated(x):
    out = np.empty(8)
    _evaluate(np.ascontiguousarray(x), out)
    return out


@simd.njit
def _evaluate(x, out):
    simd.store(out, 0, simd.exp(simd.load(x, 0)))


def test_exp_is_exact_to_two_ulps():
    assert relative_error_of_exp(np.linspace(-707.9, 707.9, 4001)).max() < 4.5e-16
    assert relative_error_of_exp(np.linspace(-1, 1, 4001)).max() < 4.5e-16


def test_exp_of_very_negative_numbers_is_zero_and_of_zero_is_one():
    out = evaluated(np.array([-np.inf, -1e300, -709.0, 0.0, -0.0, 1.0, -1.0, -745.0]))
    assert out[[0, 1, 2, 7]].tolist() == [0.0] * 4
    assert out[3:5].tolist() == [1.0, 1.0]


@HEADS
@RULES
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_one_step_is_that_of_torch(head, parameterization, m, loss):
    batch = ragged(sample(head=head, **SHAPE))
    for optimizer in ("normalized_gd", "gd"):
        for ridge in (0.0, 1e-3):
            paths = both(
                batch, parameterization, optimizer, loss, m=m, ridge=ridge, steps=1, lr=0.3
            )
            assert_same(*paths)


@HEADS
@RULES
@pytest.mark.parametrize("steps", [30, 300])
def test_a_late_step_is_that_of_torch(head, parameterization, m, steps):
    """From a state on the way; whole paths may differ, where steps overshoot and amplify bits."""
    batch = ragged(sample(head=head, **SHAPE))
    path = train(batch, parameterization, m=m, steps=steps, growth=0.01)
    init = path.W if path.K is None else (path.K, path.Q)
    for lr in (0.1, 3.0):
        assert_same(*both(batch, parameterization, m=m, init=init, steps=1, lr=lr))


@HEADS
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
@pytest.mark.parametrize("optimizer", ["normalized_gd", "gd"])
def test_one_published_step_is_that_of_torch(head, loss, optimizer):
    batch = ragged(sample(head=head, **SHAPE))
    options = {"gradient": "direct", "steps": 1, "lr": 0.3}
    assert_same(*both(batch, "w", optimizer, loss, **options))
    late = train(batch, "w", optimizer, loss, gradient="direct", steps=40).W
    assert_same(*both(batch, "w", optimizer, loss, init=late, **options))


def test_the_published_steps_stall_in_the_kernel_as_in_torch():
    """Once all attention is on one token the published gradient is zero or noise, in both."""
    batch = sample(**SHAPE)
    kernel, loop = both(batch, gradient="direct", steps=1500)
    exact = train(batch, steps=1500)
    norms = [path.W.norm(dim=(1, 2)) for path in (kernel, loop, exact)]
    assert (norms[0] < 0.9 * norms[2]).any()
    torch.testing.assert_close(norms[0], norms[1], rtol=0.1, atol=0)


def test_many_steps_of_w_are_those_of_torch():
    batch = sample(**SHAPE)
    kernel, loop = both(batch, steps=500, record_every=50)
    assert_same(kernel, loop, 1e-12 * 500)
    torch.testing.assert_close(kernel.loss, loop.loss, rtol=1e-10, atol=1e-14)


@RULES
def test_a_saturated_step_is_that_of_torch(parameterization, m):
    batch = sample(**SHAPE)
    rule = parameterization_named(parameterization, m)
    size = 1e4 if parameterization == "w" else 1e2
    init = tuple(size * V for V in rule.init("uniform", 1.0, batch.seeds, batch.d))
    moved = []
    for path in both(batch, parameterization, m=m, init=init, steps=1, lr=1.0, growth=0.0):
        variables = (path.W,) if path.K is None else (path.K, path.Q)
        moved.append([V - V0 for V, V0 in zip(variables, init, strict=True)])
    for kernel, loop in zip(*moved, strict=True):
        torch.testing.assert_close(kernel, loop, rtol=0, atol=1e-9 * size**0.5)


@RULES
@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
def test_more_dimensions_than_tokens(parameterization, m, ridge, head):
    """Training in the span of the tokens is training, also of what lies outside of it."""
    batch = sample(head=head, n=2, T=2, d=9, trials=3)
    options = {"m": m, "steps": 30, "record_every": 10, "ridge": ridge}
    assert_same(*both(batch, parameterization, **options), 1e-10)


def test_the_kernel_knows_where_it_does_not_apply():
    batch = sample(**SHAPE)

    def risk(head="linear", parameterization="w"):
        rule = parameterization_named(parameterization, None)
        return Risk(sample(head=head, **SHAPE), rule, named("loss", "logistic"))

    assert fused.applies(risk(), named("optimizer", "gd"))
    assert not fused.applies(risk(), named("optimizer", "adam"))
    published = named("optimizer", "normalized_gd", gradient="direct")
    assert fused.applies(risk(), published)
    assert not fused.applies(risk(parameterization="kq"), published)
    assert not fused.applies(risk(), named("optimizer", "gd", gradient="direct", ridge=1e-3))
    assert not fused.applies(risk("mlp"), named("optimizer", "gd"))
    batch.head.train = True
    trained = Risk(batch, parameterization_named("w", None), named("loss", "logistic"))
    assert not fused.applies(trained, named("optimizer", "gd"))


def test_lanes_hold_every_instance_once():
    tensor = torch.arange(11 * 6, dtype=torch.float64).view(11, 2, 3)
    lanes = fused.to_lanes(tensor)
    assert lanes.shape == (2, 48)
    assert fused.from_lanes(lanes, (11, 2, 3)).equal(tensor)
