"""Training of all layers and heads."""

import dataclasses

import pytest
import torch

import attnsvm
from attnsvm import ConfigError, Transformer, train_layers
from attnsvm.parameterization import W as Combined
from attnsvm.transformer.network import Weights, forward
from attnsvm.transformer.trained import TrainedNetwork
from tests.quick import quick, quick_rows

NETWORKS = quick(
    ({"heads": 2, "mlp": 3, "trained": "all", "readout": "mean"}, "kq", "squared"),
    ({"layers": 1, "residual": False}, "w", "linear"),
    ({}, "kq", "exponential"),
    (
        {"layers": 3, "heads": 2, "values": "orthogonal", "causal": True, "readout": "mean"},
        "w",
        "logistic",
    ),
    ({"trained": "head", "readout": "mean"}, "w", "linear"),
    ({"mlp": 5, "trained": "all", "residual": False}, "w", "logistic"),
)
REFUSED = {
    "optimizer.gradient=direct: must be log_domain": {"gradient": "direct"},
    "optimizer=Adam: must be normalized_gd": {"optimizer": "adam"},
    "optimizer.ridge=0.1: must be 0": {"ridge": 0.1},
}
SHAPE = {"n": 3, "T": 4, "d": 6, "trials": 5}


def batch_for(model, **changes):
    return attnsvm.sample("sphere", model=model, **SHAPE | changes)


@pytest.mark.parametrize("network", NETWORKS)
def test_compiled_steps_are_those_of_the_torch_loop(network):
    """Blocks of eight, all trained matrices by the compiled rule, and by `NormalizedGD`."""
    options, parameterization, loss = network
    model = Transformer(**options)
    other = "relu" if model.trains("head") else "quadratic"
    batch = batch_for(model, head=other if loss in ("linear", "squared") else "linear", trials=11)
    fields = {"steps": 30, "lr": 0.5, "init": "uniform", "record_every": 10}
    ours, torch_loop = (
        train_layers(batch, model, parameterization, "normalized_gd", loss, compiled=how, **fields)
        for how in (True, False)
    )
    moved = torch_loop.snapshots[:, -1] - torch_loop.snapshots[:, 0]
    assert moved.flatten(3).norm(dim=-1).min() > 1  # every layer and head was trained
    assert (ours.snapshots - torch_loop.snapshots).abs().amax() <= 1e-9 * moved.abs().amax()
    assert all(
        (ours.trained[name] - part).abs().amax() <= 1e-9 * part.abs().amax()
        for name, part in torch_loop.trained.items()
    )
    torch.testing.assert_close(ours.risk, torch_loop.risk, rtol=0, atol=1e-9)


def test_snapshots_with_one_entry_per_matrix_are_those_of_their_step():
    """Steps are taken ahead of what is recorded: an array of one entry is copied, too."""
    model = Transformer(layers=1, trained="all", readout="every")
    batch = batch_for(model, d=1, trials=8)
    ours, torch_loop = (
        train_layers(batch, model, steps=60, lr=0.1, record_every=1, compiled=how)
        for how in (True, False)
    )
    torch.testing.assert_close(ours.snapshots, torch_loop.snapshots, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.risk, torch_loop.risk, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "one_layer"),
    [
        ({"readout": "first"}, ("self_attention", {})),
        ({"readout": "every", "causal": True}, ("sequence", {"causal": True})),
    ],
)
@pytest.mark.parametrize("parameterization", ["w", "kq"])
def test_one_layer_is_the_one_layer_model(options, one_layer, parameterization):
    model = Transformer(layers=1, residual=False, **options)
    # steps of (K, Q) double rounding errors once attention saturates, after 100 to 150 of them
    fields = {"steps": 200 if parameterization == "w" else 100, "lr": 0.1, "record_every": 50}
    path = train_layers(batch_for(model), model, parameterization, **fields)
    name, further = one_layer
    batch = attnsvm.sample("sphere", model=name, **SHAPE, **further)
    known = attnsvm.train(batch, parameterization, **fields)
    assert path.steps.equal(known.steps)
    W = path.snapshots[:, :, 0, 0]
    assert (W - known.snapshots).abs().amax() <= 1e-10 * known.snapshots.abs().amax()
    assert torch.allclose(path.risk, known.loss, rtol=1e-12, atol=0)
    softmax = path.log_softmax[:, :, 0, 0].exp()
    if options["readout"] == "first":
        softmax = softmax[:, :, :, 0]
    assert torch.allclose(softmax.reshape(known.softmax.shape), known.softmax, atol=1e-11)


FAR = {"head": "relu", "n": 2, "T": 3, "d": 3, "trials": 48}
"""With margins of thousands all rows of a layer may be dead, which hides no others."""

SEVERAL = {"heads": 2, "mlp": 3, "rate": 0.2}


@pytest.mark.parametrize(
    ("options", "changes", "factor", "names"),
    quick_rows(
        ({**SEVERAL, "trained": "all"}, {}, 1.0, "V M1 M2 head_v"),
        ({"mlp": 9, "trained": "all", "readout": "every"}, FAR, 1e3, "V M1 M2 head_V"),
        ({**SEVERAL, "trained": "mlp"}, {}, 1.0, "M1 M2"),
    ),
)
def test_a_step_of_all_that_is_trained_is_along_its_own_gradient(options, changes, factor, names):
    """With its own rate; the rest stays as drawn. `test_gradient` has the gradients."""
    model = Transformer(layers=2, **options)
    batch = batch_for(model, **changes)
    head = {name: factor * V for name, V in batch.head_parameters.items()}
    batch = dataclasses.replace(batch, head_parameters=head)
    before, after = (
        train_layers(batch, model, steps=steps, init="uniform", lr=0.1) for steps in (3, 4)
    )
    net = TrainedNetwork(model, batch, before.loss, Combined())
    gradients = net.adjoints(before.weights).gradients
    assert {*gradients} == {*before.trained} == {"W", *names.split()}
    for name, G in gradients.items():
        axes = (-1,) if name == "head_v" else (-2, -1)
        step = (1.0 if name == "W" else model.rate) * 0.1 * unit(G, axes)
        assert (step != 0).flatten(1).any(1).float().mean() > 0.5, name
        error = (before.trained[name] - step - after.trained[name]).abs().amax()
        assert error <= (1e-12 if factor == 1 else 1e-8), name
    for name, V in head.items():
        assert after.weights.head[name].equal(V) == (f"head_{name}" not in names)


def unit(G, axes):
    """Return each matrix divided by its norm, zero where it is zero."""
    G = G / G.abs().amax(axes, keepdim=True).clamp(min=1e-300)
    return G / G.norm(dim=axes, keepdim=True).clamp(min=1e-300)


def test_no_two_layers_heads_or_mlps_have_the_same_draw():
    model = Transformer(layers=2, heads=2, mlp=3, trained="all")
    start = train_layers(batch_for(model), model, steps=0, init="uniform").weights
    assert all(len(W.unique(dim=0)) == 4 for W in start.W.flatten(1, 2))
    M1, M2 = (M.flatten(1) * M.shape[-2] ** 0.5 for M in (start.M1, start.M2))
    assert ((M1 - M2).abs().amax(1) > 0.1).all()


def test_a_direct_step_has_the_bits_of_those_on_record():
    """V - (eta G) / ||G||: saturation leaves rounding only, which another order would change."""
    model = Transformer(layers=2)
    batch = batch_for(model)
    before, after = (
        train_layers(batch, model, gradient="direct", steps=steps, lr=0.3) for steps in (40, 41)
    )
    W = before.weights.W.clone().requires_grad_()
    rows = forward(model, Weights(W), batch.X, published=True)[-1].rows
    margins = batch.Y * batch.head.value(rows[:, :, 0], batch.head_parameters)
    (G,) = torch.autograd.grad(before.loss.value(margins).mean(1).sum(), W)
    step = 0.3 * G / G.norm(dim=(-2, -1), keepdim=True)
    assert after.weights.W.equal(before.weights.W - step)


def test_the_mask_excludes_keys():
    """Tokens that are masked out change nothing."""
    model = Transformer(layers=2)
    batch = batch_for(model)
    mask, other = batch.mask.clone(), batch.X.clone()
    mask[..., 2] = False
    other[..., 2, :] *= -1
    first, second = (
        train_layers(dataclasses.replace(batch, X=X, mask=mask), model, steps=20, lr=0.5).snapshots
        for X in (batch.X, other)
    )
    assert first.equal(second)


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_networks_and_trainings_are_refused(message):
    with pytest.raises(ConfigError, match=r"model\.layers=0"):
        Transformer(layers=0)
    model = Transformer(trained="values")
    with pytest.raises(ConfigError, match=message):
        train_layers(batch_for(model), model, **REFUSED[message])
