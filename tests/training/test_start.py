"""Initial weights: from a file, at an angle to an SVM, balanced, aligned with the gradient."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnsvm import (
    experiment,
    in_cone,
    one_minus_correlation,
    optimal_tokens,
    sample,
    solve_svm,
    train,
)
from attnsvm.config import ConfigError
from attnsvm.svm import SvmStatus
from tests.config.test_config import composed

SHAPE = {"n": 4, "T": 5, "d": 6, "trials": 5}
START = {"steps": 0, "compiled": False}


CONES = [
    *(("w", "normalized_gd", "frobenius", angle) for angle in (0.0, 45.0, 179.0)),
    ("kq", "normalized_gd", "nuclear", 45.0),
    ("w", "sign_gd", "max", 0.0),
]


@pytest.mark.parametrize(("rule", "optimizer", "norm", "angle"), CONES)
def test_a_cone_start_has_its_angle_norm_and_rank(rule, optimizer, norm, angle):
    batch = sample(**SHAPE)
    options = {"init": "cone", "init_angle": angle, "init_scale": 3.0}
    path = train(batch, rule, optimizer, **options, **START)
    W_svm = solve_svm(batch.X, batch.Z, optimal_tokens(batch)[0], norm).W
    half_chord = (one_minus_correlation(path.W, W_svm) / 2).sqrt()
    expected = torch.full((5,), angle).double()
    assert_close(torch.rad2deg(2 * half_chord.asin()), expected, rtol=1e-10, atol=1e-6)
    assert_close(path.W.norm(dim=(1, 2)), 0 * expected + 3)
    if rule == "kq":
        assert_close(gram(path.K), gram(path.Q), rtol=0, atol=1e-13)
        low = train(batch, rule, m=2, init="cone", **START)
        assert low.diverged.sum() < 4
        assert (torch.linalg.matrix_rank(low[~low.diverged].W, rtol=1e-10) == 2).all()


@pytest.mark.full
def test_locally_optimal_tokens_attract_and_others_do_not():
    """All 16 selections of 20 instances; local convergence as in arXiv 2308.16898.

    Tokens are locally optimal if they score higher than all tokens on the margin of their SVM.
    """
    tokens = torch.tensor(list(itertools.product(range(4), repeat=2))).repeat(20, 1)
    batch = sample(n=2, T=4, d=3, trials=20).take(torch.arange(20).repeat_interleave(16))
    solution = solve_svm(batch.X, batch.Z, tokens)
    scores = batch.scores()
    above = scores.gather(-1, tokens.unsqueeze(-1)) > scores
    local = (above | ~solution.support).all(-1).all(-1)
    solved = solution.having(SvmStatus.solved)
    optimal = (tokens == optimal_tokens(batch)[0]).all(-1)
    for kind, stay in ((solved & local & ~optimal, True), (solved & ~local, False)):
        index = kind.nonzero()[:, 0]
        size = 300 * solution.objective[index, None, None]
        W0 = size * in_cone(batch.take(index), tokens[index], angle=1.0)
        path = train(batch.take(index), init=W0, steps=6000, growth=0.01, record="geometric")
        ends = (path.log_softmax.argmax(-1) == tokens[index]).all(-1)
        assert len(index) > 10
        assert (ends == stay).all()
        if stay:
            assert one_minus_correlation(path.W, solution.W[index]).max() < 1e-4


def test_an_instance_without_a_solved_svm_is_a_counted_row():
    words = "data.n=8 data.T=5 data.d=2 trials=6 optimizer.steps=20 optimizer.init=cone"
    trials = experiment.run(composed(words)).trials
    assert len(trials) == 6
    rejected = trials[trials["status"] == "rejected"]
    rows = experiment.results.EXCLUSIONS
    assert {*rejected["reason"]} == {r["reason"] for r in rows if r["name"] == "startless"}
    assert {*rejected["training"]} == {"diverged"}


@pytest.mark.parametrize("m", [None, 2])
def test_balanced_factors_have_the_product_of_small_ones(m):
    options = {"m": m, "init_scale": 0.3, **START}
    small, balanced = (
        train(sample(**SHAPE), "kq", init=init, **options) for init in ("small", "balanced")
    )
    assert_close(balanced.W, small.W, rtol=0, atol=1e-15)
    assert_close(gram(balanced.K), gram(balanced.Q), rtol=0, atol=1e-15)
    assert (gram(small.K) - gram(small.Q)).abs().max() > 1e-3


def gram(V):
    return V.mT @ V


@pytest.mark.parametrize(
    ("head", "loss"), [("linear", "logistic"), ("relu", "squared"), ("mlp", "logistic")]
)
def test_aligned_weights_are_the_first_step_from_zero(head, loss):
    """The factors are the nearest of their rank, and balanced."""
    batch, options = sample(head=head, **SHAPE), {"init": "aligned", "init_scale": 0.7, **START}
    aligned = train(batch, loss=loss, **options)
    step = train(batch, loss=loss, init="zero", lr=0.7, steps=1, compiled=False)
    assert_close(aligned.W, step.W, rtol=1e-12, atol=1e-14)
    path = train(batch, "kq", loss=loss, m=2, **options)
    U, sigma, Vh = torch.linalg.svd(step.W)
    nearest = U[:, :, :2] * sigma[:, None, :2] @ Vh[:, :2]
    assert_close(path.W, nearest, rtol=0, atol=1e-12)
    assert_close(gram(path.K), torch.diag_embed(sigma[:, :2]), rtol=0, atol=1e-12)


def saved(folder, **arrays):
    np.savez(folder / "start.npz", **arrays)
    return str(folder / "start.npz")


def test_weights_of_a_file_are_found_by_seed(tmp_path):
    W0 = np.random.default_rng(0).normal(size=(3, 6, 6))
    batch = sample(**{**SHAPE, "trials": 2}, seed=7)
    each = train(batch, init="file", init_path=saved(tmp_path, W0=W0, seeds=[8, 3, 7]), **START)
    assert each.W.equal(torch.from_numpy(W0[[2, 0]]))
    same = train(batch, init="file", init_path=saved(tmp_path, W0=W0[0]), **START)
    assert same.W.equal(torch.from_numpy(W0[[0, 0]]))
    K0, Q0 = W0[0, :, :2], W0[1, :, :2]
    path = train(batch, "kq", m=2, init="file", init_path=saved(tmp_path, K0=K0, Q0=Q0), **START)
    assert path.K[1].equal(torch.from_numpy(K0))


def test_tokens_of_a_file_or_the_runner_up_are_the_axis_of_the_cone(tmp_path):
    batch = sample(**SHAPE)
    tokens = batch.scores().sort(-1).indices[..., -2]
    path = saved(tmp_path, tokens=tokens.numpy(), seeds=np.arange(5))
    start = train(batch, init="cone", init_path=path, init_angle=10.0, **START)
    assert start.W.equal(in_cone(batch, tokens, 10.0, 1e-2))
    tokens[:, 1:] = optimal_tokens(batch)[0][:, 1:]
    start = train(batch, init="cone_runner_up", init_angle=10.0, **START)
    assert start.W.equal(in_cone(batch, tokens, 10.0, 1e-2))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"W0": np.zeros((2, 6, 6))}, r"W0: .*shape \(2, 6, 6\); must be .* with 2 axes"),
        ({"W0": np.zeros((1, 6, 6)), "seeds": [0]}, "seeds: must hold 1"),
        ({"W": np.zeros((6, 6))}, "W0: missing; must be an array of real numbers with 2 axes"),
        (
            {"W0": np.zeros((6, 6), dtype=complex)},
            "W0: complex128, .*must be an array of real numbers",
        ),
        ({"tokens": [0, 1, 2]}, r"tokens: int64, shape \(3,\); must be 4 whole"),
        ({"tokens": [0, 1, 2, 5]}, r"tokens: .* must be .* admissible, >= 0 and < T=5"),
    ],
)
def test_a_file_of_other_arrays_is_refused(arrays, message, tmp_path):
    init = "cone" if "tokens" in arrays else "file"
    with pytest.raises(ConfigError, match=message):
        train(sample(**SHAPE), init=init, init_path=saved(tmp_path, **arrays), **START)
