"""Equalities that nearly depend on each other, or contradict each other by little."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnsvm.svm import solve_gen_svm, solve_least_norm
from attnsvm.svm.certificate import certify
from attnsvm.svm.solution import Candidate
from attnsvm.verify import verify
from tests.kkt import assert_infeasible
from tests.svm.instances import both_norms, stored_svms


def least(first, second, right, name="frobenius"):
    """Solve <first, w> = 1, <second, w> = right."""
    C, e = (torch.tensor([x], dtype=torch.float64) for x in ([first, second], [1.0, right]))
    return solve_least_norm(None, None, name, (C[..., None], e))


@both_norms
@pytest.mark.parametrize("power", range(-53, 0, 2))
def test_nearly_dependent(name, power):
    """w_1 = 1 and w_1 + eps w_2 = 1 + eps: w = (1, 1); rows 32 eps apart are read as equal."""
    eps = 2.0**power
    solution = least([1.0, 0.0], [1.0, eps], 1.0 + eps, name)
    length = 1.0 if power < -47 else 2**0.5
    if power < -49 or eps > 1e-6:
        assert name == "nuclear" or solution.status == ("solved",)
    slack = solution.certificate.gap_target.item()
    assert eps <= 1e-5 or slack < 1e-6
    if solution.status == ("solved",):
        assert slack <= (1e-9 if power < -47 else max(1e-9, 1e-13 / eps))
        assert solution.lower_bound.item() <= length * (1 + slack)
        assert solution.objective.item() >= length * (1 - slack)


@pytest.mark.parametrize("eps", [1e-4, 1e-8, 1e-11, 1e-12, 1e-13])
def test_a_small_residual_is_no_proof(eps):
    """W = e_1 misses the second equality by eps only, but the least norm is sqrt(2)."""
    problem = least([1.0, 0.0], [1.0, eps], 1.0 + eps).problem
    W, a = (torch.tensor([[1.0, 0.0]]).double() for _ in range(2))
    candidate = Candidate(W[..., None], a, torch.nan * a)
    verdict = certify(problem, candidate, "frobenius", 1e-9, 1e-6)
    assert verdict.status == ("undecided",)
    assert verdict.certificate.upper.item() >= 2**0.5


@both_norms
@pytest.mark.parametrize("delta", [1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.3, 0.7]])
def test_contradictions_are_never_solved(name, delta, row):
    solution = least(row, row, 1.0 + delta, name)
    assert solution.status[0] == "infeasible" or (solution.status[0] == "undecided" and delta < 1)
    if solution.status[0] == "infeasible":
        assert solution.certificate.ray_ratio >= 1e12
        assert_infeasible(solution.problem, solution)


@both_norms
def test_residuals_are_verified(name):
    """One sample, x_0 - x_1 = e_1, x_0 - x_2 = e_1 + 2^-20 e_2."""
    X = np.zeros((1, 1, 3, 2))
    X[0, 0, 1:, 0], X[0, 0, 2, 1] = -1.0, -(2.0**-20)
    Z, attended = np.array([[[1.0, 0.0]]]), np.ones((1, 1, 3), dtype=bool)
    logs = np.array([[[0.0, -1.0, -1.0 - 2.0**-20]]])
    fin, _ = solve_gen_svm(X, Z, attended, logs, norm=name)
    (record,) = stored_svms(fin, X, Z, np.zeros((1, 1), dtype=int))
    record = replace(record, attended=attended[0], log_softmax=logs[0])
    assert name == "nuclear" or record.status == "solved"
    assert verify(record).proved, verify(record).reason
    wrong = np.array([[1.0, 0.0], [0.0, 0.0]])  # misses by 2^-20: far from the least norm
    forged = replace(record, status="solved", W=wrong, objective=1.0, duality_gap=0.0)
    assert not verify(forged).proved
