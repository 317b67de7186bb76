from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

from attnsvm.linalg.simd.blocks import from_lanes, to_lanes
from attnsvm.norm import Entrywise, Norm, norm_of
from attnsvm.svm import SvmProblem, finite_part, multi_token, single_token, solve, solve_svm
from attnsvm.svm.certificate import MANY, certify
from attnsvm.svm.interior_point import LARGE, ConstraintGeneration
from attnsvm.svm.interior_point.lanes import LaneRows
from attnsvm.svm.interior_point.rows import OneRows, transposed
from attnsvm.svm.scaling import to_given_size, to_unit_size
from attnsvm.svm.solution import Verdict
from attnsvm.svm.wide import WIDE
from tests.kkt import assert_infeasible, assert_optimal
from tests.svm.instances import gaussian, quick, sphere, spheres
from tests.svm.test_norms import nasty


def generated(problem: SvmProblem, norm: str) -> Verdict:
    """Return what constraint generation proves, however small the problem."""
    solver = ConstraintGeneration(norm)
    with np.errstate(all="ignore"):
        return certify(problem, solver.candidates(problem), norm, 1e-9, 1e-6)


EVERY = ["nuclear", "frobenius", "spectral", "max", "l1", "l1.75", "l3"]
ENTRYWISE = ["max", "l1", "l1.75", "l3", "l5"]


@pytest.mark.parametrize("norm", [*EVERY, "l5", "schatten1.5", "schatten3"])
@pytest.mark.parametrize("shape", quick((6, 8, 10), (8, 12, 12), (1, 30, 6)))
def test_constraint_generation_finds_the_same(norm, shape):
    X, Z, selected = spheres(*shape, range(3))
    problem = single_token(X, Z, selected)
    verdict = generated(problem, norm)
    usual = solve_svm(X, Z, selected, norm=norm)
    assert verdict.status == usual.status
    solved = [b for b, status in enumerate(usual.status) if status == "solved"]
    assert solved
    found, known = verdict.certificate.upper[solved], usual.objective[solved]
    assert torch.allclose(found, known, rtol=2e-9)


@pytest.mark.parametrize("norm", quick(*EVERY))
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("part", ["margins", "finite"])
def test_equalities_stay(norm, count, part):
    X, Z, _ = spheres(8, 12, 12, range(3))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :count] = True
    logs = torch.randn(X.shape[:3], generator=torch.Generator().manual_seed(0)).double()
    margins = part == "margins"
    problem = multi_token(X, Z, attended) if margins else finite_part(X, Z, attended, logs)
    verdict = generated(problem, norm)
    usual = solve(problem, norm, 12)
    assert verdict.status == usual.status == ("solved",) * 3
    torch.testing.assert_close(verdict.certificate.upper, usual.objective, rtol=2e-9, atol=0)


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_a_large_instance_with_equalities(norm):
    X, Z, _ = (x[None] for x in sphere(70, 16, 32, 0))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :6] = True  # 350 equalities
    problem = multi_token(X, Z, attended)
    assert problem.N >= LARGE
    assert problem.equality.sum() > MANY
    assert_optimal(problem, solve(problem, norm, 16))
    X[0, 0, 6] = 2 * X[0, 0, 0] - X[0, 0, 7]  # opposite sides of the selected token
    problem = multi_token(X, Z, attended)
    assert_infeasible(problem, solve(problem, norm, 16))


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_equalities_that_contradict_each_other(norm):
    X, Z, _ = (x[None] for x in sphere(70, 16, 32, 0))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :3] = True
    logs = torch.zeros(X.shape[:3]).double()
    logs[..., 1] = 1.0
    assert solve(finite_part(X, Z, attended, logs), norm, 16).status == ("solved",)
    X[0, 3, 2] = X[0, 3, 1]  # one token, two probabilities
    problem = finite_part(X, Z, attended, logs)
    assert problem.N >= LARGE
    assert_infeasible(problem, solve(problem, norm, 16))


@pytest.mark.parametrize("shape", [(4, 600, 8), (10, 301, 16)])
def test_many_tokens_in_few_dimensions(shape):
    # The rows that a sample's first W violates are more than its d dimensions can hold.
    X, Z, selected = (x[None] for x in sphere(*shape, 0))
    problem = single_token(X, Z, selected)
    solution = solve(problem, "frobenius", shape[1])
    assert solution.status == ("solved",)
    assert_optimal(problem, solution)


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_copies_of_tokens(norm):
    """Three copies of each token: supports are dependent, but their rows hold together."""
    X, Z, selected = (x[None] for x in sphere(8, 46, 24, 0))
    once = solve_svm(X, Z, selected, norm=norm)
    copied = torch.cat([X] * 3, dim=2)
    mask = torch.ones(copied.shape[:3], dtype=torch.bool)
    mask.scatter_(2, torch.cat([selected + 46, selected + 92], dim=0).T[None], False)
    problem = single_token(copied, Z, selected, mask)
    assert problem.N >= LARGE
    solution = solve(problem, norm, 138)
    assert_optimal(problem, solution)
    torch.testing.assert_close(solution.objective, once.objective, rtol=2e-9, atol=0)


def test_infeasible_twin():
    X, Z, selected = gaussian(4, 10, 6, 2, seed=1)
    X = torch.cat([X, 2 * X[:, :, :1] - X[:, :, 1:2]], dim=2)
    problem = single_token(X, Z, selected)
    verdict = generated(problem, "nuclear")
    assert set(verdict.status) == {"infeasible"}


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_equal_tokens(norm):
    X, Z, selected = (x[None] for x in sphere(16, 70, 8, 0))
    X[:, 5] = X[:, 5, :1]
    problem = single_token(X, Z, selected)
    assert problem.N >= LARGE
    assert_infeasible(problem, solve(problem, norm, 70))
    everything = torch.ones(X.shape[:3], dtype=torch.bool)  # nothing but 0 = 0 and 0 >= 0
    assert solve(multi_token(X, Z, everything), norm, 70).status == ("unconstrained",)


def test_a_large_instance():
    X, Z, selected = (x[None] for x in sphere(16, 70, 32, 0))
    problem = single_token(X, Z, selected)
    assert problem.N >= LARGE
    solution = solve(problem, "frobenius", 70)
    assert solution.status == ("solved",)
    assert solution.duality_gap.item() <= 1e-12
    token = X[:, :, :1]  # beside it its mirror image in the selected token: infeasible
    chosen = X.gather(2, selected[..., None, None].expand(-1, -1, 1, 32))
    problem = single_token(torch.cat([X, 2 * chosen - token], dim=2), Z, selected)
    assert_infeasible(problem, solve(problem, "frobenius", 71))


@pytest.mark.full
@pytest.mark.parametrize("norm", [*ENTRYWISE, "spectral"])
def test_600_rows_solved_directly_have_the_same_norm(norm):
    X, Z, selected = (x[None] for x in sphere(20, 31, 12, 0))
    problem = single_token(X, Z, selected)
    assert problem.N == 600
    usual, verdict = solve(problem, norm, 31), generated(problem, norm)
    assert verdict.status == usual.status == ("solved",)
    torch.testing.assert_close(verdict.certificate.upper, usual.objective, rtol=1e-9, atol=0)
    assert verdict.certificate.lower <= usual.objective
    assert usual.lower_bound <= verdict.certificate.upper
    chosen = X.gather(2, selected[..., None, None].expand(-1, -1, 1, 12))
    twin = single_token(torch.cat([X, 2 * chosen - X[:, :, :1]], dim=2), Z, selected)
    assert generated(twin, norm).status == ("infeasible",)


@pytest.mark.full
@pytest.mark.parametrize("norm", ["max", "l1.75", "spectral"])
def test_nasty_instances_by_constraint_generation(norm):
    """The statuses are the truth's, and the bracket meets the bounds of norms by each other."""
    solved = 0
    for one, least, kappa in nasty():
        if one.index % 16 != 3 or least == 0:
            continue
        X, Z, mask = (torch.from_numpy(getattr(one, field))[None] for field in ("X", "Z", "mask"))
        problem = single_token(X, Z, torch.zeros(X.shape[:2], dtype=torch.int64), mask)
        problem, exponent, exact = to_unit_size(problem)
        found = to_given_size(generated(problem, norm), exponent, exact)
        (status,), lower, upper = found.status, found.certificate.lower, found.certificate.upper
        at = f"{one.family} {one.index} {status}"
        if least is None:
            assert status == "infeasible", at
            continue
        d = X.shape[3]
        assert lower <= norm_of(norm).spread(d) * least * (1 + 1e-9), at
        assert least <= norm_of(norm).dual.spread(d) * upper * (1 + 1e-9), at
        assert status in (("solved",) if kappa <= 1e6 else ("solved", "undecided")), at
        assert kappa > 1e6 or found.certificate.gap <= 1e-8, at
        solved += status == "solved"
    assert solved >= 30


def test_a_norm_of_ones_own_by_constraint_generation():
    """The l1 norm, of which nothing is told but its value, its dual norm and an expression."""

    class Own(Norm):
        name, spread = "own", Entrywise(1.0).spread
        value, steepest, dual = Entrywise(1.0).value, Entrywise(1.0).steepest, Entrywise(math.inf)

        def expression(self, W: Any) -> Any:
            return cp.sum(cp.abs(W))

    X, Z, selected = spheres(6, 12, 6, range(2))
    problem = single_token(X, Z, selected)
    solver = ConstraintGeneration(Own())
    verdict = certify(problem, solver.candidates(problem), Own(), 1e-9, 1e-6)
    usual = solve(problem, "l1", 12)
    assert verdict.status == usual.status
    assert "solved" in usual.status
    solved = usual.objective.isfinite()
    torch.testing.assert_close(
        verdict.certificate.upper[solved], usual.objective[solved], rtol=2e-9, atol=0
    )


@pytest.mark.parametrize("norm", quick(*ENTRYWISE))
def test_entrywise_norms_in_many_dimensions_are_not_reduced_to_the_span(norm):
    """One row has the norm of its dual direction; several are solved, or proved infeasible."""
    X, Z, selected = spheres(1, 2, WIDE, range(2))
    problem = single_token(X, Z, selected)
    row = problem.combine(torch.ones_like(problem.h))
    found = solve(problem, norm, 2)
    assert found.status == ("solved", "solved")
    torch.testing.assert_close(
        found.objective, 1 / norm_of(norm).dual.value(row), rtol=1e-9, atol=0
    )
    X, Z, selected = spheres(2, 3, WIDE, range(1))
    assert solve_svm(X, Z, selected, norm=norm).status == ("solved",)
    X = torch.cat([X, 2 * X[:, :, :1] - X[:, :, 1:]], dim=2)
    assert solve_svm(X, Z, torch.zeros_like(selected), norm=norm).status == ("infeasible",)


@pytest.fixture
def both():
    """Rows of three instances in lanes, and those of the second one alone, with matrices."""
    X, Z, selected = spheres(4, 6, 5, range(3))
    problem = single_token(X, Z, selected)
    problem = replace(problem, Z=problem.Z[..., :4])
    kind = problem.kind.clone()
    eight = LaneRows(problem.D, problem.Z, problem.h, kind)
    one = OneRows(problem.take(slice(1, 2)), torch.arange(problem.N), torch.ones(()).double())
    one.D = problem.D[1:2, ..., None]
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        given = torch.rand(3, *shape, generator=generator, dtype=torch.float64)
        return to_lanes(given), given[1:2, ..., None]

    return eight, one, draw


def assert_same(eight, one):
    torch.testing.assert_close(from_lanes(eight, 3)[1], one[0, ..., 0], rtol=1e-12, atol=1e-13)


def test_eight_rows_at_a_time_do_what_one_does(both):
    """Products with rows and of matrices, factors, solutions, definite steps."""
    eight, one, draw = both
    (a8, a1), (W8, W1), (t8, t1), (b8, b1) = draw(20, 1), draw(5, 4), draw(5, 4), draw(4, 4)
    b8, b1 = b8 + transposed(b8), b1 + transposed(b1)
    G = (one.D[0, :, :, None, 0] * one.Z[0, one.sample, None, :, 0]).flatten(1)
    theta, beta = t1.flatten(), b1[0, ..., 0]
    assert_same(eight.margins(W8), one.margins(W1))
    torch.testing.assert_close(one.margins(W1).flatten(), G @ W1.flatten())
    assert_same(eight.combine(a8), one.combine(a1))
    torch.testing.assert_close(one.combine(a1).flatten(), a1.flatten() @ G)
    K = (G * theta) @ G.T
    crossed = torch.zeros(20, 5, 4).double()
    crossed[:, :4] = beta * G.unflatten(1, (5, 4))[:, :4].mT
    for weights, expected in (((), K), ((b8, b1), K + crossed.flatten(1) @ G.T)):
        K8, K1 = eight.gram(t8, *weights[:1]), one.gram(t1, *weights[1:])
        torch.testing.assert_close(K1[0, ..., 0].tril(), expected.tril())
        torch.testing.assert_close(from_lanes(K8, 3)[1].tril(), expected.tril())
    assert_same(eight.product(transposed(W8), t8), one.product(transposed(W1), t1))
    A8, A1 = (rows.product(transposed(X), X) for rows, X in ((eight, W8), (one, W1)))
    assert_same(eight.cholesky(A8), one.cholesky(A1))
    assert_same(eight.inverse_factor(A8), one.inverse_factor(A1))
    for rows, X in ((eight, W8), (one, W1)):
        U, sigma, V = rows.svd(X)
        again = rows.product(U[:, :, :4] * transposed(sigma), transposed(V))
        torch.testing.assert_close(again, X, rtol=1e-12, atol=1e-13)
    longest8, longest1 = draw(1, 1)
    steps = eight.definite_step(A8, -b8, None, longest8), one.definite_step(A1, -b1, None, longest1)
    assert_same(*steps)
    least = torch.linalg.eigvalsh((A1 - steps[1] * b1)[0, ..., 0])[0]
    assert least > 0
    (s8, s1), (f8, f1) = draw(20, 1), draw(20, 1)
    found = eight.solver(eight.gram(t8), s8, a8)(f8), one.solver(one.gram(t1), s1, a1)(f1)
    exact = torch.linalg.solve(K + (s1 / a1).flatten().diag(), f1.flatten())
    for x in (from_lanes(found[0], 3)[1].flatten(), found[1].flatten()):
        torch.testing.assert_close(x, exact, rtol=1e-9, atol=1e-12)
