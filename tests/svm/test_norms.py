"""SVMs in every norm: independent brackets, known optima, one certificate for all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import cvxpy as cp
import pytest
import torch

from attnsvm import sample
from attnsvm.norm import Entrywise, norm_of
from attnsvm.svm import SvmStatus, single_token, solve, solve_svm
from tests.svm.instances import spheres
from tests.svm.test_solvers import one_row

REFERENCE = json.loads((Path(__file__).parents[1] / "reference/norms.json").read_text())
NAMES = ["spectral", "max", "l1", "l1.75", "l3"]


@pytest.mark.parametrize("name", NAMES)
def test_brackets_overlap_those_of_an_independent_solver(name):
    """Ours and the reference's brackets hold the same least norm; infeasible is infeasible."""
    seen = set()
    for case in (one for one in REFERENCE if one["norm"] == name):
        batch = sample("sphere", n=case["n"], T=case["T"], d=case["d"], trials=1, seed=case["seed"])
        found = solve_svm(batch.X, batch.Z, torch.tensor([case["selected"]]), norm=name)
        seen.add(found.statuses[0])
        if case["status"] == "infeasible":
            assert found.status == ("infeasible",)
            continue
        assert found.duality_gap[0] <= 1e-8
        if case["status"] == "optimal":
            assert found.lower_bound[0] <= case["upper"] * (1 + 1e-12)
            assert found.objective[0] >= case["lower"] * (1 - 1e-12)
    assert {"solved", "infeasible"} <= seen


@pytest.mark.parametrize("name", NAMES)
def test_one_row_has_the_norm_of_its_dual_direction(name):
    """min norm(W) s.t. <d z^T, W> >= 1 is 1 / dual_norm(d z^T)."""
    problem, _, _ = one_row(4)
    row = problem.combine(torch.ones_like(problem.h))
    found = solve(problem, name, 2)
    assert found.status == (SvmStatus.solved,)
    least = 1 / norm_of(name).dual.value(row)
    torch.testing.assert_close(found.objective, least, rtol=1e-8, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_bracket_is_proved_by_w_and_multipliers_alone(name):
    X, Z, selected = spheres(3, 4, 5, range(3))
    problem, norm = single_token(X, Z, selected), norm_of(name)
    found = solve_svm(X, Z, selected, norm=name)
    margins = torch.where(problem.inequality, problem.margins(found.W), torch.inf)
    assert (margins >= 1 - 1e-9).all()
    torch.testing.assert_close(norm.value(found.W), found.objective, rtol=1e-12, atol=0)
    a = found.certificate.multipliers
    assert (a >= 0).all()
    dual = norm.dual.value(problem.combine(a))
    torch.testing.assert_close(a.sum(dim=1) / dual, found.lower_bound, rtol=1e-12, atol=0)
    assert (found.rank_bound == -1).all()


def test_a_norm_of_ones_own_is_certified():
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
    own = solve_svm(X, Z, selected, norm=Weighted(weights, math.inf))
    same = solve_svm(X / weights, Z, selected, norm="max")  # x^T W z = (x / w)^T (w W) z
    assert own.norm == "weighted linf"
    assert own.status == (SvmStatus.solved,) * 2
    assert not torch.allclose(own.objective, solve_svm(X, Z, selected, norm="max").objective)
    assert (own.lower_bound <= same.objective * (1 + 1e-9)).all()
    assert (own.objective >= same.lower_bound * (1 - 1e-9)).all()
