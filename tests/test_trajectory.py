from __future__ import annotations

import dataclasses

import pytest
import torch

from attnsvm.comparison import one_minus_correlation
from attnsvm.data import sample
from attnsvm.selection import select_tokens
from attnsvm.svm import solve_svm
from attnsvm.training import chunk_size, train, train_chunks
from attnsvm.trajectory import TrainingStatus

FIELDS = ("snapshots", "loss", "softmax", "log_softmax", "W", "diverged", "direction_error")


@pytest.fixture(scope="module")
def batch():
    return sample("sphere", n=6, T=8, d=10, trials=30)


@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", [1, 7, 30])
def test_chunks_are_the_whole_bit_for_bit(batch, parameterization, fused, size):
    options = {"steps": 60, "record_every": 20, "fused": fused}
    whole = train(batch, parameterization, **options)
    parts = list(train_chunks(batch, parameterization, size=size, **options))
    assert [part.start for part, _ in parts] == list(range(0, 30, size))
    for name in FIELDS:
        assert torch.cat([getattr(path, name) for _, path in parts]).equal(getattr(whole, name)), (
            name
        )


def test_chunks_fit_into_a_gibibyte(batch):
    size = chunk_size(batch, 101)
    assert 8 * size * 101 * (100 + 48) < 2**30
    assert size > 5000
    assert [part.stop for part, _ in train_chunks(batch, steps=1)] == [30]


def test_exact_training_reaches_the_direction_of_the_svm_and_direct_training_stalls(batch):
    """Medians of 1 - correlation at 2000 steps: 2e-6 with growing steps, 3e-3 when stalled."""
    exact, direct = train(batch, growth=0.05), train(batch, gradient="direct")
    distances = []
    for path in (exact, direct):
        pick = select_tokens(batch, path)
        svm = solve_svm(batch.X, batch.Z, pick.selected, norm="frobenius")
        distances.append(one_minus_correlation(path.W, svm.W).nanmedian().item())
    assert distances[0] <= 2e-6
    assert distances[1] >= 2e-3
    assert set(exact.status()) == {TrainingStatus.SATURATED}
    assert set(direct.status()) == {TrainingStatus.STALLED}
    assert exact.direction_error.max() < 1e-10
    assert direct.direction_error.min() > 0.01


def test_short_training_is_unsaturated(batch):
    assert set(train(batch, steps=10, init="zero").status()) == {TrainingStatus.UNSATURATED}


def test_a_strong_ridge_makes_the_optimum_finite(batch):
    path = train(batch, optimizer="gd", lr=1.0, ridge=0.05, steps=400)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}


def test_infinite_weights_are_diverged(batch):
    path = train(batch, steps=20)
    W = path.W.clone()
    broken = dataclasses.replace(path, W=W, diverged=torch.arange(30) == 4)
    assert broken.status()[4] is TrainingStatus.DIVERGED
    assert TrainingStatus.DIVERGED not in broken.take(slice(4)).status()


def test_a_trajectory_of_some_instances(batch):
    path = train(batch, "kq", steps=20)
    some = path.take(torch.tensor([3, 8]))
    assert some.K.equal(path.K[[3, 8]])
    assert some.steps.equal(path.steps)
    assert some.head_parameters["v"].equal(path.head_parameters["v"][[3, 8]])


def test_every_status_says_what_to_do():
    assert all(status.message for status in TrainingStatus)
