"""The solvers on tensors of another device: nothing crosses over, and the answers are the CPU's."""

import pytest
import torch

from attnsvm.svm import solve_gen_svm, solve_rank_constrained, solve_svm
from tests.svm.instances import gaussian, spheres
from tests.svm.pretended import GPU, PretendedGpu

both_norms = pytest.mark.parametrize("norm", ["frobenius", "nuclear"])


def assert_same(solution, known):
    assert solution.W.device.type == GPU.type
    assert solution.certificate.ray.device.type == GPU.type
    assert solution.status == known.status
    objective = solution.objective.cpu()
    torch.testing.assert_close(objective, known.objective, rtol=1e-9, atol=0)


def moved(*tensors):
    return [x.to(GPU) for x in tensors]


@both_norms
def test_feasible_and_infeasible(norm):
    X, Z, selected = gaussian(3, 4, 6, 6, seed=1)
    X[1, 0, 1] = X[1, 0, 0]
    X[2, 1, 1] = 2 * X[2, 1, 0] - X[2, 1, 2]
    mask = torch.ones(X.shape[:3], dtype=torch.bool)
    mask[3, :, 2:] = False
    mask[4, :, 1:] = False
    known = solve_svm(X, Z, selected, norm=norm, mask=mask)
    assert set(known.status) == {"solved", "infeasible", "unconstrained"}
    with PretendedGpu():
        assert_same(solve_svm(*moved(X, Z, selected), norm=norm, mask=mask.to(GPU)), known)


@both_norms
def test_gen_svm(norm):
    X, Z, _ = gaussian(3, 5, 8, 4, seed=2)
    X[1, 0, 1] = X[1, 0, 2]  # equalities that depend on each other
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :3] = True
    logs = torch.randn(X.shape[:3], generator=torch.Generator().manual_seed(0)).double()
    logs[1, 0, 1] = logs[1, 0, 2]
    logs[2] = 0.0
    known = solve_gen_svm(X, Z, attended, logs, norm=norm)
    with PretendedGpu():
        solutions = solve_gen_svm(*moved(X, Z, attended, logs), norm=norm)
        for solution, answer in zip(solutions, known, strict=True):
            assert "solved" in answer.status
            assert_same(solution, answer)


@pytest.mark.full
@both_norms
def test_one_large_instance(norm):
    X, Z, selected = spheres(16, 70, 12, range(1))
    known = solve_svm(X, Z, selected, norm=norm)
    with PretendedGpu():
        assert_same(solve_svm(*moved(X, Z, selected), norm=norm), known)


def test_rank_constrained():
    X, Z, selected = spheres(4, 4, 4, range(2))
    known = solve_rank_constrained(X, Z, selected, 1)
    with PretendedGpu():
        solution = solve_rank_constrained(*moved(X, Z, selected), 1)
        torch.testing.assert_close(solution.objective.cpu(), known.objective, rtol=1e-6, atol=0)
