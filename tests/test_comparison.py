import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnsvm import correlation, margin_gap, one_minus_correlation, solve_gen_svm, solve_svm, svmeq
from attnsvm.linalg import LARGE
from attnsvm.svm import SvmStatus, single_token
from attnsvm.theory import assumption_b1
from attnsvm.theory.comparison import svmeq_factor, svmeq_least_squares
from tests.kkt import assert_near, normal
from tests.svm.instances import spheres


@pytest.mark.parametrize("exponent", range(-12, 0))
def test_one_minus_correlation_keeps_its_digits(exponent):
    """1 - 1/sqrt(1+t) = t / (sqrt(1+t) (1 + sqrt(1+t))); the left side has no digit below 1e-8."""
    t = 10.0 ** (2 * exponent)
    exact = t / (math.sqrt(1 + t) * (1 + math.sqrt(1 + t)))
    got = one_minus_correlation(np.array([[1.0, 0.0]]), np.array([[1.0, 10.0**exponent]]))
    assert got == pytest.approx(exact, rel=1e-3 if exponent < -11 else 1e-6)


@pytest.mark.full
def test_svmeq_maximises_the_correlation():
    W, W_fin, W_mm = normal(40, 3, 3), normal(40, 3, 3, seed=1), normal(40, 3, 3, seed=2)
    ours = correlation(W, svmeq(W, W_fin, W_mm))
    rays = [W_fin + np.exp(c) * W_mm for c in np.linspace(-20, 20, 4001)]
    best = torch.stack([correlation(W, ray) for ray in rays]).amax(0)
    assert (ours >= best - 1e-12).all()  # nothing on the ray C > 0 is better
    assert (ours <= torch.maximum(best + 1e-4, correlation(W, W_mm) + 1e-12)).all()  # it is on it


def test_svmeq_recovers_a_planted_combination_and_its_ends():
    W, W_fin, W_mm = (normal(6, 3, 3, seed=seed) for seed in range(3))
    factor = svmeq_factor(2.0 * W_fin + 5.0 * W_mm, W_fin, W_mm)
    torch.testing.assert_close(factor, torch.full((6,), 2.5).double())
    planted, none = W_fin + 2.5 * W_mm, torch.zeros_like(W)
    torch.testing.assert_close(svmeq_least_squares(planted, W_fin, W_mm), planted)
    assert one_minus_correlation(svmeq(planted, W_fin, W_mm), planted).max() < 1e-28
    assert one_minus_correlation(svmeq(W, none, W_mm), W_mm).max() < 1e-30
    assert svmeq_factor(W, none, W_mm).isinf().all()
    assert (svmeq_factor(W, W_mm, none) == 0).all()
    assert svmeq_factor(W, none * torch.nan, W_mm).isnan().all()


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 3, 3), (3, 3, 3), (2, 2, 5), (3, 3, 8)])
def test_assumption_b1_against_linear_programming(shape):
    n, T, d = shape
    problem = single_token(*spheres(n, T, d, range(40)))
    verdicts = assumption_b1(problem)
    for D, Z, verdict in zip(problem.D.numpy(), problem.queries.numpy(), verdicts, strict=True):
        G = (D @ D.T) * (Z @ Z.T)
        answer = linprog(np.zeros(len(G)), A_eq=G, b_eq=np.ones(len(G)), method="highs")
        assert verdict == (answer.status == 0)
    assert 0 < sum(verdicts) < 40  # both kinds were met


def test_assumption_b1_of_a_zero_difference_fails_and_of_nothing_holds():
    """Also of two margins that cannot be equal, up to rounding."""
    apart = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1e-6], [1.0, 0.0, -1e-11]]).double()
    X, Z, first = apart[:, None, :, None], torch.ones(3, 1, 1).double(), torch.zeros(3, 1).long()
    assert assumption_b1(single_token(X, Z, first)) == [False, False, True]
    assert assumption_b1(single_token(X[:, :, :1], Z, first)) == [True] * 3


def test_the_margin_gap_is_positive_but_at_the_svm_and_nan_where_w_is_not_finite():
    """Its values are those of `tests.svm.test_rows`."""
    instances = spheres(4, 5, 8, range(6))
    solution = solve_svm(*instances)
    assert (margin_gap(3.0 * solution.W, solution).abs() <= 2e-9).all()
    other = solution.W + 0.1 * normal(6, 8, 8)
    gap = margin_gap(1e-7 * other, solution)
    assert (gap > 1e-3).all()
    other[1, 0, 0], other[2, 3, 4] = torch.inf, torch.nan
    gap[1:3] = torch.nan
    torch.testing.assert_close(margin_gap(other, solution), gap, equal_nan=True)
    alone = margin_gap(other[0].numpy(), solve_svm(*(x[0].numpy() for x in instances)))
    assert alone == pytest.approx(float(gap[0]), rel=1e-9)


def test_the_margin_gap_of_what_is_not_solved_is_nan_and_of_other_problems_refused():
    X, Z, selected = spheres(5, 5, 2, range(20))
    solution = solve_svm(X, Z, selected)
    W, solved = normal(20, 2, 2), solution.having(SvmStatus.solved)
    assert 0 < solved.sum() < 20
    assert torch.equal(margin_gap(W, solution).isnan(), ~solved)
    attended = torch.ones(20, 5, 5, dtype=torch.bool)
    fin, _ = solve_gen_svm(X, Z, attended, torch.zeros(20, 5, 5))
    with pytest.raises(ValueError, match="must be of solve_svm"):
        margin_gap(W, fin)
    with pytest.raises(ValueError, match=r"W: shape \(2, 2, 2\); .* \(20, 2, 2\)"):
        margin_gap(W[:2], solution)
    with pytest.raises(ValueError, match=r"B: shape \(3, 2, 2\); .* \(2, 2, 2\)"):
        one_minus_correlation(W[:2], W[:3])
    assert one_minus_correlation(W[0], W).shape == one_minus_correlation(W[:1], W).shape == (20,)


@pytest.mark.parametrize("shape", [(255, 257), (256, 256), (257, 256), (3, 2**15)])
def test_a_correlation_is_numpys_where_matrices_are_read_in_blocks_and_where_not(shape):
    A, B = normal(2, *shape), normal(2, *shape, seed=1)
    assert (A[0].numel() >= LARGE) == (shape != (255, 257))
    expected = (A * B).sum((1, 2)) / (A.flatten(1).norm(dim=1) * B.flatten(1).norm(dim=1))
    assert_near(correlation(A, B), expected, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(correlation(1e200 * A, 1e-200 * B), correlation(A, B))
    assert isinstance(correlation(A.numpy(), B.numpy()), np.ndarray)
    assert correlation(0 * A, B).isnan().all()
