"""Equalities that nearly depend on each other, or contradict each other by little."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnsvm.svm import SvmProblem, solve, solve_gen_svm
from attnsvm.svm.certificate import certify, check_ray
from attnsvm.svm.solution import Candidate
from attnsvm.verify import verify
from tests.svm.instances import stored_svms

both_norms = pytest.mark.parametrize("name", ["frobenius", "nuclear"])


def equalities(D, h):
    """One query e_1, rows D (2, 2)."""
    D, h = torch.tensor([D], dtype=torch.float64), torch.tensor([h], dtype=torch.float64)
    Z = torch.tensor([[[1.0, 0.0]]]).double()
    return SvmProblem(D, Z, h, torch.full((1, 2), 2, dtype=torch.int8), torch.tensor([[1, 2]]))


@both_norms
@pytest.mark.parametrize("power", range(-47, 0, 2))
def test_nearly_dependent(name, power):
    # w_1 = 1 and w_1 + eps w_2 = 1 + eps: w = (1, 1) for every eps > 0.
    eps = 2.0**power
    problem = equalities([[1.0, 0.0], [1.0, eps]], [1.0, 1.0 + eps])
    solution = solve(problem, name, 3)
    proof = solution.certificate
    if eps > 1e-6 and name == "frobenius":
        assert solution.status == ("solved",)
    if eps > 1e-5:
        assert proof.gap_target < 1e-6
    if solution.status == ("solved",):
        slack = proof.gap_target.item()
        assert slack <= max(1e-9, 1e-13 / eps)
        assert solution.lower_bound.item() <= 2**0.5 * (1 + slack)
        assert solution.objective.item() >= 2**0.5 * (1 - slack)
        assert torch.allclose(solution.W[0, :, 0], torch.ones(2).double(), atol=2 * slack)


@pytest.mark.parametrize("power", [-53, -50])
def test_rounding_apart_is_dependent(power):
    # Rows less than 32 eps apart are read as one: tokens are differences of rounded numbers.
    eps = 2.0**power
    problem = equalities([[1.0, 0.0], [1.0, eps]], [1.0, 1.0 + eps])
    solution = solve(problem, "frobenius", 3)
    assert solution.status == ("solved",)
    assert solution.objective.item() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("eps", [1e-4, 1e-8, 1e-11, 1e-12, 1e-13])
def test_a_small_residual_is_no_proof(eps):
    # W = e_1 e_1^T misses the second equality by eps only, but the least norm is sqrt(2).
    problem = equalities([[1.0, 0.0], [1.0, eps]], [1.0, 1.0 + eps])
    candidate = Candidate(
        torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]).double(),
        torch.tensor([[1.0, 0.0]]).double(),
        torch.full((1, 2), torch.nan).double(),
    )
    verdict = certify(problem, candidate, "frobenius", 1e-9, 1e-6)
    assert verdict.status == ("undecided",)
    assert verdict.certificate.upper.item() >= 2**0.5


@both_norms
@pytest.mark.parametrize("delta", [1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.3, 0.7]])
def test_contradictions_are_never_solved(name, delta, row):
    problem = equalities([row, row], [1.0, 1.0 + delta])
    solution = solve(problem, name, 3)
    assert solution.status[0] in ("undecided", "infeasible")
    if solution.status[0] == "infeasible":
        ray, ratio = check_ray(problem, solution.certificate.ray)
        assert ratio >= 1e12
        assert (problem.h * ray).sum() > 0
    if delta == 1.0:
        assert solution.status == ("infeasible",)


@both_norms
def test_residuals_are_verified(name):
    # One sample, x_0 - x_1 = e_1, x_0 - x_2 = e_1 + 2^-20 e_2.
    X = np.zeros((1, 1, 3, 2))
    X[0, 0, 1:, 0] = -1.0
    X[0, 0, 2, 1] = -(2.0**-20)
    Z = np.array([[[1.0, 0.0]]])
    attended = np.ones((1, 1, 3), dtype=bool)
    logs = np.array([[[0.0, -1.0, -1.0 - 2.0**-20]]])
    fin, _ = solve_gen_svm(X, Z, attended, logs, norm=name)
    (record,) = stored_svms(fin, X, Z, np.zeros((1, 1), dtype=int))
    record = replace(record, attended=attended[0], log_softmax=logs[0])
    if name == "frobenius":
        assert record.status == "solved"
    assert verify(record).proved, verify(record).reason
    wrong = np.array([[1.0, 0.0], [0.0, 0.0]])  # misses by 2^-20: far from the least norm
    forged = replace(record, status="solved", W=wrong, objective=1.0, duality_gap=0.0)
    assert not verify(forged).proved
