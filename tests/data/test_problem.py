import dataclasses
import math
import re

import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data.problem import ProblemBatch
from tests.kkt import assert_near
from tests.svm.instances import batch_of


@pytest.fixture
def batch():
    return batch_of(2, 3, 4, 5, seed=11)


def test_scores_are_label_times_head_and_minus_infinity_at_inadmissible_tokens(batch):
    gamma = torch.einsum("bn,bntd,bd->bnt", batch.Y, batch.X, batch.head_parameters["v"])
    assert_near(batch.scores(), gamma, atol=1e-15)
    mask = batch.mask.clone()
    mask[:, :, 0] = False
    masked = dataclasses.replace(batch, mask=mask)
    assert masked.scores()[:, :, 0].eq(-math.inf).all()
    assert masked.scores()[:, :, 1:].equal(batch.scores()[:, :, 1:])


def test_finite_numbers_whose_sum_is_not_are_allowed(batch):
    X = torch.full_like(batch.X, 1e308)
    assert X.sum().isinf()
    assert dataclasses.replace(batch, X=X).X.equal(X)


def test_own_arrays_are_the_batch_that_they_came_from(batch):
    """The parameter of the head is drawn by the seed; `test_globals` has kinds of arrays."""
    own = ProblemBatch.of(batch.X, batch.Z, batch.Y, seed=11)
    for name in ("X", "Z", "Y", "mask", "seeds"):
        assert getattr(own, name).equal(getattr(batch, name))
    assert own.head_parameters["v"].equal(batch.head_parameters["v"])  # sphere draws v first


def test_an_own_array_is_copied_to_float64_and_gets_a_batch_axis(batch):
    X, v = batch.X[0].numpy().astype("float32"), batch.head_parameters["v"][0]
    own = ProblemBatch.of(X, batch.Z[0], batch.Y[0], head="quadratic", lam=0.3, v=v)
    X[:] = 0.0
    assert own.X.equal(batch.X[:1].float().double())
    assert own.head.lam == 0.3
    assert own.head_parameters["v"].equal(v[None])


BAD_ARRAYS = {
    "X: shape (1, 2); must be (B, n, T, d) or (n, T, d)": {"X": [[1.0, 2.0]]},
    "must be an array of numbers": {"X": [[1.0], [2.0, 3.0]]},
    "must be real numbers": {"X": torch.zeros(5, 2, 3, 4, dtype=torch.complex64)},
    "X: inf at index": {"X": torch.full((5, 2, 3, 4), math.inf)},
    "Z: shape (5, 2, 3); must be (5, 2, 4)": {"Z": torch.zeros(5, 2, 3)},
    "Y: label 0.0; must be -1 or": {"Y": torch.zeros(5, 2)},
    "mask: torch.float32; must be torch.bool": {"mask": torch.ones(5, 2, 3)},
    "mask: every sample must have at least one": {"mask": torch.zeros(5, 2, 3).bool()},
    "v: shape (3,); must be (5, 4)": {"v": torch.zeros(3)},
    "V: must be a parameter of the head: v": {"V": torch.zeros(4, 4)},
    "head=cubic: must be linear": {"head": "cubic"},
    "head.lam=-1": {"head": "quadratic", "lam": -1},
    "seed=-1: must be": {"seed": -1},
}


@pytest.mark.parametrize("message", BAD_ARRAYS)
def test_wrong_own_arrays_are_named(batch, message):
    arrays = {"X": batch.X, "Z": batch.Z, "Y": batch.Y} | BAD_ARRAYS[message]
    with pytest.raises(ConfigError, match=re.escape(message)):
        ProblemBatch.of(**arrays)
