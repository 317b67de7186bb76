"""What every solver must do: the same interface, candidates that the certificate can judge."""

from __future__ import annotations

import math

import pytest
import torch

from attnsvm.norm import norm_of
from attnsvm.svm import SvmProblem, SvmStatus, single_token, solve
from attnsvm.svm.certificate import certify
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.interior_point import ConstraintGeneration, InteriorPoint
from attnsvm.svm.rank_constrained import RankConstrained
from attnsvm.svm.reference import Cvxpy
from attnsvm.svm.solve import solver_of
from attnsvm.svm.tolerances import GAP, RANK_TOLERANCE
from tests.svm.instances import spheres

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
BOUNDED = [
    (LeastDistance(), 1e-9),
    (InteriorPoint(norm_of("nuclear")), 1e-9),
    (ConstraintGeneration("frobenius"), 1e-9),
    (ConstraintGeneration("nuclear"), 1e-9),
    (Cvxpy("frobenius", "CLARABEL", **TIGHT), 1e-6),
    (Cvxpy("nuclear", "CLARABEL", **TIGHT), 1e-6),
]
"""Solvers that return multipliers, and the gap that theirs close."""


def orthogonal(n: int, T: int) -> tuple[SvmProblem, float, float]:
    """Rows d_k z_k^T, orthonormal: W = sum_k d_k z_k^T, of n (T - 1) rows; its two norms.

    The margins are one at this W, and it is M(1): the bracket closes in both norms. As a matrix it
    has n singular values sqrt(T - 1).
    """
    d = n * T
    X, Z = torch.zeros(1, n, T, d, dtype=torch.float64), torch.zeros(1, n, d, dtype=torch.float64)
    for i in range(n):
        Z[0, i, i] = 1.0
        for t in range(1, T):
            X[0, i, t, n + i * (T - 1) + t - 1] = -1.0
    problem = single_token(X, Z, torch.zeros(1, n, dtype=torch.int64))
    return problem, math.sqrt(n * (T - 1)), n * math.sqrt(T - 1)


def one_row(d: int) -> tuple[SvmProblem, float, float]:
    """A single row: W = d z^T / (||d|| ||z||)^2, of norm 1 / (||d|| ||z||) in both norms."""
    x, z = torch.linspace(1, 2, d).double(), torch.linspace(-3, 1, d).double()
    X = torch.stack([x, torch.zeros(d).double()])[None, None]
    least = 1 / float(x.norm() * z.norm())
    return single_token(X, z[None, None], torch.zeros(1, 1, dtype=torch.int64)), least, least


KNOWN = [orthogonal(3, 4), orthogonal(1, 3), one_row(5)]


@pytest.mark.parametrize(("solver", "gap"), BOUNDED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("known", KNOWN, ids=["orthogonal", "one sample", "one row"])
def test_known_optima_are_found_and_certified(solver, gap, known):
    problem, frobenius, nuclear = known
    least = frobenius if norm_of(solver.norm).name == "frobenius" else nuclear
    verdict = certify(problem, solver.candidates(problem), solver.norm, max(gap, GAP), 1e-6)
    assert verdict.status == (SvmStatus.solved,)
    assert float(verdict.certificate.lower) <= least * (1 + 1e-12)
    assert float(verdict.certificate.upper) >= least * (1 - 1e-12)
    assert float(verdict.certificate.upper) <= least * (1 + 2 * gap)


@pytest.mark.parametrize(("solver", "gap"), BOUNDED, ids=lambda value: type(value).__name__)
def test_no_candidate_of_the_infeasible_twin_is_certified(solver, gap):
    """A token that is the selected one, moved along -d: d^T W z >= 1 and -d^T W z >= 1."""
    X, Z, selected = spheres(2, 3, 4, range(2))
    alone = X.gather(2, selected[..., None, None].expand(-1, -1, 1, 4))
    other = X[:, :, :1].where((selected != 0)[..., None, None], X[:, :, 1:2])
    twin = torch.cat([X, 2 * alone - other], dim=2)
    problem = single_token(twin, Z, selected)
    found = certify(problem, solver.candidates(problem), solver.norm, max(gap, GAP), RANK_TOLERANCE)
    assert SvmStatus.solved not in found.status
    assert found.certificate.upper.isinf().all()
    if not isinstance(solver, Cvxpy):  # which returns no ray
        assert set(found.status) == {SvmStatus.infeasible}
    assert solve(problem, solver.norm, 4).status == (SvmStatus.infeasible,) * 2


@pytest.mark.parametrize(("solver", "gap"), BOUNDED, ids=lambda value: type(value).__name__)
def test_all_solvers_of_a_norm_agree(solver, gap):
    X, Z, selected = spheres(3, 4, 6, range(3))
    problem = single_token(X, Z, selected)
    verdict = certify(problem, solver.candidates(problem), solver.norm, max(gap, GAP), 1e-6)
    reference = solve(problem, solver.norm, 4)
    torch.testing.assert_close(verdict.certificate.upper, reference.objective, rtol=2 * gap, atol=0)
    assert (verdict.certificate.lower <= reference.objective * (1 + 1e-9)).all()


def test_a_factored_candidate_has_the_bound_of_the_relaxation():
    X, Z, selected = spheres(3, 4, 6, range(3))
    problem = single_token(X, Z, selected)
    least = solve(problem, "nuclear", 4)
    solver = RankConstrained(1, InteriorPoint(norm_of("nuclear")), GAP, RANK_TOLERANCE)
    found = certify(problem, solver.candidates(problem), "nuclear", GAP, RANK_TOLERANCE)
    assert (found.certificate.upper >= least.objective * (1 - 1e-9)).all()
    torch.testing.assert_close(found.certificate.lower, least.lower_bound, rtol=1e-9, atol=0)
    solved = [status is SvmStatus.solved for status in found.status]
    assert solved == (least.rank == 1).tolist()


def test_the_solver_follows_from_norm_and_rows():
    assert isinstance(solver_of("frobenius", 10, 5), LeastDistance)
    assert isinstance(solver_of("nuclear", 10, 5), InteriorPoint)
    for norm in ("frobenius", "nuclear"):
        assert isinstance(solver_of(norm, 5000, 5), ConstraintGeneration)
        assert solver_of(norm, 5000, 5).norm.name == norm


def test_a_program_that_is_too_large_for_the_reference_is_undecided(monkeypatch):
    import cvxpy

    def too_large(*arguments, **options):
        raise MemoryError("640 GiB")

    monkeypatch.setattr(cvxpy.Problem, "solve", too_large)
    problem, *_ = orthogonal(2, 3)
    (found,) = Cvxpy("frobenius").solutions(problem)
    assert (found.status, found.cvxpy_status) == (SvmStatus.undecided, "solver_error")
    assert math.isinf(found.objective)
    assert math.isnan(found.W.sum())
    W = Cvxpy("frobenius").candidates(problem).W
    assert W.isnan().all()
