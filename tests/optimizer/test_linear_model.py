"""Linear classifiers: every optimizer against the loop of a torch model with cross-entropy."""

import dataclasses
from itertools import islice

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.training import train
from tests.quick import quick, quick_rows

STEPS = 200
SHAPE = {"n": 5, "K": 3, "d": 4, "margin": 0.1, "trials": 3}


BATCHES = quick(
    {"batch": 2, "order_seed": 7},
    {},
    {"batch": 1, "order": "cyclic"},
    {"batch": 3, "order": "replacement"},
)
DECAY = {"weight_decay": 0.02}
RULES = [
    ("gd", {"lr": 0.5}, "SGD", {}),
    ("gd", {"lr": 0.5, "ridge": 0.05}, "SGD", {"weight_decay": 0.1}),  # a penalty
    ("momentum", {"beta": 0.8}, "SGD", {"momentum": 0.8}),
    ("momentum", {"nesterov": True}, "SGD", {"momentum": 0.9, "nesterov": True}),
    ("adam", {}, "AdamW", {"weight_decay": 0.0}),
    (
        "adam",
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3, **DECAY},
        "AdamW",
        {"betas": [0.5, 0.9], "eps": 1e-3, **DECAY},
    ),
    (
        "adam",
        {"beta1": 0.0, "eps": 0.1},
        "AdamW",
        {"weight_decay": 0.0, "betas": [0.0, 0.999], "eps": 0.1},
    ),
]
"""Optimizers and their options; that of torch and its options."""


@pytest.mark.parametrize("of_batches", BATCHES)
@pytest.mark.parametrize(("name", "fields", "of_torch", "its_fields"), RULES)
def test_two_hundred_steps_are_those_of_torch(name, fields, of_torch, its_fields, of_batches):
    """Steps are small: where softmax saturates, the gradient of torch cancels."""
    batch, options = sample("classes", **SHAPE), {"lr": 0.02, **fields, **of_batches}
    path = train(batch, "w", name, "log", init="zero", steps=STEPS, record_every=50, **options)
    x, y = batch.Z[..., : SHAPE["d"]], batch.head_parameters["v"].argmax(-1)
    order = list(islice(named("optimizer", name, **options).weights(SHAPE["n"]), STEPS))
    W = torch.zeros(len(x), SHAPE["K"], SHAPE["d"], dtype=torch.float64, requires_grad=True)
    loop = getattr(torch.optim, of_torch)([W], options["lr"], **its_fields)
    for weights in order:
        loop.zero_grad()
        losses = cross_entropy((x @ W.mT).mT, y, reduction="none")
        (losses * torch.from_numpy(weights)).mean(1).sum().backward()
        loop.step()
    expected = pad(W.detach(), (0, 0, 0, SHAPE["d"] - SHAPE["K"]))
    torch.testing.assert_close(path.W, expected, rtol=1e-12, atol=1e-12)


def test_every_pass_takes_each_sample_once():
    for order in ("cyclic", "shuffled"):
        weights = named("optimizer", "gd", batch=2, order=order).weights(5)
        for _ in range(3):
            rows = [torch.from_numpy(next(weights)) for _ in range(3)]
            assert [float(row.mean()) for row in rows] == pytest.approx([1.0] * 3)
            assert (sum((row > 0).double() for row in rows) == 1).all()
    again = [named("optimizer", "gd", batch=2, order_seed=s).weights(50) for s in (1, 1, 2)]
    first, same, other = (next(orders) for orders in again)
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("name", "fields"),
    [("steepest", {"norm": "max", "beta": 0.9}), ("adam", {"eps": 0.0, "beta1": 0.9})],
)
def test_a_sample_without_a_gradient_leaves_the_memory_what_it_is(name, fields, compiled):
    """Gradients of e^-1000 and less: a step by a point of zero is along the last momentum."""
    batch = sample("classes", **SHAPE)
    start = 1e4 * train(batch, "w", "normalized_gd", "log", init="zero", steps=500).W
    Z = batch.Z.clone()
    Z[:, 3] = 0.0
    batch = dataclasses.replace(batch, Z=Z)
    options = {"batch": 1, "order": "cyclic", "init": start, "lr": 1.0, "compiled": compiled}
    W = train(batch, "w", name, "log", steps=4, record_every=1, **options, **fields).snapshots
    moved = (W[:, 1:] - W[:, :-1]).abs().flatten(2).amax(2)
    assert (moved[:, 3] > 0.1).all()


def orthogonalised(G, coefficients, steps, eps):
    """Return what torch's function of these arguments rounds to bfloat16."""
    a, b, c = coefficients
    X = (G.mT if len(G) > len(G.mT) else G) / G.norm()
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if len(G) > len(G.mT) else X


def product(factors):
    return factors[0] if len(factors) == 1 else factors[0] @ factors[1].mT


@pytest.mark.parametrize("m", quick(2, None, 1, 3, count=2))
@pytest.mark.parametrize(("K", "d"), quick_rows((8, 4), (3, 4), (4, 4), (7, 3), (2, 6)))
def test_muon_is_that_of_torch_on_weights_of_every_shape(K, d, m, monkeypatch):
    """W (K, d), or factors (K, m) and (d, m), without the zeros that make ours square."""
    monkeypatch.setattr(torch.optim._muon, "_zeropower_via_newtonschulz", orthogonalised)
    batch = sample("classes", model="linear", **SHAPE | {"K": K, "d": d})
    options = {"init": "uniform", "m": m, "steps": 20, "lr": 0.02, "weight_decay": 0.1}
    rule = "w" if m is None else "kq"
    path = train(batch, rule, "muon", "log", keep_factors=True, **options)
    starts = [path.snapshots[:, 0, :K, :d]]
    if m is not None:
        starts = [path.K_snapshots[:, 0, :K], path.Q_snapshots[:, 0, :d]]
    x, y = batch.Z[..., :d], batch.head_parameters["v"].argmax(-1)
    for b, start in enumerate(zip(*starts, strict=True)):
        factors = [V.clone().requires_grad_() for V in start]
        loop = torch.optim.Muon(factors, 0.02, weight_decay=0.1)
        for _ in range(20):
            loop.zero_grad()
            cross_entropy(x[b] @ product(factors).mT, y[b]).backward()
            loop.step()
        torch.testing.assert_close(
            path.W[b, :K, :d], product(factors).detach(), rtol=1e-8, atol=1e-10
        )
