"""Gradients in every matrix of a network against arithmetic of hundreds of digits."""

import math

import numpy as np
import pytest
import torch
from mpmath import exp, log, log1p, mpf, sqrt, workdps

from attnsvm import sample, softmax_exact
from attnsvm.loss import Logistic
from attnsvm.model import Transformer
from attnsvm.parameterization import W as Combined
from attnsvm.transformer.network import forward
from attnsvm.transformer.trained import TrainedNetwork, in_weights
from tests.kkt import normal
from tests.quick import quick

n, T, d = 1, 3, 2
exact, exact_exp, exact_log1p = (np.vectorize(f, otypes=[object]) for f in (mpf, exp, log1p))


def drawn(model, norm, seed):
    """Return a network and its weights, those of attention of this norm."""
    batch = sample("sphere", model=model, n=n, T=T, d=d, trials=1, seed=seed)
    net = TrainedNetwork(model, batch, Logistic(), Combined())
    W = normal(*net.drawn.W.shape, seed=seed)
    W = W / W.norm(dim=(-2, -1), keepdim=True) * norm
    return net, net.drawn.replaced({"W": W})


def exact_risk(model, W, V, M1, M2, X, Y, v):
    """Return the risk of one instance by the definition, in the digits that are set."""
    keys = np.tril(np.ones((T, T), bool)) if model.causal else np.ones((T, T), bool)
    margins = []
    for x, y in zip(X, Y, strict=True):
        for layer in range(model.layers):
            o = 0 * x
            for h in range(model.heads):
                logits = x @ (x @ W[layer, h].T).T
                logits = np.where(keys, logits.T, -mpf("inf"))
                e = exact_exp(logits - logits.max(1, keepdims=True))
                mean = e / e.sum(1, keepdims=True) @ x
                o += (mean if V is None else mean @ V[layer, h]) / sqrt(model.heads)
            x = (x + o) / sqrt(2) if model.residual else o
            if model.mlp:
                x = (x + np.maximum(x @ M1[layer], mpf(0)) @ M2[layer]) / sqrt(2)
        rows = {"every": x, "mean": x.sum(0) / T, "first": x[0]}[model.readout]
        margins.append(y * (rows @ v))
    return exact_log1p(exact_exp(-np.stack(margins))).mean()


def exact_parts(net, weights):
    """Return W, V, M1, M2, X, Y and v of the instance as exact numbers."""
    matrices = (getattr(weights, name) for name in ("W", "V", "M1", "M2"))
    parts = *matrices, net.X, net.Y, weights.head["v"]
    return [None if part is None else exact(part[0].numpy()) for part in parts]


def assert_exact(net, weights, digits, tolerance):
    """Check the directions of all gradients, and that of W by its adjoints, with its size."""
    adjoints, layers = net.adjoints(weights), forward(net.model, weights, net.X)
    with workdps(digits):
        parts = exact_parts(net, weights)
        of = dict(zip(("W", "V", "M1", "M2", "", "", "head_v"), parts, strict=True))
        for name, gradient in adjoints.gradients.items():
            for at in np.ndindex(of[name].shape[: max(of[name].ndim - 2, 0)]):
                expected, ours = (
                    derivatives(net.model, parts, of[name][at], digits),
                    gradient[0][at],
                )
                if not expected.any():
                    assert not ours.any()  # no hidden unit is active
                    continue
                bound = tolerance if name == "W" else min(tolerance, 1e-11)
                assert direction_error(ours, expected) <= bound
                if name == "W":
                    P, scale = adjoints.P[:, at[0]], adjoints.P_exponent[:, at[0]]
                    G, scale = (part[0, at[1]] for part in in_weights(P, scale, layers[at[0]].X))
                    assert direction_error(G, expected) <= tolerance
                    log_size = scale + G.norm().log()
                    assert abs(log(exact_size(expected)) - mpf(log_size.item())) <= 1e-9
    return adjoints


def derivatives(model, parts, matrix, digits):
    """Return the gradient of the risk in one of the matrices in `parts`, by central differences."""
    eps = mpf(10) ** (-digits // 3)
    gradient = 0 * matrix
    for at in np.ndindex(*matrix.shape):
        middle, ends = matrix[at], []
        for sign in (1, -1):
            matrix[at] = middle + sign * eps
            ends.append(exact_risk(model, *parts))
        matrix[at] = middle
        gradient[at] = (ends[0] - ends[1]) / (2 * eps)
    return gradient


def direction_error(ours, matrix):
    """Return the largest error of an entry of ours / ||ours||, matrix exact."""
    return abs(matrix / exact_size(matrix) - exact((ours / ours.norm()).numpy())).max()


def exact_size(matrix):
    return sqrt((matrix * matrix).sum())


NETWORKS = quick(
    {"heads": 2, "values": "orthogonal", "mlp": 3, "readout": "mean", "trained": "all"},
    {"residual": False, "heads": 2, "values": "orthogonal", "readout": "every"},
    {"layers": 3, "causal": True, "readout": "mean"},
    {"layers": 1, "residual": False},
    {},
    {"layers": 3, "residual": False},
    {"residual": False, "causal": True, "readout": "every"},
    {"heads": 2, "values": "orthogonal"},
    {"layers": 3, "residual": False, "mlp": 3, "readout": "every"},
    {"residual": False, "values": "orthogonal", "mlp": 2, "readout": "every", "trained": "all"},
    {"causal": True, "mlp": 3, "readout": "mean", "trained": "all"},
    count=3,
)


@pytest.mark.parametrize("norm", quick(1, 30, 250))
@pytest.mark.parametrize("options", NETWORKS)
def test_gradients_are_exact(options, norm):
    model = Transformer(**options)
    net, weights = drawn(model, norm, seed=model.layers + norm)
    # the gradient is not below e^(-2 norm layers)
    assert_exact(net, weights, 60 + int(1.5 * norm * model.layers), 1e-9)


@pytest.mark.full
@pytest.mark.parametrize("off", [None, 0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("seed", [7, 20])
def test_rows_that_swap_are_copies_with_a_residual_connection(seed, off):
    """The rounding of such rows would show: an error of 4e-10 for seed 7, 4e-11 for seed 20.

    Values `off` the identity by little keep them near.
    """
    model = Transformer(layers=2, readout="mean")
    net, weights = drawn(model, 1, seed)
    W = weights.W * torch.tensor([40.0, 500.0], dtype=torch.float64)[None, :, None, None, None]
    V = None if off is None else torch.eye(d).double() + off * normal(1, 2, 1, d, d, seed=seed)
    weights = weights.replaced({"W": W, "V": V})
    top = forward(model, weights, net.X)[0].log_s[0, 0, 0].argmax(-1).tolist()
    assert any(top[top[k]] == k and top[k] != k for k in range(T))
    assert_exact(net, weights, 960, 1e-12)


def test_a_query_of_zeros_does_not_hide_the_others():
    """Its adjoint is e^700 times theirs and more, and adds nothing to the gradient."""
    model = Transformer(layers=1, residual=False, readout="mean")
    net, weights = drawn(model, 2500, seed=5)
    net.X[0, 0, 0] = 0
    adjoints = assert_exact(net, weights, 2500, 1e-12)
    assert adjoints.P_exponent[0, 0, 0, 0, 1:].max() < -708


def test_the_softmax_for_torch_has_the_digits_that_its_own_has_not():
    """dL/dlogit_1 = s_1 (g_1 - g_0) with s_1 = e^-100, and the opposite for logit_0."""
    logits = torch.tensor([200.0, 100.0, 0.0], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([0.3, 0.1, -0.7], dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad((softmax(logits) * g).sum(), logits)[0].tolist()
        for softmax in (softmax_exact, lambda x: x.softmax(-1))
    )
    expected = 0.2 * math.exp(-100)
    assert ours[:2] == pytest.approx([expected, -expected], rel=1e-14)
    assert abs(theirs[0] - expected) > 0.1 * expected
