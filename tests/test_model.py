import dataclasses

import pytest
import torch
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.training import train

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


def test_causal_query_is_the_prefix_on_its_own():
    """The sample of query k equals cross-attention on tokens 1..k alone, step for step."""
    sequence = sample(model="sequence", causal=True, **{**SHAPE, "n": 1})
    for k in range(3):
        at = slice(k, k + 1)
        parts = {name: getattr(sequence, name)[:, at] for name in ("X", "Z", "Y", "mask")}
        one = dataclasses.replace(sequence, **parts)
        shorter = {name: parts[name][:, :, : k + 1].contiguous() for name in ("X", "mask")}
        prefix = dataclasses.replace(one, **shorter)
        for options in ({"gradient": "direct"}, {"gradient": "log_domain"}):
            a, b = train(one, steps=40, **options), train(prefix, steps=40, **options)
            torch.testing.assert_close(a.W, b.W, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(a.softmax[..., : k + 1], b.softmax, rtol=1e-12, atol=1e-15)
            assert a.softmax[..., k + 1 :].eq(0).all()


@pytest.mark.parametrize(
    ("head", "parameterization", "compiled"),
    [("linear", "w", True), ("relu", "kq", True), ("quadratic", "kq", False), ("mlp", "w", False)],
)
def test_ragged_samples_are_padded_ones_whatever_the_padding(head, parameterization, compiled):
    """Samples of 1, 2 and 3 tokens: the entries of the padding change no bit of the training."""
    batch = sample(head=head, **{**SHAPE, "n": 3})
    mask = torch.arange(3).expand(3, 3, 3) <= torch.arange(3)[:, None]
    noise = torch.randn(batch.X.shape, generator=Generator().manual_seed(1)).double()
    ragged = dataclasses.replace(batch, mask=mask)
    other = dataclasses.replace(ragged, X=torch.where(mask[..., None], batch.X, 3 * noise))
    a, b = (train(one, parameterization, steps=60, compiled=compiled) for one in (ragged, other))
    assert a.W.equal(b.W)
    assert a.softmax.equal(b.softmax)
    assert a.softmax[:, -1][~mask].eq(0).all()
