"""Attention for torch models: its gradient against 40 digits where softmax saturates."""

import math
import random
import re
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mpmath import mp, sqrt
from torch.autograd import grad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import attnsvm
from attnsvm.nn import attention, exact
from tests.kkt import assert_near, normal
from tests.quick import quick, quick_rows
from tests.test_gradient import exact_array, exact_softmax

DOUBLE, SINGLE, HALF = torch.float64, torch.float32, torch.bfloat16
BOUND = {DOUBLE: 1e-12, SINGLE: 1e-3, HALF: 1e-3 + 2**-9}
"""2^-9 is half of what rounding to bfloat16 may take."""

THEIRS = F.scaled_dot_product_attention


def exact_gradients(Q, K, V, R):
    """Return dL/dQ, dL/dK, dL/dV for dL/do = R: q_t = s_t sum_u s_u (g_t - g_u) never cancels."""
    s, g = np.stack([exact_softmax(logits) for logits in Q @ K.T]), R @ V.T
    q = s * ((g[..., None] - g[:, None]) * s[:, None]).sum(-1)
    return q @ K, q.T @ Q, s.T @ R


def error_of(function, *tensors):
    """Return the largest relative error of the gradients in q, k and v, of q, k, v and r."""
    *inputs, r = (x.detach().requires_grad_() for x in tensors)
    gradients = grad(function(*inputs, scale=1.0), inputs, r)
    with mp.workdps(40):
        expected = exact_gradients(*(exact_array(x[None].detach().double()) for x in tensors))
        pairs = [
            (exact_array(x[None].double()) - y, y) for x, y in zip(gradients, expected, strict=True)
        ]
        return max(float(sqrt((x * x).sum() / (y * y).sum())) for x, y in pairs)


def instance(missing, dtype, seed, near=False):
    """Return q, k, v, r; the top key lacks `missing`; near values agree in half of their digits."""
    q, k, v, r = (normal(n, 32, seed=4 * seed + i) for i, n in enumerate((1, 8, 8, 1)))
    first, second = (q @ k.mT)[0].sort(descending=True).values[:2]
    q *= math.log((1 - missing) / missing) / (first - second)
    v = 1 + torch.finfo(dtype).eps ** 0.5 * v if near else v
    return [x.to(dtype) for x in (q, k, v, r)]


SATURATED = [(DOUBLE, 10.0**-n) for n in (1, 3, 6, 10, 16, 20, 100, 200, 300)]
SATURATED += [(dtype, 10.0**-n) for n in (1, 6, 9, 16, 30) for dtype in (SINGLE, HALF)]
DRAWS = quick_rows(*((near, seed) for seed in range(2) for near in (False, True)))


@pytest.mark.parametrize(("near", "seed"), DRAWS)
@pytest.mark.parametrize(("dtype", "missing"), SATURATED)
def test_it_is_exact_where_that_of_torch_has_no_digit(dtype, missing, near, seed):
    tensors = instance(missing, dtype, seed, near)
    assert error_of(attention, *tensors) <= BOUND[dtype]
    if missing < torch.finfo(torch.promote_types(dtype, SINGLE)).eps / 10:
        assert error_of(THEIRS, *tensors) > 0.5


@pytest.mark.parametrize("copied", [True, False])
def test_ties_with_few_differences_at_a_time(copied, monkeypatch):
    """Every key has a copy, or one that differs where q is zero."""
    monkeypatch.setattr(exact, "PAIRS", 3)
    q, k, v, r = instance(1e-100, DOUBLE, 1, near=True)
    K = torch.stack([torch.cat([k, 0 * k], 1), torch.cat([k, (not copied) * k], 1)]).flatten(0, 1)
    V = torch.cat([v, v if copied else v.flip(0)])
    assert error_of(attention, torch.cat([q, 0 * q], 1), K, V, r) <= 1e-12


def test_a_model_of_torch_takes_it_in_place_of_its_own(monkeypatch):
    layer, X = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0), normal(5, 3, 8, seed=0).float()
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
    theirs = grad(layer(X, causal).square().sum(), layer.parameters())
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    torch.testing.assert_close(grad(layer(X, causal).square().sum(), layer.parameters()), theirs)


def test_autocast_rounds_no_products_and_there_are_no_second_derivatives():
    tensors = instance(1e-9, SINGLE, 0)
    with torch.autocast("cpu", HALF):
        assert error_of(attention, *tensors) <= BOUND[SINGLE]
    q, k, v, _ = (x.requires_grad_() for x in tensors)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(attention(q, k, v).sum(), q, create_graph=True)


def drawn(seed):
    """Return query, key and value, a mask and what it stands for, and further options."""
    choice = random.Random(seed).choice
    dtype, batch = choice([DOUBLE, SINGLE, HALF, torch.float16]), choice([(), (1,), (0,), (2, 3)])
    L, S, E, Ev = choice([0, 1, 4]), choice([1, 3, 5]), choice([1, 4]), choice([1, 3])
    tensors = [
        normal(*batch, *shape, seed=seed + at).to(dtype).requires_grad_()
        for at, shape in enumerate([(L, E), (S, E), (S, Ev)])
    ]
    whole, bias = torch.ones(L, S).bool(), normal(L, S, seed=seed + 3).to(dtype)
    masks = [bias > -0.5, ~whole, bias, bias.masked_fill(bias > 0.5, -math.inf), whole[:1], None]
    pairs = [(mask, mask) for mask in masks] + [(causal_upper_left(L, S), whole.tril())]
    if L <= S:  # else torch warns of rows without a key
        pairs += [(causal_lower_right(L, S), whole.tril(S - L))]
    mask = choice(pairs)
    causal = mask[0] is None and choice([True, False])
    return tensors, mask, {"is_causal": causal, "scale": choice([None, 1.0, -0.7, 0.0, 2.5])}


@pytest.mark.parametrize("seed", quick(*range(0, 2000, 16), count=30))
def test_any_arguments_give_what_torch_gives(seed):
    """In float64; a CausalBias is the mask that it stands for."""
    tensors, (mask, plain), options = drawn(seed)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    if plain is not None and plain.dtype != torch.bool:
        plain = plain.double()
    with sdpa_kernel(SDPBackend.MATH):
        theirs = THEIRS(*doubles, plain, **options)
    ours = attention(*tensors, mask, **options)
    assert ours.dtype == tensors[0].dtype
    near = {"rtol": 0.0, "atol": 8 * max(torch.finfo(ours.dtype).eps, 2.0**-46)}
    torch.testing.assert_close(ours.double(), theirs, **near)
    r = normal(*ours.shape, seed=seed + 4).to(ours.dtype)
    for x, y in zip(grad(ours, tensors, r), grad(theirs, doubles, r.double()), strict=True):
        torch.testing.assert_close(x.double(), y, **near | {"atol": 8 * near["atol"]})


@pytest.mark.parametrize(("dtype", "power"), [(SINGLE, 100), (DOUBLE, 1000)])
def test_large_and_small_entries_with_ordinary_logits_change_no_bit(dtype, power):
    """Of queries, of keys, or of both with a small scale; gradients change by their sizes."""
    q, k, v, r = (normal(2, 5, 4, seed=at).to(dtype) for at in range(4))
    c, half = 2.0**power, 2.0 ** (power // 2)
    expected = attention(q, k, v, scale=1.0)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    slopes = grad(attention(*inputs, scale=1.0), inputs, r)
    for *sizes, scale in ((c, 1 / c, 1.0), (1 / c, c, 1.0), (half, half, half**-2)):
        Q, K = ((x * size).detach().requires_grad_() for x, size in zip((q, k), sizes, strict=True))
        result = attention(Q, K, v, scale=scale)
        assert torch.equal(result, expected)
        for x, y, size in zip(grad(result, (Q, K, v), r), slopes, (*sizes, 1.0), strict=True):
            assert_near(x * size, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("big", [1e25, 3e38])
@pytest.mark.parametrize("small", [1e-38, 1e-20, 1e-6])
def test_small_entries_beside_large_ones_count(big, small):
    """Those that meet zeros, and those that meet small ones."""
    q, v = torch.tensor([[[big, small]]]), torch.eye(4)[None]
    rows = [[0.0, 1 / small], [0.0, 2 / small], [1 / big, 0.0], [-1 / big, 1 / small]]
    k = torch.tensor([rows])
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert_near(attention(q, k, v).double(), expected, rtol=1e-6)


def test_keys_and_queries_that_are_not_finite_give_what_torch_gives():
    """A key of inf with logit -inf gets no attention; inf - inf and a logit of inf give NaN."""
    values = [-math.inf, -2.0, 1.0, math.inf, math.nan]
    ends = torch.tensor([*product(values, values)], dtype=DOUBLE)
    v = normal(4, 3, seed=0)
    keys = torch.cat([ends[:, None], normal(3, 2, seed=2).expand(25, 3, 2)], 1)
    for rows, k in product((ends, normal(5, 2, seed=1)), (keys, ends[:, None].expand(25, 4, 2))):
        with sdpa_kernel(SDPBackend.MATH):
            theirs = THEIRS(rows, k, v, scale=1.0)
        torch.testing.assert_close(attention(rows, k, v, scale=1.0), theirs, equal_nan=True)
    q, k = torch.tensor([[-1.0, 0.5]]), torch.tensor([[math.inf, 1.0], [1.0, 1.0], [0.5, 2.0]])
    assert attention(q, k, v[:3].float()).isfinite().all()


KINDS = (SINGLE, HALF, torch.float16)


@pytest.mark.parametrize(
    "kinds", [kinds for kinds in product(KINDS, repeat=3) if len({*kinds}) > 1]
)
def test_mixed_dtypes_under_autocast_give_its_own(kinds):
    tensors = [normal(2, 3, 4, seed=at).to(kind) for at, kind in enumerate(kinds)]
    with torch.autocast("cpu", HALF):
        ours, theirs = attention(*tensors), THEIRS(*tensors)
        assert ours.dtype == theirs.dtype == HALF
        assert_near(ours, theirs, atol=2.0**-5)
        assert attention(tensors[0].double(), *tensors[1:]).dtype == DOUBLE
    assert attention(*tensors).dtype == SINGLE


ONES = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": ONES.int()}, "torch.int32 (2, 3, 4)"),
        ({"key": ONES[..., :2]}, "(2, 3, 2)"),
        ({"value": torch.ones(5, 3, 4)}, "must be floating point (..., L, E)"),
        ({"attn_mask": ONES}, "or bool (..., L, S)"),
        ({"attn_mask": ONES[:, :, :3], "is_causal": True}, "attn_mask None"),
        ({"dropout_p": 0.1}, "dropout_p=0.1"),
    ],
)
def test_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        attnsvm.nn.attention(**{"query": ONES, "key": ONES, "value": ONES} | change)
