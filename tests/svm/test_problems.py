"""Every kind of problem in every norm: solved with its KKT conditions, and its twin infeasible.

Solutions and rays are checked by `tests.kkt`, which shares nothing with the solvers.
"""

import math
import sys
from itertools import product

import numpy as np
import pytest
import torch

from attnsvm import solve_gen_svm, solve_least_norm, solve_svm
from attnsvm.linalg.decompositions import JACOBI
from attnsvm.svm.interior_point import LARGE
from attnsvm.svm.reduction import MANY, WIDE
from tests.kkt import assert_infeasible, assert_optimal, normal
from tests.quick import quick
from tests.svm.instances import NORMS, spheres


def contradictory(A, b, right):
    """Return rows with a further one, minus their sum, of this right-hand side."""
    return torch.cat([A, -A.sum(1, keepdim=True)], 1), torch.cat([b, right], 1)


def of_spheres(norm, n, T, d, B=6):
    """Att-SVM; in the twin a further token puts the selected one between two others."""
    X, Z, selected = spheres(n, T, d, range(B))
    chosen, other = (
        X.take_along_dim(token[..., None, None], 2) for token in (selected, (selected + 1) % T)
    )
    between = torch.cat([X, 2 * chosen - other], 2)
    return [solve_svm(X, Z, selected, norm)], [solve_svm(between, Z, selected, norm)]


def classes(norm, n, apart=0.0):
    """A linear classifier of points around K means; of two equal points in the twin."""
    (K, d), labels = (10, 20), torch.arange(n) % 10
    Z = (0.5 + 0.3 * normal(K, d, seed=1)[labels] + 0.15 * normal(n, d)).clamp(0, 1)
    X, labels = torch.eye(d).double()[:K].expand(1, n, K, d), labels[None]
    equal = Z.index_copy(0, torch.tensor([1]), Z[:1])
    if apart:
        Z = equal + apart * normal(d, seed=3) * (torch.arange(n) == 1)[:, None]
    solved, twin = (solve_svm(X, queries[None], labels, norm) for queries in (Z, equal))
    return [solved], [twin]


def random_labels(norm, n):
    """Cover: points in general position are separated up to about the number of dimensions."""
    Z = (0.5 + 0.3 * normal(1, n, 20)).clamp(0, 1)
    X = torch.eye(20).double()[:10].expand(1, n, 10, 20)
    labels = torch.randint(10, (1, n), generator=torch.Generator().manual_seed(0))
    few = solve_svm(X[:, :15], Z[:, :15], labels[:, :15], norm)
    return [few], [solve_svm(X, Z, labels, norm)]


def several_tokens(norm, n, T, d, count):
    """Gen-SVM with the first tokens attended; in the twins one is equal, one between two others."""
    X, Z, _ = spheres(n, T, d, range(1 if n * T * d > 4000 else 3))
    attended = (torch.arange(X.shape[2]) < count).expand(X.shape[:3])
    logs = normal(*X.shape[:3])
    solved = solve_gen_svm(X, Z, attended, logs, norm)
    opposite, equal = X.clone(), X.clone()
    opposite[:, 0, count] = 2 * X[:, 0, 0] - X[:, 0, count + 1]
    equal[:, -1, 1] = X[:, -1, 0]
    twins = [solve_gen_svm(tokens, Z, attended, logs, norm) for tokens in (equal, opposite)]
    return list(solved), [twins[0][0], twins[1][1]]


def normal_matrices(norm, M, size):
    """Rows of any entries, right-hand sides of both signs; twins with opposite rows."""
    rng = np.random.default_rng(0)
    shapes = (4, 6, 4, 3), (4, 6), (4, M, 4, 3), (4, M)
    A, b, C, e = (torch.from_numpy(rng.standard_normal(shape)) for shape in shapes)
    solved = [solve_least_norm(A, size * b, norm, (C, size * e) if M else None)]
    A, b = A[:, :3], b[:, :3].abs() + 1
    twins = [solve_least_norm(*contradictory(A, b, b[:, :1]), norm)]
    if M:
        twice, e = torch.cat([C, C[:, :1]], 1), torch.cat([e, e[:, :1]], 1)
        solved += [solve_least_norm(A, b, norm, (twice, e))]
        twins += [solve_least_norm(None, None, norm, (twice, e + torch.tensor([0, 0, 1])))]
    return solved, twins


def slab(norm, B, N):
    """<A, W> between b and b +- width: rounding errors of a W of 1e14 would be larger."""
    A, b = normal(B, N, 4, 3, seed=5), normal(B, N, seed=6).abs() + 1
    both = torch.cat([A, -A], 1)
    wide, narrow, apart = (
        solve_least_norm(both, torch.cat([b, w - b], 1), norm) for w in (-1e-2, 1e-2, 1e-1)
    )
    return [wide] if N == 3 else [], [narrow, apart]


def six_decades(norm, M, signs):
    """Right-hand sides from 1e-6 to 1, a third of them negative with signs = -1."""
    rng = np.random.default_rng(1)
    A, W = normal(6, 14, 4, 3, seed=1), normal(6, 1, 4, 3, seed=2)
    A = A * (A * W).sum((2, 3), keepdim=True).sign()  # feasible: W has positive margins
    C = normal(6, M, 4, 3, seed=3)
    C = C - (C * W).sum((2, 3), keepdim=True) * W / W.square().sum((2, 3), keepdim=True)
    b = torch.from_numpy(10.0 ** rng.uniform(-6, 0, (6, 14)) * np.resize([signs, 1, 1], 14))
    equalities = (C, 0.0) if M else None
    solved = solve_least_norm(A, b, norm, equalities)
    assert (solved.duality_gap <= 1e-9).all()
    twin = solve_least_norm(*contradictory(A, b, 1 + 0 * b[:, :1]), norm, equalities)
    return [solved], [twin]


def near_contradiction(norm, size):
    """Rows of all sizes with a long solution; each has the unit of its own right-hand side."""
    rng = np.random.default_rng(5)
    G, W = rng.standard_normal((12, 30, 20)), rng.standard_normal((12, 20, 1))
    small = np.where(np.arange(30) % 4, 1.0, 1e-3 * min(size, 1.0))
    unit = 10.0 ** rng.uniform(-3, 3, (12, 30))
    U, b = map(torch.from_numpy, (unit[..., None] * G * np.sign(G @ W), unit * size * small))
    return [solve_least_norm((U, torch.ones_like(U[..., :1])), b, norm)], []


def small_beside_large(norm, small):
    """The first row alone is active; the twin asks for x <= -1 as well."""
    A = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]], [[1.0], [1.0]]]).double()[None]
    b = torch.tensor([[1.0, small, -1.0]]).double()
    opposite = torch.cat([A, -A[:, :1]], 1), torch.cat([b, b[:, :1]], 1)
    return [solve_least_norm(A, b, norm)], [solve_least_norm(*opposite, norm)]


def transport(norm, size):
    """A polytope without interior: sums of rows at least r, of columns at most c, x >= 0.

    r and c have the same total, so that all are equalities. The twin has less in the columns.
    """
    rng = np.random.default_rng(2)
    m, n = 12, 9
    r, c = 1 + 0.1 * rng.random(m), 1 + 0.1 * rng.random(n)
    c *= r.sum() / c.sum()
    eye = np.eye(m)[:, :, None] * np.ones(n), -np.ones((m, 1)) * np.eye(n)[:, None]
    A = torch.from_numpy(np.concatenate([*eye, np.eye(m * n).reshape(-1, m, n)]))[None]
    b = size * torch.from_numpy(np.concatenate([r, -c, np.zeros(m * n)]))[None]
    solved = solve_least_norm(A, b, norm)
    assert (solved.kappa < 1e3).all()
    b[0, m] += 0.1 * size
    return [solved], [solve_least_norm(A, b, norm)]


def offsets(norm, n, T, r):
    """In the twin a token of the sample of least offset equals the selected one."""
    X, Z, selected = spheres(n, T, 12, range(2))
    gamma = normal(2, n, seed=1)
    equal, least = X.clone(), (torch.arange(2), gamma.argmin(1))
    equal[least] = X[least][:, :1].clone()
    pair = (solve_svm(x, Z, selected, norm, offsets=gamma, ratio=r) for x in (X, equal))
    return [next(pair)], [*pair]


FURTHER = ["spectral+max", "l5", "schatten1.99999"]
EXACT_P = [f"l{p}" for p in ("1.2345678", "1.001", "2.000000001", "3.141592653589793", "100")]
ENTRYWISE = ["max", "l1", "l1.75", "l3", "l5"]
EDGES = [JACOBI, JACOBI + 1, MANY - 1, MANY, WIDE - 1, WIDE]
"""Dimensions on both sides of where another method is used."""

ROWS = [
    (9, of_spheres, [*NORMS, *FURTHER], [(4, 4, 6)]),
    (5, of_spheres, EXACT_P, [(2, 3, 4, 2)]),
    (1, of_spheres, NORMS, [(5, 5, 3), (2, 9, 2)]),
    (1, of_spheres, ENTRYWISE, [(2, 3, WIDE, 1), (1, 2, WIDE, 2)]),
    (2, of_spheres, ["frobenius", "nuclear"], [(3, 4, WIDE), (2, 9, 400), (1, 2, 300)]),
    (3, of_spheres, ["frobenius"], [(4, 600, 8, 1), (10, 301, 16, 1), (16, 70, 32, 1)]),
    (6, of_spheres, NORMS, [(2, 4, d, 1) for d in EDGES]),
    (9, normal_matrices, NORMS, [(2, 1e8), (0, 1.0)]),
    (3, several_tokens, NORMS, [(8, 12, 12, 2), (8, 12, 12, 4)]),
    (1, several_tokens, NORMS, [(4, 5, 300, 2), (40, 16, 32, 6)]),
    (2, six_decades, NORMS, [(2, -1), (2, 1), (0, -1), (0, 1)]),
    (9, slab, NORMS, [(20, 3)]),
    (2, slab, ["frobenius"], [(1, 2), (1, 50)]),
    (6, small_beside_large, NORMS, [(small,) for small in (1e-16, 0.0, -1e-16, 1e-5, 1e-100)]),
    (3, transport, ["frobenius"], [(1e-9,), (1.0,), (1e9,)]),
    (2, near_contradiction, ["frobenius"], [(1e-13,), (1.0,), (1e-6,), (1e6,)]),
    (1, classes, NORMS, [(LARGE // 9 + 1,), (LARGE // 9,), (200,)]),
    (2, classes, ["frobenius"], [(100, 1e-6), (100, 1e-4), (100, 1e-2)]),
    (1, random_labels, ["frobenius"], [(100,), (250,)]),
    (2, offsets, NORMS, [(5, 5, r) for r in (1.0, math.inf, 0.1, 1e9)]),
    (1, offsets, NORMS, [(8, 80, 0.5), (8, 80, math.inf)]),
]
CASES = [
    case
    for count, function, norms, rows in ROWS
    for case in quick(*product([function], rows, norms), count=count)
]


def named(part):
    return f"{part[0].__name__}{part[1]}{part[2]}" if isinstance(part, tuple) else None


@pytest.mark.parametrize("row", CASES, ids=named)
def test_problems_are_solved_and_their_twins_infeasible(row):
    function, arguments, norm = row
    solved, infeasible = function(norm, *arguments)
    for solution in solved:
        assert {*solution.status} <= {"solved", "infeasible"}
        assert_optimal(solution.problem.at_norm(solution.objective), solution)
        apart = solution.objective.isinf()
        infeasible += [solution[apart]] if apart.any() else []
    for solution in infeasible:
        assert_infeasible(solution.problem.at_norm(math.inf), solution)


GENERATED = [
    *product([classes], [(n,) for n in (30, 40, 50, 60)], ["frobenius"]),
    *product([of_spheres], [(6, 8, 10), (1, 30, 6)], [*NORMS, "l5"]),
    *product([several_tokens], [(8, 12, 12, 4)], NORMS),
    *product([offsets], [(6, 6, 0.5), (6, 6, math.inf)], NORMS),
]


@pytest.mark.parametrize("row", quick(*GENERATED, count=9), ids=named)
def test_the_method_for_many_rows_solves_those_of_few_rows_too(row, monkeypatch):
    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "LARGE", 1)
    test_problems_are_solved_and_their_twins_infeasible(row)
