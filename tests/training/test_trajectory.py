from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.linalg import EPS as MACHINE_EPS
from attnsvm.linalg.directions import one_minus_correlation
from attnsvm.problem import ProblemBatch
from attnsvm.selection import select_tokens
from attnsvm.svm import solve_svm
from attnsvm.training import chunk_size, ending, train, train_chunks
from attnsvm.training.trajectory import TrainingStatus

FIELDS = (
    "snapshots",
    "loss",
    "softmax",
    "log_softmax",
    "W",
    "diverged",
    "direction_error",
    "finite_optimum",
)


@pytest.fixture(scope="module")
def batch():
    return sample("sphere", n=6, T=8, d=10, trials=30)


@pytest.mark.processors
@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize("compiled", [True, False])
def test_chunks_are_the_whole(batch, parameterization, compiled):
    size = 7
    options = {"steps": 60, "record_every": 20, "compiled": compiled}
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


def test_chunks_leave_room_for_the_matrices_of_their_svms():
    """N = 900 rows, with some matrices of 6.5 MB for each instance."""
    batch = sample("sphere", n=30, T=31, d=2, trials=1)
    assert 2 <= chunk_size(batch, 0) < 2**30 / (2 * 8 * 900**2)


@pytest.mark.processors
def test_exact_training_reaches_the_direction_of_the_svm_and_direct_training_stalls(batch):
    """Medians of 1 - correlation at 2000 steps: 2e-6 with growing steps, 3e-3 when stalled."""
    exact, direct = train(batch, growth=0.05), train(batch, gradient="direct")
    distances = []
    for path in (exact, direct):
        selection = select_tokens(batch, path)
        svm = solve_svm(batch.X, batch.Z, selection.selected, norm="frobenius")
        distances.append(one_minus_correlation(path.W, svm.W).nanmedian().item())
    assert distances[0] <= 2e-6
    assert distances[1] >= 2e-3
    assert set(exact.status()) == {TrainingStatus.SATURATED}
    assert set(direct.status()) == {TrainingStatus.STALLED}
    assert exact.direction_error.max() < 1e-10
    assert direct.direction_error.min() > 0.01


@pytest.mark.parametrize(("steps", "bound"), [(2000, 2e-6), (10_000, 5e-7)])
def test_growing_exact_steps_keep_approaching_the_svm(steps, bound):
    """The published setting, 100 seeds; measured medians: 1.7e-6 and 2.3e-7."""
    batch = sample("sphere", n=6, T=8, d=10, trials=100)
    path = train(batch, growth=0.05, steps=steps, record_every=steps)
    svm = solve_svm(batch.X, batch.Z, select_tokens(batch, path).selected)
    assert one_minus_correlation(path.W, svm.W).nanmedian() <= bound


@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("gd", {"steps": 0}),
        ("gd", {"steps": 5, "lr": 1e-4}),  # has hardly moved
        ("gd", {"steps": 2000}),  # grows like log k
        ("gd", {"steps": 300, "lr": 30.0}),
        ("momentum", {"steps": 300, "lr": 1.0}),
        ("adam", {"steps": 300}),
        ("sign_gd", {"steps": 300}),
        ("mirror_descent", {"steps": 300}),
        ("normalized_gd", {"steps": 300}),
        ("normalized_gd", {"growth": 0.05}),
        ("normalized_gd", {"gradient": "direct"}),
        ("regularization_path", {"radii": [3.0, 30.0]}),
    ],
)
def test_no_optimum_is_finite_where_none_exists(batch, parameterization, optimizer, options):
    """Linear head, different scores, d >= max(T - 1, n): the gradient has no zero.

    The products of token differences and queries are then linearly independent, so that a zero
    needs dL/dlogit = 0 for every token, that is equal scores.
    """
    path = train(batch, parameterization, optimizer, **options)
    assert TrainingStatus.FINITE_OPTIMUM not in path.status()


def test_slow_growth_is_no_finite_optimum(batch):
    """||W|| of gradient descent grows by a tenth in the second half, like log k, for ever."""
    path = train(batch, optimizer="gd", lr=3.0, steps=10_000, record_every=5_000)
    growth = path.W.norm(dim=(1, 2)) / path.snapshots[:, 1].norm(dim=(1, 2)) - 1
    assert 0.05 < growth.median() < 0.15
    assert not path.finite_optimum.any()


def best_mixture(batch, lam):
    """Return the s >= 0 of sum 1 that maximises v^T X^T s - lam ||s||^2, tokens orthonormal.

    It is the projection of X v / (2 lam) onto the simplex, the positive part of y - c.
    """
    y = torch.einsum("bntd,bd->bnt", batch.X, batch.head_parameters["v"]) / (2 * lam)
    down = y.sort(dim=-1, descending=True).values
    c = (down.cumsum(-1) - 1) / torch.arange(1, batch.T + 1)
    kept = (down > c).sum(-1, keepdim=True)
    return (y - c.gather(-1, kept - 1)).clamp(min=0)


def quadratic(lam):
    return sample("orthonormal", head="quadratic", n=4, T=6, d=10, trials=8, lam=lam)


@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(
    ("optimizer", "lr"), [("gd", 1.0), ("normalized_gd", 0.01), ("momentum", 0.3)]
)
def test_mixing_all_tokens_is_a_finite_optimum(parameterization, optimizer, lr):
    batch = quadratic(3.0)
    best = best_mixture(batch, 3.0)
    assert (best > 0.03).all()
    path = train(batch, parameterization, optimizer, lr=lr, steps=5000, record_every=5000)
    torch.testing.assert_close(path.softmax[:, -1], best, rtol=0, atol=1e-2)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    early = train(batch, parameterization, optimizer, lr=lr, steps=3)
    assert set(early.status()) == {TrainingStatus.UNSATURATED}


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("parameterization", ["w", "kq"])
def test_parts_of_a_large_batch_end_as_the_whole(monkeypatch, parameterization, ridge):
    """Two of three instances reach a minimum: the tests meet none, some and all of a part."""
    batch = sample("orthonormal", head="quadratic", n=4, T=6, d=10, trials=21, lam=3.0)
    v = batch.head_parameters["v"].clone()
    v[::3] *= 20  # one token is better than any mixture
    batch = dataclasses.replace(batch, head_parameters={"v": v})
    options = {"optimizer": "gd", "lr": 1.0, "steps": 3000, "record_every": 3000, "ridge": ridge}
    whole = train(batch, parameterization, **options)
    assert whole.finite_optimum.any()
    assert ridge or not whole.finite_optimum[::3].any()
    threads = torch.get_num_threads()
    try:
        for numbers, count in (
            (1, 1),
            (1, 3),
            (4 * (4 * 6 * 10 + 10 * 10), 2),
        ):  # 2 and 4 instances
            torch.set_num_threads(count)
            monkeypatch.setattr(ending, "PART", numbers)
            parts = train(batch, parameterization, **options)
            assert parts.finite_optimum.equal(whole.finite_optimum)
            assert parts.direction_error.equal(whole.direction_error)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("optimizer", "lr"), [("gd", 30.0), ("normalized_gd", 0.1)])
def test_masking_some_tokens_is_none(optimizer, lr):
    """Attention leaves the masked tokens ever more slowly, and W grows along W_mm for ever."""
    batch = quadratic(0.3)
    best = best_mixture(batch, 0.3)
    assert (best == 0).any(-1).all()
    path = train(batch, optimizer=optimizer, lr=lr, steps=5000, record_every=5000)
    torch.testing.assert_close(path.softmax[:, -1], best, rtol=0, atol=0.05)
    assert set(path.status()) == {TrainingStatus.UNSATURATED}


def conflict(share):
    """Return one query and two tokens of scores +-1, with these of 8 labels negative.

    Each sample has margin Y tanh(a), where a = e_1^T W z is half the difference of logits. The risk
    (1 - share) l(f) + share l(-f) is least at l'(f) / l'(-f) = share / (1 - share): for the
    logistic loss e^-f = share / (1 - share).
    """
    n = 8
    X = torch.zeros(2, n, 2, 2, dtype=torch.float64)
    X[:, :, 0, 0], X[:, :, 1, 0] = 1.0, -1.0
    Z = torch.zeros(2, n, 2, dtype=torch.float64)
    Z[..., 1] = 1.0
    Y = torch.ones(2, n, dtype=torch.float64)
    Y[:, : round(share * n)] = -1.0
    v = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(2, 1)
    mask = torch.ones(2, n, 2, dtype=torch.bool)
    return ProblemBatch(X, Z, Y, mask, named("head", "linear"), {"v": v}, torch.arange(2))


@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(("optimizer", "lr"), [("gd", 1.0), ("normalized_gd", 1e-3)])
def test_opposite_labels_make_the_optimum_finite(parameterization, optimizer, lr):
    """A closed form: 3 of 8 labels against the others, tanh(a) = log(5 / 3)."""
    path = train(conflict(3 / 8), parameterization, optimizer, lr=lr, steps=5000)
    a = path.W[:, 0, 1]
    expected = torch.tensor(math.atanh(math.log(5 / 3)), dtype=torch.float64).expand(2)
    torch.testing.assert_close(a, expected, rtol=0, atol=0.01)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_its_twin_has_none(share):
    """With 2 of 8, e^-f = 1/3 asks for f = log 3 > 1: the optimum lies at infinity."""
    for optimizer in ("gd", "normalized_gd"):
        path = train(conflict(share), optimizer=optimizer, lr=0.3, steps=5000)
        assert not path.finite_optimum.any()
    assert set(path.status()) == {TrainingStatus.SATURATED}


def test_a_strong_ridge_makes_the_optimum_finite(batch):
    path = train(batch, optimizer="gd", lr=1.0, ridge=0.05, steps=400)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    assert (
        TrainingStatus.FINITE_OPTIMUM not in train(batch, "w", "gd", ridge=0.05, steps=5).status()
    )


@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize("gradient", ["log_domain", "direct"])
def test_the_published_ridge_makes_the_optimum_finite(batch, parameterization, gradient):
    """Saturated, at ||W|| = 90: grad L = -2 ridge W, with grad L far below the resolution of L."""
    options = {"ridge": MACHINE_EPS, "gradient": gradient, "record_every": 2000}
    path = train(batch, parameterization, **options)
    assert (path.softmax[:, -1].amax(-1) > 0.999).all()
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    early = train(batch, parameterization, **options, steps=50)
    assert TrainingStatus.FINITE_OPTIMUM not in early.status()


@pytest.mark.parametrize("parameterization", ["w", "kq"])
def test_nothing_to_learn_is_a_finite_optimum(parameterization):
    """One token, or equal scores: the gradient is exactly zero, every W is optimal."""
    single = sample(n=2, T=1, d=3, trials=2)
    tied = sample(n=2, T=4, d=3, trials=2)
    X, v = tied.X.clone(), torch.zeros(2, 3, dtype=torch.float64)
    X[..., 0], v[:, 0] = 0.25, 1.0
    tied = dataclasses.replace(tied, X=X, head_parameters={"v": v})
    for batch in (single, tied):
        path = train(batch, parameterization, steps=20)
        assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
        torch.testing.assert_close(path.snapshots[:, 0], path.W, rtol=1e-15, atol=1e-15)


def test_short_training_is_unsaturated(batch):
    assert set(train(batch, steps=10, init="zero").status()) == {TrainingStatus.UNSATURATED}


def test_direct_steps_are_stalled_where_saturation_leaves_rounding_noise(batch):
    """The same weights: a step of the direct gradient is noise, one of the exact gradient is not.

    With a ridge that outweighs the noise neither is.
    """
    W = train(batch, growth=0.05, record_every=2000).W
    step = {"init": W, "steps": 1, "lr": 1e-9}
    assert set(train(batch, gradient="direct", **step).status()) == {TrainingStatus.STALLED}
    assert set(train(batch, **step).status()) == {TrainingStatus.SATURATED}
    ridge = train(batch, gradient="direct", ridge=1e-10, **step)
    assert ridge.direction_error.max() < 1e-6
    assert TrainingStatus.STALLED not in ridge.status()


def test_the_status_of_many_instances_is_one_reduction(batch):
    path = train(batch, steps=20)
    many = path.take(torch.arange(30).repeat(3000))
    assert many.status() == path.status() * 3000


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
