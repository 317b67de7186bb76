from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data import sample


@pytest.fixture
def batch():
    return sample("sphere", n=2, T=3, d=4, trials=5, seed=11)


def test_axes_and_dtypes(batch):
    assert (batch.B, batch.n, batch.T, batch.d) == (5, 2, 3, 4)
    assert batch.X.dtype == batch.Z.dtype == batch.Y.dtype == torch.float64
    assert batch.seeds.tolist() == [11, 12, 13, 14, 15]


def test_scores_are_label_times_head(batch):
    gamma = torch.einsum("bn,bntd,bd->bnt", batch.Y, batch.X, batch.head_parameters["v"])
    torch.testing.assert_close(batch.scores(), gamma, rtol=0, atol=1e-15)


def test_scores_of_inadmissible_tokens_are_minus_infinity(batch):
    mask = batch.mask.clone()
    mask[:, :, 0] = False
    masked = dataclasses.replace(batch, mask=mask)
    assert masked.scores()[:, :, 0].eq(-math.inf).all()
    assert masked.scores()[:, :, 1:].equal(batch.scores()[:, :, 1:])


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([1, 2]), torch.arange(5) % 3 == 1])
def test_take_keeps_instances_whole(batch, index):
    part = batch.take(index)
    assert part.X.equal(batch.X[index])
    assert part.head_parameters["v"].equal(batch.head_parameters["v"][index])
    assert part.seeds.equal(batch.seeds[index])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", torch.zeros(5, 2, 3), r"X: shape \(5, 2, 3\); must be \(B, n, T, d\)"),
        ("X", torch.zeros(5, 2, 3, 4, dtype=torch.float32), "X: torch.float32; must be"),
        ("Z", torch.zeros(5, 2, 3, dtype=torch.float64), r"Z: shape \(5, 2, 3\); must be"),
        ("Z", torch.full((5, 2, 4), math.nan, dtype=torch.float64), "Z: nan at index"),
        ("X", torch.full((5, 2, 3, 4), math.inf, dtype=torch.float64), "X: inf at index"),
        ("Y", torch.full((5, 2), 0.5, dtype=torch.float64), "Y: label 0.5; must be -1 or"),
        (
            "mask",
            torch.zeros(5, 2, 3, dtype=torch.bool),
            "mask: every sample must have at least one admissible token",
        ),
        ("seeds", torch.zeros(4, dtype=torch.int64), r"seeds: shape \(4,\); must be \(5,\)"),
        ("head_parameters", {"v": torch.zeros(4, 4, dtype=torch.float64)}, "head parameter v"),
    ],
)
def test_bad_arrays_are_named(batch, name, value, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(batch, **{name: value})
