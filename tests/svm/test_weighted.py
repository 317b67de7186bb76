"""Right-hand sides other than one: given margins, and the weighted SVM with offsets and a ratio."""

import math

import cvxpy as cp
import pytest
import torch

from attnsvm import margin_gap
from attnsvm.svm import SvmStatus, solve_svm
from tests.kkt import assert_infeasible, norm, normal
from tests.quick import quick
from tests.svm.instances import gaussian, spheres

NORMS = ["frobenius", *quick("nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten3")]
every_norm = pytest.mark.parametrize("name", NORMS)
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("r", quick(1.0, 0.0, 1e-3, 0.03, 0.3, 3.0, 10.0, 1e2, 1e4, 1e6))
@pytest.mark.parametrize("shape", quick((3, 3, 4), (5, 6, 8), (5, 5, 3)))
def test_it_maximises_the_least_of_margin_and_offset(shape, r):
    """max min_k <A_k, W> + r gamma_k  s.t.  ||W||_* <= 1,  <A_k, W> >= 0,  by CVXPY."""
    X, Z, selected = spheres(*shape, range(2))
    gamma = normal(2, shape[0], seed=1)
    solution = solve_svm(X, Z, selected, "nuclear", offsets=gamma, ratio=r)
    assert solution.status == (SvmStatus.solved,) * 2
    problem, above = solution.problem, gamma - gamma.amin(1, keepdim=True)
    for b in range(2):
        W, value = cp.Variable(problem.size), cp.Variable()
        A = torch.einsum("kd,ke->kde", problem.D[b], problem.queries[b]).flatten(1).numpy()
        margins = A @ cp.vec(W, order="C")
        e = above[b].repeat_interleave(shape[1] - 1).numpy()
        rows = [margins + r * e >= value, margins >= 0, cp.norm(W, "nuc") <= 1]
        known = cp.Problem(cp.Maximize(value), rows).solve(solver="CLARABEL", **TIGHT)
        assert 1 / solution.objective[b] == pytest.approx(known, rel=1e-6)


@every_norm
def test_infeasible_twin(name):
    """A token equals the selected one: no W exists, unless its sample is clipped."""
    X, Z, selected = gaussian(3, 4, 6, 2, seed=1)
    X[0, 0, 1], X[1, 2, 1] = X[0, 0, 0], X[1, 2, 0]
    gamma = torch.tensor([0.0, 1.0, 2.0]).double().expand(2, 3)
    for r in (0.0, 0.01, 1e6, math.inf):
        ratio = torch.tensor([r, 0.0]).double()
        solution = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=ratio)
        assert_infeasible(solution.problem.at_norm(torch.inf), solution)
        far = solve_svm(X[1], Z[1], selected[1], norm=name, offsets=gamma[1], ratio=r)
        expected = {0.0: "infeasible", 0.01: "undecided"}.get(r, "solved")
        assert far.status == expected


@every_norm
def test_invariances(name):
    """Offsets plus a constant; tokens and ratio times a number; an instance out of its batch."""
    X, Z, selected = spheres(4, 4, 6, range(3))
    gamma, r = normal(3, 4, seed=2), torch.tensor([0.2, 1.0, 30.0]).double()
    solution = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=r)
    assert solution.status == (SvmStatus.solved,) * 3
    torch.testing.assert_close(norm(solution.W, name), solution.objective, rtol=1e-12, atol=0)
    assert margin_gap(7 * solution.W, solution).abs().max() <= 1e-9
    plain = solve_svm(X, Z, selected, norm=name).W
    none = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=0)
    assert torch.equal(none.W, plain)  # Att-SVM
    least = (gamma == gamma.amin(1, keepdim=True)).double().repeat_interleave(3, 1)
    relaxed = solve_svm(X, Z, selected, norm=name, margins=least)
    limit = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=math.inf)
    assert torch.equal(relaxed.W, limit.W)
    for other in (plain, normal(3, 6, 6), solution.W + 1e-3 * normal(3, 6, 6, seed=1)):
        assert (margin_gap(other, solution) > 1e-6).all()
    powers = solve_svm(8 * X, Z / 2, selected, norm=name, offsets=gamma, ratio=4 * r)
    assert torch.equal(powers.W, solution.W / 4)
    assert torch.equal(powers.lower_bound, solution.lower_bound / 4)
    for (tokens, offsets, ratio), size in (((X, gamma + 3, r), 1), ((3 * X, gamma, 3 * r), 3)):
        other = solve_svm(tokens, Z, selected, norm=name, offsets=offsets, ratio=ratio)
        torch.testing.assert_close(other.objective * size, solution.objective, rtol=1e-9, atol=0)
    alone = solve_svm(X[2], Z[2], selected[2], norm=name, offsets=gamma[2], ratio=r[2])
    torch.testing.assert_close(alone.W, solution.W[2], rtol=0, atol=1e-11)
