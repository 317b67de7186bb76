"""SVMs in every norm: known optima, independence of the batch, norms of one's own, CVXPY."""

from __future__ import annotations

import math
import sys
from typing import Any

import cvxpy as cp
import pytest
import torch

from attnsvm.norm import Entrywise, Norm
from attnsvm.svm import single_token, solve, solve_gen_svm, solve_svm
from tests.kkt import assert_optimal, dual_norm, norm, normal
from tests.quick import quick
from tests.svm.instances import gaussian, spheres

OTHERS = ["max", "l1", "l1.75", "l3", "nuclear", "spectral", "schatten1.5", "schatten3"]
EXACT_P = [f"l{p}" for p in ("1.2345678", "1.001", "2.000000001", "3.141592653589793", "100")]


@pytest.mark.parametrize("name", ["frobenius", *OTHERS, "spectral+max", *EXACT_P])
def test_one_row_has_the_norm_of_its_dual_direction(name):
    """min norm(W) s.t. <d z^T, W> >= 1 is 1 / dual_norm(d z^T)."""
    problem = single_token(*gaussian(1, 2, 4, 3, seed=2))
    row = problem.combine(torch.ones_like(problem.h))
    solution = solve(problem, name, 2)
    assert solution.status == ("solved",) * 3
    torch.testing.assert_close(solution.objective, 1 / dual_norm(row, name), rtol=1e-9, atol=0)
    known = name in ("frobenius", "nuclear")
    assert solution.rank_bound.tolist() == [1 if known else -1] * 3
    if known:
        W = row / norm(row, "frobenius").square()[:, None, None]
        torch.testing.assert_close(solution.W, W, rtol=1e-9, atol=1e-12)
        assert solution.rank.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["frobenius", "spectral+max", *quick("nuclear", *OTHERS)])
def test_several_tokens_and_masks(name):
    """Logits minus log s, or minus 0, are constant inside O_i, and W_mm has margin one outside."""
    X, Z, _ = gaussian(3, 5, 6, 4, seed=8)
    mask = normal(4, 3, 5, seed=9) > -1
    attended = mask & (normal(4, 3, 5) > 0)
    mask[..., 0] = attended[..., 0] = True
    logs = normal(4, 3, 5, seed=8).log_softmax(-1)
    both = solve_gen_svm(X, Z, attended, logs, name, mask)
    for solution, wanted in zip(both, (logs, 0 * logs), strict=True):
        assert solution.status == ("solved",) * 4
        assert_optimal(solution.problem, solution)
        rest = torch.einsum("bntd,bde,bne->bnt", X, solution.W, Z) - wanted
        low = torch.where(attended, rest, torch.inf).amin(-1)
        high = torch.where(attended, rest, -torch.inf).amax(-1)
        torch.testing.assert_close(low, high, rtol=0, atol=1e-11)
    assert (torch.where(mask & ~attended, rest, -torch.inf).amax(-1) <= low - 1 + 1e-11).all()


@pytest.mark.parametrize("name", quick("l3", "l1", "max", "nuclear", "frobenius"))
def test_the_least_margin_is_that_of_w_also_where_the_gap_is_below_rounding(name):
    X, Z, selected = spheres(4, 3, 3, range(60))
    solution = solve_svm(X, Z, selected, norm=name, gap=1e-12)
    logits = (X @ solution.W[:, None] @ Z[..., None])[..., 0]
    margins = logits.take_along_dim(selected[..., None], 2) - logits
    others = torch.arange(3) != selected[..., None]
    least = margins.where(others, torch.inf).flatten(1).amin(1)
    feasible = solution.objective.isfinite()
    assert feasible.sum() > 50
    torch.testing.assert_close(solution.min_margin[feasible], least[feasible])


def test_a_norm_of_ones_own(monkeypatch):
    """The largest entry of D W, D a diagonal of weights: the max norm of other tokens."""

    class Weighted(Entrywise):
        def __init__(self, weights: torch.Tensor, p: float) -> None:
            super().__init__(p)
            self.weights, self.name = weights, f"weighted l{p}"

        def value(self, W: torch.Tensor) -> torch.Tensor:
            return super().value(self.weights[:, None] * W)

        @property
        def dual(self) -> Weighted:
            return Weighted(1 / self.weights, 1.0 if self.p == math.inf else math.inf)

        def expression(self, W: Any) -> Any:
            return cp.max(cp.abs(cp.diag(self.weights.numpy()) @ W))

    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 4.0]).double()
    X, Z, selected = spheres(3, 4, 5, range(2))
    own: Norm = Weighted(weights, math.inf)
    solution = solve_svm(X, Z, selected, norm=own)
    same = solve_svm(X / weights, Z, selected, norm="max")  # x^T W z = (x / w)^T (w W) z
    assert solution.norm == "weighted linf"
    assert solution.status == ("solved",) * 2
    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "LARGE", 1)
    for of in (solution, solve_svm(X, Z, selected, norm=own)):
        torch.testing.assert_close(of.objective, same.objective, rtol=2e-9, atol=0)
