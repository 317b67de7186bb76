import dataclasses
import math

import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.problem import ProblemBatch
from attnsvm.training import train


@pytest.fixture
def batch():
    return sample("sphere", n=2, T=3, d=4, trials=5, seed=11)


def test_scores_are_label_times_head_and_minus_infinity_at_inadmissible_tokens(batch):
    gamma = torch.einsum("bn,bntd,bd->bnt", batch.Y, batch.X, batch.head_parameters["v"])
    torch.testing.assert_close(batch.scores(), gamma, rtol=0, atol=1e-15)
    mask = batch.mask.clone()
    mask[:, :, 0] = False
    masked = dataclasses.replace(batch, mask=mask)
    assert masked.scores()[:, :, 0].eq(-math.inf).all()
    assert masked.scores()[:, :, 1:].equal(batch.scores()[:, :, 1:])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", torch.zeros(5, 2, 3), r"X: shape \(5, 2, 3\); must be \(B, n, T, d\)"),
        ("X", torch.zeros(5, 2, 3, 4, dtype=torch.float32), "X: torch.float32; must be"),
        ("Z", torch.zeros(5, 2, 3, dtype=torch.float64), r"Z: shape \(5, 2, 3\); must be"),
        ("Z", torch.full((5, 2, 4), math.nan, dtype=torch.float64), "Z: nan at index"),
        ("X", torch.full((5, 2, 3, 4), math.inf, dtype=torch.float64), "X: inf at index"),
        ("Y", torch.full((5, 2), 0.5, dtype=torch.float64), "Y: label 0.5; must be -1 or"),
        ("mask", torch.zeros(5, 2, 3).bool(), "mask: every sample must have at least one admissib"),
        ("seeds", torch.zeros(4, dtype=torch.int64), r"seeds: shape \(4,\); must be \(5,\)"),
        ("head_parameters", {"v": torch.zeros(4, 4, dtype=torch.float64)}, "head parameter v"),
    ],
)
def test_bad_arrays_are_named(batch, name, value, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(batch, **{name: value})


def test_finite_numbers_whose_sum_is_not_are_allowed(batch):
    X = torch.full_like(batch.X, 1e308)
    assert X.sum().isinf()
    assert dataclasses.replace(batch, X=X).X.equal(X)


def test_own_arrays_are_the_batch_that_they_came_from(batch):
    """Tensors, NumPy arrays and lists; with the parameter of the head, and drawn by the seed."""
    given = batch.X, batch.Z, batch.Y
    v = batch.head_parameters["v"]
    for convert in (lambda t: t, lambda t: t.numpy(), lambda t: t.tolist()):
        more = {"mask": convert(batch.mask), "v": convert(v)}
        made = ProblemBatch.of(*map(convert, given), **more, seed=11)
        for name in ("X", "Z", "Y", "mask", "seeds"):
            assert getattr(made, name).equal(getattr(batch, name))
        assert made.head_parameters["v"].equal(v)
        assert made.scores().equal(batch.scores())
    drawn = ProblemBatch.of(*given, seed=11)  # sphere draws v first, from the same seed
    assert drawn.head_parameters["v"].equal(v)
    assert drawn.mask.all()


def test_an_own_array_is_copied_to_float64_and_gets_a_batch_axis(batch):
    X = batch.X[0].numpy().astype("float32")
    made = ProblemBatch.of(X, batch.Z[0], batch.Y[0], v=batch.head_parameters["v"][0])
    assert made.X.shape == (1, 2, 3, 4)
    X[:] = 0.0
    assert made.X.equal(batch.X[:1].float().double())


@pytest.mark.parametrize("name", ["linear", "relu", "quadratic", "mlp"])
def test_own_arrays_with_every_head_can_be_trained(batch, name):
    made = ProblemBatch.of(batch.X, batch.Z, batch.Y, head=name)
    path = train(made, steps=20)
    assert (path.loss[:, -1] < path.loss[:, 0]).all()
    assert ProblemBatch.of(batch.X, batch.Z, batch.Y, head=made.head).scores().equal(made.scores())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": [[1.0, 2.0]]}, r"X: shape \(1, 2\); must be \(B, n, T, d\) or \(n, T, d\)"),
        ({"X": "tokens"}, "X: .*; must be an array of numbers"),
        ({"X": [[1.0], [2.0, 3.0]]}, "X: .*; must be an array of numbers"),
        ({"Z": torch.zeros(5, 2, 3)}, r"Z: shape \(5, 2, 3\); must be \(5, 2, 4\)"),
        ({"Y": torch.zeros(5, 2)}, "Y: label 0.0; must be -1 or"),
        ({"X": torch.zeros(5, 2, 3, 4, dtype=torch.complex64)}, "X: .*; must be real numbers"),
        ({"mask": torch.ones(5, 2, 3)}, "mask: torch.float32; must be torch.bool"),
        ({"v": torch.zeros(3)}, r"v: shape \(3,\); must be \(5, 4\)"),
        ({"V": torch.zeros(4, 4)}, "V: must be a parameter of the head: v"),
        ({"head": "cubic"}, "head=cubic: must be linear"),
    ],
)
def test_wrong_own_arrays_are_named(batch, changed, message):
    given = {"X": batch.X, "Z": batch.Z, "Y": batch.Y} | changed
    with pytest.raises(ConfigError, match=message):
        ProblemBatch.of(**given)


def test_own_arrays_take_options_of_the_head_by_name():
    X, Z, Y = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5), torch.ones(2, 3)
    v = torch.ones(5, dtype=torch.float64)
    batch = ProblemBatch.of(X, Z, Y, head="quadratic", lam=0.3, v=v)
    assert batch.head.lam == 0.3
    assert batch.head_parameters["v"].equal(v.expand(2, 5))
    with pytest.raises(ConfigError, match=r"head\.lam=-1"):
        ProblemBatch.of(X, Z, Y, head="quadratic", lam=-1)
    with pytest.raises(ConfigError, match="lam: must be a parameter of the head: v"):
        ProblemBatch.of(X, Z, Y, lam=0.3)
    with pytest.raises(ConfigError, match="seed=-1: must be"):
        ProblemBatch.of(X, Z, Y, seed=-1)
