"""Attention for torch models: its gradient against 40 digits where softmax saturates."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from mpmath import exp, matrix, mp, norm
from torch.autograd import grad, gradcheck

import attnsvm
from attnsvm.nn import attention, exact
from tests.quick import quick_rows

DOUBLE, SINGLE, HALF = torch.float64, torch.float32, torch.bfloat16

BOUND = {DOUBLE: 1e-12, SINGLE: 1e-3, HALF: 1e-3 + 2**-9}
"""Of relative errors; rounding a result to bfloat16 takes 2^-9 by itself."""


def exactly(x):
    return matrix(x.double().tolist())


def exact_softmax(Q, K):
    rows = [[exp(one - max(row)) for one in row] for row in (Q * K.T).tolist()]
    return matrix([[one / sum(row) for one in row] for row in rows])


def exact_gradients(Q, K, V, R):
    """Return dL/dQ, dL/dK, dL/dV for dL/do = R: q_t = s_t sum_u s_u (g_t - g_u) never cancels."""
    s, g, keys = exact_softmax(Q, K), R * V.T, range(K.rows)
    q = matrix([[s[i, t] * sum(s[i, u] * (g[i, t] - g[i, u]) for u in keys) for t in keys]
                for i in range(Q.rows)])  # fmt: skip
    return q * K, q.T * Q, s.T * R


def error(found, wanted):
    """Return the largest || found - wanted || / || wanted || of several arrays."""
    pairs = zip(found, wanted, strict=True)
    return max(float(norm(exactly(x) - y) / norm(y)) for x, y in pairs)


def normal(*shape, seed, dtype=DOUBLE):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return drawn.to(dtype).requires_grad_()


def instance(missing, dtype, seed, near=False):
    """Return q (1, E), k, v (S, E), r (1, E): the top key lacks `missing` of the attention.

    Near values agree in half of their digits.
    """
    q, k, v, r = (normal(n, 32, seed=4 * seed + i).detach() for i, n in enumerate((1, 8, 8, 1)))
    first, second = (q @ k.mT)[0].sort(descending=True).values[:2]
    q *= math.log((1 - missing) / missing) / (first - second)
    v = 1 + torch.finfo(dtype).eps ** 0.5 * v if near else v
    return [x.to(dtype).requires_grad_() for x in (q, k, v, r)]


def error_of(function, q, k, v, r):
    """Return the relative error of the gradients in q, k and v."""
    found = grad(function(q, k, v, scale=1.0), (q, k, v), r)
    with mp.workdps(40):
        return error(found, exact_gradients(*map(exactly, (q, k, v, r))))


SATURATED = [(DOUBLE, 10.0**-n) for n in (1, 3, 6, 10, 16, 30, 100, 200, 300)]
SATURATED += [(dtype, 10.0**-n) for n in (1, 6, 9, 16, 30) for dtype in (SINGLE, HALF)]


@pytest.mark.parametrize(
    ("near", "seed"), quick_rows(*((near, seed) for seed in range(5) for near in (True, False)))
)
@pytest.mark.parametrize(("dtype", "missing"), SATURATED)
def test_the_gradient_is_exact_however_saturated(dtype, missing, near, seed):
    assert error_of(attention, *instance(missing, dtype, seed, near)) <= BOUND[dtype]


@pytest.mark.parametrize(("dtype", "missing"), [(DOUBLE, 1e-20), (SINGLE, 1e-9), (HALF, 1e-9)])
def test_that_of_torch_is_not(dtype, missing):
    """A twin of the test above."""
    assert error_of(F.scaled_dot_product_attention, *instance(missing, dtype, 0)) > 0.5


@pytest.mark.parametrize("copied", [True, False])
def test_ties(copied, monkeypatch):
    """Every key has a copy, or one that differs where q is zero; few differences at a time."""
    monkeypatch.setattr(exact, "PAIRS", 3)
    q, k, v, r = (x.detach() for x in instance(1e-100, DOUBLE, 1, near=True))
    q, zero = torch.cat([q, 0 * q], 1), 0 * k
    k = torch.cat([torch.cat([k, zero], 1), torch.cat([k, zero if copied else k], 1)])
    v = torch.cat([v, v if copied else v.flip(0)])
    assert error_of(attention, *(x.requires_grad_() for x in (q, k, v, r))) <= 1e-12


def network(X, W, attend):
    """Return the rows after two layers with residual connections."""
    for layer in W:
        X = X + attend(X @ layer.mT, X, X, scale=1.0)
    return X


@pytest.mark.parametrize("attend", [attention, F.scaled_dot_product_attention])
@pytest.mark.parametrize(("dtype", "size"), [(DOUBLE, 10.0), (SINGLE, 3.0)])
def test_two_layers(dtype, size, attend):
    """Attention lacks 1e-2 to 1e-30 and less of 1. Torch's own gradient has no digit of it."""
    X, r = (normal(4, 5, seed=seed).to(dtype) for seed in (1, 3))
    W = (size * normal(2, 5, 5, seed=2).detach()).to(dtype).requires_grad_()
    (found,) = grad(network(X, W, attend), W, r)
    with mp.workdps(40):
        W1, W2, rows, R = exactly(W[0]), exactly(W[1]), exactly(X), exactly(r)
        after = rows + exact_softmax(rows * W1.T, rows) * rows
        q, k, v = exact_gradients(after * W2.T, after, after, R)
        below, _, _ = exact_gradients(rows * W1.T, rows, rows, R + q * W2 + k + v)
        found_error = error(found, (below.T * rows, q.T * after))
    assert found_error <= BOUND[dtype] if attend is attention else found_error > 0.5


# --- as torch's function --------------------------------------------------------------------------

MASKS = {
    "none": {},
    "scale": {"scale": 0.3},
    "causal": {"is_causal": True},
    "keys": {"attn_mask": torch.arange(6)[None] < 4},
    "a query without a key": {"attn_mask": torch.ones(5, 6).tril(-1).bool()},
    "bias": {"attn_mask": normal(3, 1, 6, seed=9)},
}


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_unsaturated_it_is_that_of_torch(options):
    """Leading axes broadcast."""
    shapes = (2, 3, 5, 4), (3, 6, 4), (2, 1, 6, 7)
    inputs = [normal(*shape, seed=at) for at, shape in enumerate(shapes)]
    inputs += [
        mask for mask in options.values() if isinstance(mask, torch.Tensor) and mask.requires_grad
    ]
    theirs = F.scaled_dot_product_attention(
        *(x.expand(2, 3, -1, -1) for x in inputs[:3]), **options
    )
    r = normal(2, 3, 5, 7, seed=5)
    torch.testing.assert_close(attention(*inputs[:3], **options), theirs)
    torch.testing.assert_close(
        grad(attention(*inputs[:3], **options), inputs, r), grad(theirs, inputs, r)
    )
    assert gradcheck(
        lambda *x: attention(*x[:3], **options | ({"attn_mask": x[3]} if x[3:] else {})), inputs
    )


def test_a_model_of_torch_takes_it_in_place_of_its_own(monkeypatch):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, dtype=DOUBLE)
    X = normal(3, 5, 8, seed=0)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=DOUBLE)
    theirs = grad(layer(X, causal).square().sum(), layer.parameters())
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    torch.testing.assert_close(grad(layer(X, causal).square().sum(), layer.parameters()), theirs)


def test_products_are_not_rounded_under_autocast():
    given = instance(1e-9, SINGLE, 0)
    with torch.autocast("cpu", torch.bfloat16):
        assert error_of(attention, *given) <= 1e-3


def test_there_are_no_second_derivatives():
    q, k, v, _ = instance(0.1, DOUBLE, 0)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(attention(q, k, v).sum(), q, create_graph=True)


ONES = torch.ones(2, 3, 4)
REFUSED = [
    ({"query": ONES.int()}, "torch.int32 (2, 3, 4)"),
    ({"query": ONES[0, 0]}, "torch.float32 (4,)"),
    ({"key": ONES[..., :2]}, "(2, 3, 2)"),
    ({"value": ONES[:, :2]}, "must be floating point (..., L, E)"),
    ({"value": torch.ones(5, 3, 4)}, "(5, 3, 4)"),
    ({"attn_mask": ONES}, "(2, 3, 4)"),
    ({"attn_mask": ONES[:, :, :3].int()}, "or bool"),
    ({"attn_mask": ONES[:, :, :3], "is_causal": True}, "attn_mask None"),
    ({"dropout_p": 0.1}, "dropout_p=0.1"),
]


@pytest.mark.parametrize(("change", "told"), REFUSED)
def test_refused(change, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        attnsvm.nn.attention(**{"query": ONES, "key": ONES, "value": ONES} | change)
