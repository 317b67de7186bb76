import math
from itertools import pairwise

import pytest
import torch

from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import EPS as MACHINE_EPS
from attnsvm.linalg import one_minus_correlation
from attnsvm.selection import select_tokens
from attnsvm.svm import solve_svm
from attnsvm.theory import optimal_mixture
from attnsvm.training import chunk_size, train, train_chunks
from attnsvm.training.trajectory import TrainingStatus
from tests.quick import quick_rows


@pytest.fixture(scope="module")
def batch():
    return sample("sphere", n=6, T=8, d=10, trials=30)


def test_chunks_fit_into_a_gibibyte_and_are_all_instances(batch):
    size = chunk_size(batch, 101)
    assert 8 * size * 101 * (100 + 48) < 2**30
    assert size > 5000
    chunks = list(train_chunks(batch, "kq", size=7, steps=9))
    ends = pairwise([0, 7, 14, 21, 28, 30])
    assert [(part.start, part.stop) for part, _ in chunks] == list(ends)
    whole = train(batch, "kq", steps=9).W
    torch.testing.assert_close(torch.cat([path.W for _, path in chunks]), whole, rtol=0, atol=1e-13)


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
    # a step from the same weights is noise, but one with a ridge that outweighs the noise
    step = {"init": exact.W, "gradient": "direct", "steps": 1, "lr": 1e-9}
    assert set(train(batch, **step).status()) == {TrainingStatus.STALLED}
    assert train(batch, ridge=1e-10, **step).direction_error.max() < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("gd", {"steps": 0}),
        ("gd", {"steps": 5, "lr": 1e-4}),  # has hardly moved
        ("gd", {"steps": 2000, "lr": 0.1}),  # grows like log k
        ("gd", {"steps": 300, "lr": 30.0}),
        *((name, {"steps": 300}) for name in ("adam", "mirror_descent")),
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


@pytest.mark.full
@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(
    ("optimizer", "lr"), [("gd", 1.0), ("normalized_gd", 1e-3), ("momentum", 0.3)]
)
def test_a_mixture_of_tokens_is_a_finite_optimum(parameterization, optimizer, lr):
    """3 of 8 labels against the others: tanh(a) = log(5 / 3); and a head of which all tokens are.

    One token has the gradient zero: every W is optimal.
    """
    options = {"lr": lr, "steps": 5000, "record_every": 5000}
    path = train(conflict(3 / 8), parameterization, optimizer, **options)
    share = (1 + math.log(5 / 3)) / 2
    assert path.softmax[:, -1].flatten().numpy() == pytest.approx([share, 1 - share] * 16, abs=0.01)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    batch = sample("orthonormal", head="quadratic", n=4, T=6, d=10, trials=8, lam=3.0)
    best = optimal_mixture(batch)
    assert (best > 0.03).all()
    path = train(batch, parameterization, optimizer, **{**options, "lr": max(lr, 0.01)})
    torch.testing.assert_close(path.softmax[:, -1], best, rtol=0, atol=1e-2)
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    early = train(batch, parameterization, optimizer, lr=lr, steps=3)
    assert set(early.status()) == {TrainingStatus.UNSATURATED}
    alone = train(sample(n=2, T=1, d=3, trials=2), parameterization, optimizer, steps=20)
    assert set(alone.status()) == {TrainingStatus.FINITE_OPTIMUM}


def test_its_twin_has_none():
    """With 2 of 8, e^-f = 1/3 asks for f = log 3 > 1: the optimum lies at infinity."""
    for optimizer in ("gd", "normalized_gd"):
        path = train(conflict(0.25), optimizer=optimizer, lr=0.3, steps=5000)
        assert not path.finite_optimum.any()
    assert set(path.status()) == {TrainingStatus.SATURATED}


@pytest.mark.parametrize(
    ("parameterization", "options", "early"),
    quick_rows(
        ("w", {"optimizer": "gd", "lr": 1.0, "ridge": 0.05, "steps": 400}, 5),
        *(
            (rule, {"ridge": MACHINE_EPS, "gradient": gradient, "steps": 2000}, 50)
            for rule in ("w", "kq")
            for gradient in ("log_domain", "direct")
        ),
        count=3,
    ),
)
def test_a_ridge_makes_the_optimum_finite(batch, parameterization, options, early):
    """The published one at ||W|| = 90: grad L = -2 ridge W, far below the resolution of L."""
    path = train(batch, parameterization, **options, record_every=2000)
    assert (path.softmax[:, -1].amax(-1) > 0.999).all() or options["ridge"] > MACHINE_EPS
    assert set(path.status()) == {TrainingStatus.FINITE_OPTIMUM}
    before = train(batch, parameterization, **{**options, "steps": early})
    assert TrainingStatus.FINITE_OPTIMUM not in before.status()
