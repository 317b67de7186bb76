"""Right-hand sides of very different size, degenerate constraints, and what rounding may hide."""

import numpy as np
import pytest
import torch

from attnsvm import solve_least_norm
from attnsvm.svm import solve_svm
from attnsvm.verify import verify
from tests.kkt import norm as size_of
from tests.quick import quick
from tests.svm.instances import gaussian, stored_svms

NORMS = quick("frobenius", "nuclear", "max", "l1", "spectral", "l3", "schatten1.5")
every_norm = pytest.mark.parametrize("norm", NORMS)


@every_norm
@pytest.mark.parametrize("small", [1e-5, 1e-16, 1e-100, 0.0, -1e-16])
def test_a_small_right_hand_side_beside_large_ones(norm, small):
    """The first row alone is active; the twin asks for x <= -1 as well."""
    A = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]], [[1.0], [1.0]]]).double()
    solution = solve_least_norm(A, torch.tensor([1.0, small, -1.0]).double(), norm)
    assert solution.status == "solved"
    least = torch.tensor([[[1.0], [max(small, 0.0)]]]).double()
    assert solution.objective == pytest.approx(size_of(least, norm).item(), rel=1e-8)
    A[2] = torch.tensor([[-1.0], [0.0]])
    assert solve_least_norm(A, [1.0, small, 1.0], norm).status == "infeasible"


@pytest.mark.parametrize("norm", quick("frobenius", "nuclear", "max"))
@pytest.mark.parametrize("margins", [1e13, 1e90, (1.0, 1e-14, 1e-3), (1.0, 0.0, 1e-7)])
def test_given_margins_are_proved_in_exact_arithmetic(norm, margins):
    X, Z, selected = (x.numpy() for x in gaussian(4, 4, 6, 3, seed=7))
    margins = np.resize(margins, (3, 12)).astype(float)
    solution = solve_svm(X, Z, selected, norm, margins=margins)
    assert set(solution.status) == {"solved"}
    assert (solution.duality_gap <= 1e-9).all()
    for record in stored_svms(solution, X, Z, selected, margins=margins):
        assert verify(record).proved, verify(record).reason


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_a_polytope_without_interior(size):
    """A transport plan of least norm: x_ij = r_i / n + c_j / m - s / (m n) where that is positive.

    Sums of rows are at least r, those of columns at most c, and both have the same total s, so that
    all are equalities. The twin has less in the columns.
    """
    rng = np.random.default_rng(2)
    m, n = 12, 9
    r, c = 1 + 0.1 * rng.random(m), 1 + 0.1 * rng.random(n)
    c *= r.sum() / c.sum()
    plan = r[:, None] / n + c / m - r.sum() / (m * n)
    assert plan.min() > 0
    eye = np.eye(m)[:, :, None] * np.ones(n), -np.ones((m, 1)) * np.eye(n)[:, None]
    A = np.concatenate([*eye, np.eye(m * n).reshape(-1, m, n)])
    b = size * np.concatenate([r, -c, np.zeros(m * n)])
    solution = solve_least_norm(A, b, "frobenius")
    assert solution.status == "solved"
    assert solution.objective == pytest.approx(size * np.linalg.norm(plan), rel=1e-10)
    assert solution.kappa < 1e3
    b[m] += 0.1 * size
    assert solve_least_norm(A, b, "frobenius").status == "infeasible"
