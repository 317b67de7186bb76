"""SVMs in every norm: independent brackets, known optima, one certificate for all."""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

from attnsvm import sample
from attnsvm.norm import Entrywise, norm_of
from attnsvm.svm import SvmStatus, single_token, solve, solve_gen_svm, solve_svm
from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.interior_point import InteriorPoint
from attnsvm.svm.reference import Cvxpy
from attnsvm.svm.tolerances import ROUNDING
from tests.svm.instances import quick, spheres
from tests.svm.nasty import TRUTHS, instances
from tests.svm.test_solvers import one_row

REFERENCE = json.loads((Path(__file__).parents[1] / "reference/norms.json").read_text())
REFERENCED = ["spectral", "max", "l1", "l1.75", "l3"]
NAMES = [*REFERENCED, "schatten1.5", "schatten3"]
ENTRYWISE = ["max", "l1", "l1.75", "l3"]
SCHATTEN = ["spectral", "schatten1.5", "schatten3"]
THINNED = 6
"""Of the nasty instances one in so many is tested in each norm of `SCHATTEN`."""


@pytest.mark.parametrize("name", quick(*REFERENCED))
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


# --- the compiled methods -----------------------------------------------------------------------


def nasty() -> list[tuple[str, float | None, float, Any]]:
    """Return the nasty instances with the exact truth of their Frobenius norm."""
    known = {(row[0], row[1]): row[3:] for row in json.loads(TRUTHS.read_text())}
    return [
        (one, *known[one.family, one.index])
        for one in sorted(instances(), key=lambda one: one.X.shape)
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", [*ENTRYWISE, *SCHATTEN])
def test_nasty_instances(name):
    """The statuses are the truth's, and the bracket meets the bounds of norms by each other."""
    wrong, solved = [], 0
    chosen = nasty()[:: THINNED if name in SCHATTEN else 1]
    for _, group in groupby(chosen, key=lambda known: known[0].X.shape):
        known = list(group)
        X, Z, mask = (
            torch.from_numpy(np.stack([getattr(one[0], field) for one in known]))
            for field in ("X", "Z", "mask")
        )
        selected = torch.zeros(X.shape[:2], dtype=torch.int64)
        found = solve_svm(X, Z, selected, norm=name, mask=mask)
        ratio = norm_of(name).spread(X.shape[3])  # largest norm(W) / ||W||_F
        inverse = norm_of(name).dual.spread(X.shape[3])  # largest ||W||_F / norm(W)
        for b, (one, least, kappa) in enumerate(known):
            status, lower, upper = found.status[b], found.lower_bound[b], found.objective[b]
            at = f"{one.family} {one.index} {status} {lower}"
            if least is None:
                wrong += [at] if status != "infeasible" else []
            elif least > 0:
                solved += status == "solved"
                rounded = 1 + max(1e-9, ROUNDING * kappa)
                inside = lower <= ratio * least * rounded and least <= inverse * upper * rounded
                proved = status == "solved" and found.duality_gap[b] <= 1e-8
                decided = proved if kappa <= 1e6 else status in ("solved", "undecided")
                wrong += [at] if not (inside and decided) else []
    assert wrong == []
    assert solved > 0


@pytest.mark.parametrize("name", ["nuclear", "max", "l1.75", "spectral", "schatten3"])
def test_an_instance_does_not_depend_on_its_batch(name):
    """Eleven instances are two blocks of eight lanes, the second of them filled up."""
    X, Z, selected = spheres(4, 5, 6, range(11))
    together = solve_svm(X, Z, selected, norm=name)
    assert together.status == (SvmStatus.solved,) * 11
    for b in (0, 10):
        alone = solve_svm(X[b : b + 1], Z[b : b + 1], selected[b : b + 1], norm=name)
        torch.testing.assert_close(alone.W[0], together.W[b], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["nuclear", *NAMES])
def test_the_method_needs_no_other_on_ordinary_instances(name):
    """Neither eight instances at a time nor one after the other, by BLAS."""
    problem = single_token(*spheres(4, 5, 6, range(11)))
    start = LeastDistance().candidates(problem)
    solver = InteriorPoint(norm_of(name))
    for rows in (400, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("attnsvm.svm.interior_point.solver.SMALL_ROWS", rows)
            W, a = solver.followed(problem, start.W, start.multipliers)
        gap = upper_bound(problem, W, name) / lower_bound(problem, a, name)[1] - 1
        assert gap.amax() <= 5e-10


@pytest.mark.parametrize("name", ENTRYWISE)
def test_what_an_entrywise_norm_does_not_see(name):
    """Scale; order of samples, tokens and coordinates; signs of coordinates."""
    X, Z, selected = spheres(3, 4, 6, range(5))
    least = solve_svm(X, Z, selected, norm=name).objective
    torch.testing.assert_close(
        solve_svm(8 * X, Z, selected, norm=name).objective, least / 8, rtol=1e-9, atol=0
    )
    order = torch.tensor([2, 0, 1])
    mixed = solve_svm(X[:, order], Z[:, order], selected[:, order], norm=name)
    torch.testing.assert_close(mixed.objective, least, rtol=2e-9, atol=0)
    turned = solve_svm(X.flip(2), Z, 3 - selected, norm=name)
    torch.testing.assert_close(turned.objective, least, rtol=2e-9, atol=0)
    coordinates = torch.tensor([4, 2, 0, 1, 5, 3])
    signs = torch.tensor([1.0, -1, -1, 1, 1, -1]).double()
    other = solve_svm(X[..., coordinates] * signs, Z[..., coordinates], selected, norm=name)
    torch.testing.assert_close(other.objective, least, rtol=2e-9, atol=0)


@pytest.mark.parametrize("name", quick(*ENTRYWISE, "spectral"))
def test_several_tokens_and_masks(name):
    """Gen-SVM has equalities; the reference solves the same problem."""
    X, Z, selected = spheres(2, 4, 7, range(3))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool).scatter(2, selected[..., None], True)
    attended[:, 0, (int(selected[0, 0]) + 1) % 4] = True
    log_softmax = torch.where(attended, 0.0, -20.0).double()
    log_softmax[:, 0, 0] -= 1.0
    mask = torch.ones_like(attended)
    mask[:, 1] = attended[:, 1] | (torch.arange(4) > 1)
    for found in solve_gen_svm(X, Z, attended, log_softmax, norm=name, mask=mask):
        assert {*found.status} <= {"solved", "unconstrained"}
        assert "solved" in found.status
        expected = Cvxpy(name).solutions(found.problem)
        for value, one in zip(found.objective, expected, strict=True):
            assert value == pytest.approx(one.objective, rel=1e-5)
