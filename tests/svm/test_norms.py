"""SVMs in every norm: independent brackets, known optima, invariances, one certificate for all."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import cvxpy as cp
import pytest
import torch

from attnsvm.norm import Entrywise, Norm, norm_of
from attnsvm.svm import SvmStatus, single_token, solve, solve_gen_svm, solve_svm
from attnsvm.svm.certificate import bounds, certify
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.interior_point import constraint_generation, solver
from attnsvm.svm.reference import candidates
from tests.kkt import assert_optimal, dual_norm, norm, normal
from tests.quick import quick
from tests.svm.instances import gaussian, generated, spheres

ENTRYWISE = ["max", "l1", "l1.75", "l3"]
SCHATTEN = ["nuclear", "spectral", "schatten1.5", "schatten3"]
OTHERS = [*ENTRYWISE, *SCHATTEN]
EXACT_P = [f"l{p}" for p in ("1.2345678", "1.001", "2.000000001", "3.141592653589793", "100")]
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
every_method = pytest.mark.parametrize(
    ("method", "name", "gap"),
    [
        (lambda problem, norm: least_norm(problem), "frobenius", 1e-9),
        (solver.solve, "nuclear", 1e-9),
        (constraint_generation, "frobenius", 1e-9),
        (constraint_generation, "nuclear", 1e-9),
        (partial(candidates, **TIGHT), "frobenius", 1e-6),
        (partial(candidates, **TIGHT), "nuclear", 1e-6),
    ],
)
"""Methods that return multipliers, and the gap that theirs close."""


def proved(method, problem, name, gap):
    """Return what the method's candidates prove."""
    return certify(problem, method(problem, norm_of(name)), name, max(gap, 1e-9), 1e-6)


def orthogonal(n, T):
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


@every_method
@pytest.mark.parametrize("shape", [(3, 4), (1, 3)])
def test_orthogonal_rows(method, name, gap, shape):
    problem, frobenius, nuclear = orthogonal(*shape)
    known = frobenius if name == "frobenius" else nuclear
    solution = proved(method, problem, name, gap)
    assert solution.status == (SvmStatus.solved,)
    assert float(solution.certificate.lower) <= known * (1 + 1e-12)
    assert known * (1 - 1e-12) <= float(solution.certificate.upper) <= known * (1 + 2 * gap)


@pytest.mark.parametrize("name", ["frobenius", *OTHERS, "spectral+max", *EXACT_P])
def test_one_row_has_the_norm_of_its_dual_direction(name):
    """min norm(W) s.t. <d z^T, W> >= 1 is 1 / dual_norm(d z^T)."""
    X, Z, selected = gaussian(1, 2, 4, 3, seed=2)
    problem = single_token(X, Z, selected)
    row = problem.combine(torch.ones_like(problem.h))
    solution = solve(problem, name, 2)
    assert solution.status == (SvmStatus.solved,) * 3
    torch.testing.assert_close(solution.objective, 1 / dual_norm(row, name), rtol=1e-9, atol=0)
    if name in ("frobenius", "nuclear"):
        W = row / norm(row, "frobenius").square()[:, None, None]
        torch.testing.assert_close(solution.W, W, rtol=1e-9, atol=1e-12)
        assert solution.rank.tolist() == [1, 1, 1]
    else:
        assert (solution.rank_bound == -1).all()


@pytest.mark.parametrize(
    "name", ["frobenius", "spectral+max", *quick("nuclear", *ENTRYWISE, *SCHATTEN[1:])]
)
def test_several_tokens_and_masks(name):
    """Gen-SVM has equalities; an instance has the same solution out of its batch."""
    X, Z, _ = gaussian(3, 5, 6, 4, seed=8)
    attended = torch.zeros(4, 3, 5, dtype=torch.bool)
    attended[:, :, 0] = True
    attended[:, 0, 3] = True
    attended[2:, 1, 1:3] = True
    mask = torch.ones_like(attended)
    mask[1, :, 4] = False
    log_softmax = normal(4, 3, 5, seed=8).log_softmax(-1)
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name, mask=mask)
    alone = solve_gen_svm(X[2], Z[2], attended[2], log_softmax[2], norm=name)
    for solution, single in zip((fin, mm), alone, strict=True):
        assert single.W.shape == (6, 6)
        torch.testing.assert_close(single.objective, solution.objective[2], rtol=1e-9, atol=0)
        assert solution.status == (SvmStatus.solved,) * 4
        assert (solution.duality_gap <= 1e-9).all()
        assert_optimal(solution.problem, solution)
    logits = torch.einsum("bntd,bde,bne->bnt", X, fin.W, Z)
    wanted = torch.where(attended, log_softmax - logits, torch.nan)
    spread = wanted.nan_to_num(-torch.inf).amax(-1) - wanted.nan_to_num(torch.inf).amin(-1)
    assert spread.abs().max() <= 1e-12  # logits are log s up to a constant inside O_i


def test_a_norm_of_ones_own():
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
    assert solution.status == (SvmStatus.solved,) * 2
    assert not torch.allclose(solution.objective, solve_svm(X, Z, selected, norm="max").objective)
    assert (solution.lower_bound <= same.objective * (1 + 1e-9)).all()
    assert (solution.objective >= same.lower_bound * (1 - 1e-9)).all()
    again = generated(solution.problem, own)
    assert again.status == solution.status
    torch.testing.assert_close(again.certificate.upper, same.objective, rtol=2e-9, atol=0)


@pytest.mark.parametrize("name", quick("spectral", "max", *OTHERS, count=2))
def test_an_instance_does_not_depend_on_its_batch(name):
    """Instances leave the batch one after the other."""
    X, Z, selected = spheres(4, 5, 6, range(11))
    together = solve_svm(X, Z, selected, norm=name)
    assert together.status == (SvmStatus.solved,) * 11
    for b in (0, 10):
        alone = solve_svm(X[b : b + 1], Z[b : b + 1], selected[b : b + 1], norm=name)
        torch.testing.assert_close(alone.W[0], together.W[b], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", quick("nuclear", "l1.75", *OTHERS, count=2))
@pytest.mark.parametrize("in_batch", [True, False])
def test_the_method_needs_no_other_on_ordinary_instances(name, in_batch, monkeypatch):
    """Neither all instances together nor one after the other, by growing rows."""
    problem = single_token(*spheres(4, 5, 6, range(11)))
    start = least_norm(problem)
    monkeypatch.setattr(solver, "POLISHED", 0)
    if in_batch:
        W, a = solver.followed(problem, start.W, start.multipliers, norm_of(name))
    else:
        W, a, _ = constraint_generation(problem, norm_of(name))
    upper, lower = bounds(problem, W, a, name)
    assert (upper / lower - 1).amax() <= 5e-10
