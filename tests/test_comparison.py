from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import attnsvm
from attnsvm import correlation, margin_gap, one_minus_correlation, solve_svm, svmeq
from attnsvm.linalg import LARGE
from attnsvm.svm import single_token
from attnsvm.theory import assumption_b1
from attnsvm.theory.comparison import svmeq_factor, svmeq_least_squares
from tests.kkt import normal


@pytest.mark.parametrize("exponent", range(-12, 0))
def test_one_minus_correlation_keeps_its_digits(exponent):
    """Against exact rational arithmetic; the plain difference has lost all digits below 1e-8."""
    delta = 10.0**exponent
    a, b = np.array([1.0, 0.0]), np.array([1.0, delta])
    squared = 1 + Fraction(delta) ** 2
    # 1 - 1/sqrt(1+t) = t / (sqrt(1+t) (1 + sqrt(1+t)))
    root = float(squared) ** 0.5
    exact = float(Fraction(delta) ** 2) / (root * (1 + root))
    got = one_minus_correlation(a[None], b[None])
    assert got == pytest.approx(exact, rel=1e-3 if exponent < -11 else 1e-6)


def test_correlation_is_invariant_to_scale_and_rotation():
    A, B = normal(5, 4, 4), normal(5, 4, 4, seed=1)
    U, V = torch.linalg.qr(normal(4, 4, seed=2))[0], torch.linalg.qr(normal(4, 4, seed=3))[0]
    torch.testing.assert_close(correlation(U @ A @ V, U @ B @ V), correlation(A, B))
    torch.testing.assert_close(correlation(1e200 * A, 1e-200 * B), correlation(A, B))
    assert isinstance(correlation(A.numpy(), B.numpy()), np.ndarray)
    assert correlation(0 * A, B).isnan().all()


@pytest.mark.full
def test_svmeq_maximises_the_correlation():
    W, W_fin, W_mm = normal(40, 3, 3), normal(40, 3, 3, seed=1), normal(40, 3, 3, seed=2)
    ours = correlation(W, svmeq(W, W_fin, W_mm))
    rays = [W_fin + np.exp(c) * W_mm for c in np.linspace(-20, 20, 4001)]
    best = torch.stack([correlation(W, ray) for ray in rays]).amax(0)
    assert (ours >= best - 1e-12).all()  # nothing on the ray C > 0 is better
    assert (ours <= torch.maximum(best + 1e-4, correlation(W, W_mm) + 1e-12)).all()  # it is on it


def test_svmeq_recovers_a_planted_combination():
    W_fin, W_mm = normal(6, 3, 3), normal(6, 3, 3, seed=1)
    W = 2.0 * W_fin + 5.0 * W_mm
    assert one_minus_correlation(W, svmeq(W, W_fin, W_mm)).max() < 1e-28
    torch.testing.assert_close(svmeq_factor(W, W_fin, W_mm), torch.full((6,), 2.5).double())
    planted = W_fin + 2.5 * W_mm
    torch.testing.assert_close(svmeq_least_squares(planted, W_fin, W_mm), planted)


def test_svmeq_without_finite_part_is_the_margin_direction():
    W, W_mm = normal(3, 2, 2), normal(3, 2, 2, seed=1)
    nothing = torch.zeros_like(W_mm)
    assert one_minus_correlation(svmeq(W, nothing, W_mm), W_mm).max() < 1e-30
    assert svmeq_factor(W, nothing, W_mm).isinf().all()
    assert (svmeq_factor(W, W_mm, nothing) == 0).all()
    assert svmeq_factor(W, nothing * torch.nan, W_mm).isnan().all()


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 3, 3), (3, 3, 3), (2, 2, 5), (3, 3, 8)])
def test_assumption_b1_against_linear_programming(shape):
    n, T, d = shape
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=40)
    optimal, _ = attnsvm.optimal_tokens(batch)
    problem = single_token(batch.X, batch.Z, optimal, batch.mask)
    verdicts = assumption_b1(problem)
    solution = solve_svm(batch.X, batch.Z, optimal)
    for k, verdict in enumerate(verdicts):
        D, Z = problem.D[k].numpy(), problem.queries[k].numpy()
        G = (D @ D.T) * (Z @ Z.T)
        answer = linprog(np.zeros(len(G)), A_eq=G, b_eq=np.ones(len(G)), method="highs")
        assert verdict == (answer.status == 0)
        if verdict:  # then every token is a support vector of the certified solution
            margins = problem.margins(solution.W)[k]
            torch.testing.assert_close(margins, torch.ones_like(margins), atol=1e-6, rtol=0)
    assert 0 < sum(verdicts) < batch.B  # both kinds were met


def test_assumption_b1_of_a_zero_difference_fails_and_of_nothing_holds():
    X = torch.ones(1, 1, 2, 2, dtype=torch.float64)
    Z = torch.ones(1, 1, 2, dtype=torch.float64)
    first = torch.zeros(1, 1, dtype=torch.long)
    assert assumption_b1(single_token(X, Z, first)) == [False]
    assert assumption_b1(single_token(X[:, :, :1], Z, first)) == [True]
    apart = torch.tensor([[1.0, 0.0, -1e-6], [1.0, 0.0, -1e-11]]).double()  # two margins
    X, Z, first = apart.reshape(2, 1, 3, 1), Z[:, :, :1].repeat(2, 1, 1), first.repeat(2, 1)
    assert assumption_b1(single_token(X, Z, first)) == [False, True]


def test_matrices_of_another_number_of_instances_are_refused():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(3, 2, 4, 5)), rng.normal(size=(3, 2, 5))
    solution = solve_svm(X, Z, np.zeros((3, 2), dtype=int))
    with pytest.raises(ValueError, match=r"W: shape \(2, 5, 5\); must be that of the solution, "):
        margin_gap(solution.W[:2], solution)
    with pytest.raises(ValueError, match=r"B: shape \(3, 5, 5\); must be that of A, \(2, 5, 5\)"):
        one_minus_correlation(solution.W[:2], solution.W)
    assert one_minus_correlation(solution.W[0], solution.W).shape == (3,)
    assert one_minus_correlation(solution.W[:1], solution.W).shape == (3,)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_the_margin_gap_is_zero_at_the_svm_and_positive_elsewhere(norm):
    batch = attnsvm.sample("sphere", n=4, T=5, d=8, trials=6)
    selected = attnsvm.optimal_tokens(batch)[0]
    solution = solve_svm(batch.X, batch.Z, selected, norm)
    gap = margin_gap(3.0 * solution.W, solution)
    assert (gap.abs() <= 2e-9).all()
    other = solution.W + 0.1 * normal(6, 8, 8)
    problem = single_token(batch.X, batch.Z, selected)
    least = problem.margins(other).amin(dim=1)
    size = torch.linalg.matrix_norm(other, "nuc" if norm == "nuclear" else "fro")
    got = margin_gap(other, solution)
    torch.testing.assert_close(got, 1 - solution.objective * least / size)
    assert (got > 1e-3).all()
    torch.testing.assert_close(margin_gap(1e-7 * other, solution), got)
    lost = other.clone()
    lost[1, 0, 0], lost[2, 3, 4] = torch.inf, torch.nan
    torch.testing.assert_close(margin_gap(lost, solution)[[0, 3, 4, 5]], got[[0, 3, 4, 5]])
    assert margin_gap(lost, solution)[1:3].isnan().all()
    alone = solve_svm(batch.X[0].numpy(), batch.Z[0].numpy(), selected[0].numpy(), norm)
    assert margin_gap(other[0].numpy(), alone) == pytest.approx(float(got[0]), rel=1e-9)


def test_the_margin_gap_of_what_is_not_solved_is_nan():
    batch = attnsvm.sample("sphere", n=5, T=5, d=2, trials=20)
    solution = solve_svm(batch.X, batch.Z, attnsvm.optimal_tokens(batch)[0])
    gap = margin_gap(normal(20, 2, 2), solution)
    solved = [status == "solved" for status in solution.status]
    assert 0 < sum(solved) < 20
    assert gap.isnan().tolist() == [not known for known in solved]
    attended = torch.ones(20, 5, 5, dtype=torch.bool)
    fin, _ = attnsvm.solve_gen_svm(batch.X, batch.Z, attended, torch.zeros(20, 5, 5))
    with pytest.raises(ValueError, match="must be of solve_svm"):
        margin_gap(normal(20, 2, 2), fin)


@pytest.mark.parametrize("shape", [(255, 257), (256, 256), (257, 256), (3, 2**15)])
def test_a_correlation_is_numpys_where_matrices_are_read_in_blocks_and_where_not(shape):
    A, B = normal(2, *shape), normal(2, *shape, seed=1)
    assert (A[0].numel() >= LARGE) == (shape != (255, 257))
    expected = (A * B).sum((1, 2)) / (A.flatten(1).norm(dim=1) * B.flatten(1).norm(dim=1))
    torch.testing.assert_close(correlation(A, B), expected, rtol=1e-10, atol=1e-14)
