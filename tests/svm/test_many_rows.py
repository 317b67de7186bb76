"""Frobenius SVMs with many rows: data of many classes, and both sides of switches by size."""

import math

import pytest
import torch

from attnsvm.linalg.decompositions import JACOBI as SMALL
from attnsvm.norm import Entrywise
from attnsvm.svm import (
    single_token,
    solve,
    solve_least_norm,
    solve_rank_constrained,
    solve_svm,
)
from attnsvm.svm.certificate import bounds
from attnsvm.svm.frobenius import least_norm, pivoting
from attnsvm.svm.frobenius.pivoting import by_pivoting, grown
from attnsvm.svm.interior_point import LARGE
from attnsvm.svm.reduction import MANY, WIDE
from tests.kkt import assert_infeasible, assert_optimal, normal
from tests.quick import quick
from tests.svm.instances import spheres

NORMS = ["frobenius", "nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten1.5"]


def classes(n: int, d: int, K: int, noise: float, seed: int = 0):
    """Return X, Z, selected of a linear classifier of n points in [0, 1]^d around K means."""
    points = normal(n, d, seed=seed)
    labels = torch.arange(n) % K
    Z = (0.5 + 0.3 * normal(K, d, seed=seed + 1)[labels] + noise * points).clamp(0, 1)
    X = torch.eye(max(K, d)).double()[:K, :d].expand(n, K, d)
    return X[None], Z[None], labels[None]


def digits(n: int):
    """Return X, Z, selected of scikit-learn's first n digits / 16 in ten classes."""
    points, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    X = torch.eye(64).double()[:10].expand(n, 10, 64)
    return X[None], torch.from_numpy(points[None, :n] / 16), torch.from_numpy(labels[None, :n])


@pytest.mark.parametrize(("n", "expected"), [(300, 5.41583193805), (400, 6.28536263864)])
def test_digits_of_ten_classes_have_the_norm_that_clarabel_finds(n, expected):
    solution = solve_svm(*digits(n))
    assert solution.status == ("solved",)
    assert solution.objective.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.full
@pytest.mark.parametrize("norm", NORMS)
def test_all_digits_are_solved(norm):
    problem = single_token(*digits(1797))
    assert_optimal(problem, solve(problem, norm, 10))


@pytest.mark.parametrize("norm", quick(*NORMS))
@pytest.mark.parametrize("n", [LARGE // 9, LARGE // 9 + 1, 200])
def test_points_in_ten_classes_are_solved_or_contradict_each_other(n, norm):
    """Of equal points in different classes no W separates both; of near ones a large one does."""
    X, Z, labels = classes(n, 20, 10, 0.15)
    problem = single_token(X, Z, labels)
    assert (problem.N >= LARGE) == (n > LARGE // 9)
    assert_optimal(problem, solve(problem, norm, 10))
    equal = Z.index_copy(1, torch.tensor([1]), Z[:, :1])
    problem = single_token(X, equal, labels)
    assert_infeasible(problem, solve(problem, norm, 10))


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6])
def test_near_points_of_different_classes_are_separated_by_a_large_matrix(apart):
    X, Z, labels = classes(100, 20, 10, 0.15)
    Z[0, 1] = Z[0, 0] + apart * normal(20, seed=3)
    problem = single_token(X, Z, labels)
    solution = solve(problem, "frobenius", 10)
    assert solution.status == ("solved",)
    assert solution.kappa.item() > 1 / apart
    assert_optimal(problem, solution)


@pytest.mark.parametrize("n", quick(100, 250))
def test_random_labels_are_solved_up_to_the_number_of_points_that_a_matrix_separates(n):
    """Cover: points in general position up to about the dimension; 2250 rows in 180 dimensions."""
    _, Z, _ = classes(n, 20, 10, 0.3)
    X = torch.eye(20).double()[:10].expand(1, n, 10, 20)
    labels = torch.randint(10, (1, n), generator=torch.Generator().manual_seed(0))
    few = single_token(X[:, :15], Z[:, :15], labels[:, :15])
    assert_optimal(few, solve(few, "frobenius", 10))
    problem = single_token(X, Z, labels)
    assert_infeasible(problem, solve(problem, "frobenius", 10))


@pytest.mark.parametrize("seed", range(4))
def test_pivots_and_the_working_set_find_what_the_method_for_few_rows_does(seed):
    X, Z, labels = classes(40, 12, 5, 0.2, seed)
    problem = single_token(X, Z, labels)
    upper, _ = bounds(problem, *least_norm(problem)[:2], "frobenius")
    for candidate in (
        by_pivoting(problem),
        grown(least_norm, problem, torch.arange(problem.N) < 3),
    ):
        above, below = bounds(problem, candidate.W, candidate.multipliers, "frobenius")
        torch.testing.assert_close(above, upper, rtol=1e-11, atol=0)
        torch.testing.assert_close(below, upper, rtol=1e-11, atol=0)


@pytest.mark.parametrize("count", [2, 50])
def test_multipliers_that_cancel_prove_nothing(count):
    """Opposite rows a hair apart: infeasible, although multipliers without bound have W = 0."""
    rows = normal(1, count, 12, seed=5)
    h = normal(1, count, seed=6).abs() + 1
    A, b = torch.cat([rows, -rows], 1), torch.cat([h, -h + 1e-2], 1)
    solution = solve_least_norm(A.unflatten(2, (4, 3)), b, "frobenius")
    assert_infeasible(solution.problem, solution)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("d", [MANY - 1, MANY, MANY + 1, WIDE])
def test_rank_constrained_solutions_of_few_queries_on_both_sides_of_the_reduction(d, m):
    """Zeros in further dimensions change no norm. The search of rank one is local."""
    X, Z, selected = spheres(3, 4, 6, range(3))
    small = solve_rank_constrained(X, Z, selected, m)
    X, Z = (torch.nn.functional.pad(V, (0, d - 6)) for V in (X, Z))
    padded = solve_rank_constrained(X, Z, selected, m)
    assert padded.statuses == small.statuses
    assert padded.W.shape == (3, d, d)
    torch.testing.assert_close(padded.lower_bound, small.lower_bound, rtol=1e-8, atol=0)
    torch.testing.assert_close(
        padded.objective, small.objective, rtol={1: 5e-2, 2: 1e-4}[m], atol=0
    )
    assert (padded.problem.margins(padded.W) >= 1 - 1e-9).all()
    sigma = torch.linalg.svdvals(padded.W)
    torch.testing.assert_close(sigma.sum(dim=1), padded.objective, rtol=1e-9, atol=0)
    assert (sigma[:, m:] <= 1e-6 * sigma[:, :1]).all()


def test_rank_constrained_solutions_are_the_same_with_and_without_gram_matrices(monkeypatch):
    X, Z, selected = spheres(6, 5, 6, range(2))
    by_gram = solve_rank_constrained(X, Z, selected, 2)
    monkeypatch.setattr(pivoting, "GRAM_ROWS", 0)
    by_rows = solve_rank_constrained(X, Z, selected, 2)
    assert by_rows.statuses == by_gram.statuses
    torch.testing.assert_close(by_rows.objective, by_gram.objective, rtol=1e-4, atol=0)


@pytest.mark.parametrize("p", [1.2345678, 1.001, 2 + 1e-9, math.pi, 100.0])
def test_the_least_norm_of_one_row_is_that_of_the_very_p(p):
    """min |w|_p s.t. <a, w> >= 1 is 1 / |a|_q."""
    X = torch.tensor([[[[1.0, 2.0], [0.0, 0.0]]]]).double()
    Z = torch.tensor([[[3.0, 1.0]]]).double()
    solution = solve_svm(X, Z, torch.zeros(1, 1, dtype=torch.int64), Entrywise(p))
    a = torch.outer(X[0, 0, 0], Z[0, 0]).flatten()
    q = p / (p - 1)
    expected = 1 / (a.max() * (a / a.max()).pow(q).sum() ** (1 / q))
    assert solution.status == ("solved",)
    assert solution.objective.item() == pytest.approx(expected.item(), rel=1e-10)


EDGES = [SMALL, SMALL + 1, MANY - 1, MANY, MANY + 1, WIDE - 1, WIDE, WIDE + 1]
"""Dimensions on both sides of where another method is used."""


@pytest.mark.parametrize("norm", quick(*NORMS))
@pytest.mark.parametrize("d", EDGES)
def test_zeros_in_further_dimensions_change_no_norm(d, norm):
    """Also of queries of another dimension than the tokens, and with equalities."""
    X, Z, selected = spheres(3, 4, 6, range(2))
    small = solve_svm(X, Z, selected, norm)
    padded = (torch.nn.functional.pad(V, (0, d - 6)) for V in (X, Z))
    large = solve_svm(*padded, selected, norm)
    assert small.status == large.status == ("solved",) * 2
    torch.testing.assert_close(large.objective, small.objective, rtol=2e-9, atol=0)
    assert large.W[:, 6:].abs().amax() <= 1e-7 * large.W.abs().amax()
    rows = single_token(X, Z, selected)
    U, V = rows.D, torch.nn.functional.pad(rows.queries, (0, d - 6))
    C = normal(2, 1, 6), torch.nn.functional.pad(normal(2, 1, 6, seed=1), (0, d - 6))
    for factors, equality in (((U, V), C), ((V, U), C[::-1])):
        plain = solve_least_norm(factors, rows.h, norm)
        torch.testing.assert_close(plain.objective, small.objective, rtol=2e-9, atol=0)
        held = solve_least_norm(factors, rows.h, norm, (equality, torch.ones(2, 1)))
        assert held.status == ("solved",) * 2
        assert held.W.shape[1:] == (factors[0].shape[2], factors[1].shape[2])
        assert_optimal(held.problem, held)


@pytest.mark.parametrize("norm", quick(*NORMS))
@pytest.mark.parametrize("copies", [LARGE // 12, LARGE // 12 + 1, 200])
def test_copies_of_samples_change_no_norm(copies, norm):
    X, Z, selected = spheres(4, 4, 6, range(1))
    once = solve_svm(X, Z, selected, norm)
    X, Z, selected = X.repeat(1, copies, 1, 1), Z.repeat(1, copies, 1), selected.repeat(1, copies)
    problem = single_token(X, Z, selected)
    assert (problem.N >= LARGE) == (copies > LARGE // 12)
    solution = solve(problem, norm, 4)
    assert_optimal(problem, solution)
    torch.testing.assert_close(solution.objective, once.objective, rtol=2e-9, atol=0)
