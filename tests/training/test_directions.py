"""Steps of the compiled loop in every norm, with and without momentum, against the torch loop."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Generator

from attnsvm.attention import Risk
from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.training import train
from attnsvm.training.batch import parameterization_named
from attnsvm.training.compiled import applies

pytestmark = pytest.mark.processors

SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 11, "seed": 20}
FULL = pytest.mark.full
RULES = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), pytest.param("kq", 2, marks=FULL)]
)
NORMS = ["frobenius", "max", "l1", "spectral", "nuclear"]
STEPPERS = [
    ("steepest", {"norm": "spectral", "beta": 0.9, "nesterov": True}),
    ("muon", {}),
    *(pytest.param("steepest", {"norm": norm, "beta": 0.8}, marks=FULL) for norm in NORMS),
    *(pytest.param("steepest", {"norm": norm}, marks=FULL) for norm in NORMS),
    pytest.param("muon", {"newton_schulz_steps": 2, "beta": 0.0}, marks=FULL),
    pytest.param("sign_gd", {}, marks=FULL),
    pytest.param("momentum", {"beta": 0.7}, marks=FULL),
]


def both(batch, *arguments, **options):
    return [train(batch, *arguments, compiled=compiled, **options) for compiled in (True, False)]


def assert_same(kernel, loop, tolerance=1e-11):
    error = (kernel.snapshots - loop.snapshots).norm(dim=(-2, -1))
    assert (error <= tolerance * (1 + loop.snapshots.norm(dim=(-2, -1)))).all()


def ragged(batch):
    mask = torch.rand(batch.mask.shape, generator=Generator().manual_seed(3)) > 0.4
    mask[:, :, 0] = True
    return dataclasses.replace(batch, mask=mask)


def risk_of(batch):
    return Risk(batch, parameterization_named("w", None), named("loss", "logistic"))


@RULES
@pytest.mark.parametrize("ridge", [1e-2, pytest.param(0.0, marks=FULL)])
@pytest.mark.parametrize(("name", "fields"), STEPPERS)
def test_a_few_steps_are_those_of_torch(name, fields, ridge, parameterization, m):
    batch = ragged(sample(**SHAPE))
    assert applies(risk_of(batch), named("optimizer", name, **fields))
    options = {"m": m, "ridge": ridge, "steps": 4, "record_every": 1, "lr": 0.05}
    assert_same(*both(batch, parameterization, name, **options, **fields))


@FULL
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("n", "T", "d"), [(1, 2, 2), (9, 6, 4), (5, 4, 20)])
@RULES
def test_steps_at_odd_sizes(n, T, d, norm, parameterization, m):
    """More queries than dimensions, more dimensions than tokens."""
    batch = sample(n=n, T=T, d=d, trials=9)
    options = {"m": m, "norm": norm, "beta": 0.8, "steps": 2, "lr": 0.05, "record_every": 1}
    assert_same(*both(batch, parameterization, "steepest", **options))


@pytest.mark.parametrize("norm", NORMS)
def test_a_late_step_is_that_of_torch(norm):
    """Where gradients underflow; whole paths differ, as steps overshoot and amplify last bits."""
    batch = sample(**SHAPE)
    late = 3e3 * train(batch, optimizer="steepest", norm=norm, steps=300).W
    assert_same(*both(batch, optimizer="steepest", norm=norm, init=late, steps=1, lr=1e3))


def test_momentum_that_underflows_is_that_of_torch():
    batch = sample(**SHAPE)
    late = 3e3 * train(batch, steps=300).W
    options = {"norm": "frobenius", "beta": 0.9, "init": late, "steps": 50, "record_every": 10}
    kernel, loop = both(batch, optimizer="steepest", **options)
    assert_same(kernel, loop)
    assert ((kernel.W - late).norm(dim=(1, 2)) > 0.1).all()


@pytest.mark.parametrize("norm", NORMS)
def test_an_instance_without_a_gradient_stays_where_it_is(norm):
    batch = sample(**SHAPE)
    X = batch.X.clone()
    X[4] = X[4, :, :1]
    batch = dataclasses.replace(batch, X=X)
    W0 = torch.zeros(11, 5, 5, dtype=torch.float64)
    path = train(batch, optimizer="steepest", norm=norm, init=W0, steps=20)
    assert not path.W[4].any()
    others = torch.arange(11) != 4
    assert (path.W[others].norm(dim=(1, 2)) > 0.1).all()


def test_the_loop_knows_where_it_has_no_steps():
    risk = risk_of(sample(**SHAPE))
    for name, fields in (("steepest", {"norm": "l3"}), ("steepest", {"norm": "schatten4"}),
                         ("steepest", {"gradient": "direct"})):  # fmt: skip
        assert not applies(risk, named("optimizer", name, **fields))
