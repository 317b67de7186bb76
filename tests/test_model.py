import dataclasses

import pytest
import torch
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.training import train
from tests.kkt import assert_near

SHAPE = {"n": 2, "T": 3, "d": 4, "trials": 3, "seed": 5}


def test_self_attention_queries_are_its_own_tokens():
    cross, own = sample(**SHAPE), sample(model="self_attention", query=2, **SHAPE)
    assert own.X.equal(cross.X)
    assert own.Y.equal(cross.Y)
    assert own.Z.equal(cross.X[:, :, 2])
    with pytest.raises(ConfigError, match=r"query=3: must be >= 0 and < T=3"):
        sample(model="self_attention", query=3, **SHAPE)


@pytest.mark.parametrize("causal", [False, True])
def test_every_position_of_a_sequence_is_a_query(causal):
    cross, sequence = sample(**SHAPE), sample(model="sequence", causal=causal, **SHAPE)
    assert (sequence.n, sequence.T) == (6, 3)
    for i in range(2):
        for k in range(3):
            assert sequence.X[:, 3 * i + k].equal(cross.X[:, i])
            assert sequence.Z[:, 3 * i + k].equal(cross.X[:, i, k])
            admissible = [not causal or t <= k for t in range(3)]
            assert sequence.mask[0, 3 * i + k].tolist() == admissible
    assert sequence.head_parameters["v"].equal(cross.head_parameters["v"])
    assert set(sequence.Y.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("head", "parameterization", "compiled"),
    [("linear", "w", True), ("relu", "kq", True), ("quadratic", "kq", False), ("mlp", "w", False)],
)
def test_tokens_that_are_masked_do_not_exist(head, parameterization, compiled):
    """Samples of 1, 2 and 3 tokens: padding changes no bit; and samples of 2 of 3 tokens."""
    batch, tokens = sample(head=head, **{**SHAPE, "n": 3}), torch.arange(3)
    noise = torch.randn(batch.X.shape, generator=Generator().manual_seed(1)).double()
    ragged = (tokens <= tokens[:, None]).expand_as(batch.mask)
    first = (tokens < 2).expand_as(batch.mask)
    padded = (torch.where(mask[..., None], batch.X, 3 * noise) for mask in (ragged, first))
    parts = (batch.X, ragged), (next(padded), ragged), (next(padded), first)
    parts += ((batch.X[:, :, :2].contiguous(), first[:, :, :2]),)
    batches = (dataclasses.replace(batch, X=X, mask=mask) for X, mask in parts)
    a, b, c, alone = (
        train(instances, parameterization, steps=60, compiled=compiled) for instances in batches
    )
    assert a.W.equal(b.W)
    assert a.softmax.equal(b.softmax)
    assert a.softmax[:, -1][~ragged].eq(0).all()
    assert_near(c.W, alone.W, rtol=1e-12, atol=1e-12)
    assert_near(c.softmax[..., :2], alone.softmax, rtol=1e-12, atol=1e-15)
