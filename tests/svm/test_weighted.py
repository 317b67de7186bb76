"""Right-hand sides other than one: given margins, and the weighted SVM with offsets and a ratio."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from attnsvm import margin_gap
from attnsvm.norm import norm_of
from attnsvm.svm import SvmStatus, single_token, solve_svm
from attnsvm.svm.certificate import certify
from attnsvm.svm.interior_point import constraint_generation
from attnsvm.svm.weighted import weighted
from tests.kkt import assert_infeasible, assert_optimal, norm, normal
from tests.quick import quick, quick_rows
from tests.svm.instances import gaussian, spheres

RATIOS = (0.0, 1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 1e2, 1e4, 1e6)
SHAPES = [(shape, r) for shape in ((3, 3, 4), (5, 6, 8), (5, 5, 3)) for r in RATIOS]
NORMS = ["frobenius", *quick("nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten3")]
every_norm = pytest.mark.parametrize("name", NORMS)
WORST = {"frobenius": 1e-8, "nuclear": 1e-6}


def weighted_svm(X, Z, selected, gamma, r, name):
    """Return the best W and value of  max min_k <A_k, W> + r gamma_k  by CVXPY.

    Of the Frobenius norm, CVXPY only tells which rows are active: on those, W = c u - v, and
    ||W|| = 1 determines c.
    """
    import cvxpy as cp

    n, T, d = X.shape
    index = [(i, t) for i in range(n) for t in range(T) if t != selected[i]]
    A = np.array([np.outer(X[i, selected[i]] - X[i, t], Z[i]).ravel() for i, t in index])
    e = np.array([gamma[i] - gamma.min() for i, _ in index])
    W, value = cp.Variable((d, d)), cp.Variable()
    margins = A @ cp.vec(W, order="C")
    size = cp.norm(W, "nuc") if name == "nuclear" else cp.norm(W, "fro")
    rows = [margins + r * e >= value, margins >= 0]
    cp.Problem(cp.Maximize(value), [*rows, size <= 1]).solve(
        solver="CLARABEL", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    )
    if name == "nuclear":
        return W.value, float(value.value)
    kept, clipped = (row.dual_value > 1e-6 * rows[0].dual_value.max() for row in rows)
    inverse = np.linalg.pinv(A[kept | clipped])
    u, v = (inverse @ np.where(kept, x, 0.0)[kept | clipped] for x in (np.ones(len(e)), r * e))
    half, rest = u @ v / (u @ u), (v @ v - 1) / (u @ u)
    c = half + math.sqrt(half**2 - rest)
    return (c * u - v).reshape(d, d), c


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("name", quick("frobenius", "nuclear"))
@pytest.mark.parametrize(("shape", "r"), quick_rows(SHAPES[4], *SHAPES[:4], *SHAPES[5:]))
def test_an_independent_solver_finds_the_same(name, shape, r):
    X, Z, selected = (x.numpy() for x in spheres(*shape, range(2)))
    gamma = normal(2, shape[0], seed=1).numpy()
    solution = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=r)
    assert solution.status == (SvmStatus.solved,) * 2
    for b in range(2):
        W, value = weighted_svm(X[b], Z[b], selected[b], gamma[b], r, name)
        assert 1 / solution.objective[b] == pytest.approx(value, rel=WORST[name])
        if name == "frobenius":
            np.testing.assert_allclose(solution.W[b] / solution.objective[b], W, rtol=0, atol=1e-8)


@every_norm
def test_conditions_of_an_optimum_and_the_limits(name):
    """At r = 0 it is Att-SVM, to the last bit; as r grows, the relaxed SVM."""
    X, Z, selected = spheres(5, 5, 6, range(4))
    gamma = normal(4, 5, seed=1)
    plain = solve_svm(X, Z, selected, norm=name)
    none = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=0)
    assert torch.equal(none.W, plain.W)
    last = plain.objective
    for r in (0.1, 1.0, 1e9, math.inf):
        solution = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=r)
        assert solution.status == (SvmStatus.solved,) * 4
        assert (solution.objective <= last * (1 + 1e-9)).all()
        assert_optimal(solution.problem.at_norm(solution.objective), solution)
        last = solution.objective
    least = (gamma == gamma.amin(1, keepdim=True)).double().repeat_interleave(4, 1)
    relaxed = solve_svm(X, Z, selected, norm=name, margins=least)
    assert torch.equal(relaxed.W, solution.W)
    very = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=1e9)
    torch.testing.assert_close(very.objective, solution.objective, rtol=1e-9, atol=0)


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


@every_norm
def test_given_margins(name):
    """With one row in each sample, a margin b is one of tokens that are 1 / b as far apart."""
    X, Z, selected = gaussian(4, 2, 6, 3, seed=3)
    b = torch.tensor([[0.5, 1.0, 2.0, 3.0]]).double().expand(3, 4)
    solution = solve_svm(X, Z, selected, norm=name, margins=b)
    same = solve_svm(X / b[..., None, None], Z, selected, norm=name)
    torch.testing.assert_close(solution.objective, same.objective, rtol=1e-9, atol=0)
    for size in (1e-99, 1e99):
        far = solve_svm(X, Z, selected, norm=name, margins=size * b)
        torch.testing.assert_close(far.objective / size, same.objective, rtol=1e-9, atol=0)
    assert solve_svm(X, Z, selected, norm=name, margins=0 * b).status == ("unconstrained",) * 3
    ones = solve_svm(X, Z, selected, norm=name, margins=b / b)
    assert torch.equal(ones.W, solve_svm(X, Z, selected, norm=name).W)


@pytest.mark.parametrize("name", quick("frobenius", "nuclear", "max"))
def test_many_rows(name):
    """Constraint generation finds the least norm of the method for small instances."""
    X, Z, selected = spheres(6, 6, 6, range(2))
    gamma = normal(2, 6, seed=1)
    mask = torch.ones(2, 6, 6, dtype=torch.bool)
    mask.scatter_(2, ((selected + 1) % 6)[..., None], False)
    for r in (0.5, math.inf):
        arguments = {"offsets": gamma, "ratio": r, "mask": mask, "norm": name}
        solution = solve_svm(X, Z, selected, **arguments)
        method = partial(constraint_generation, norm=norm_of(name))
        candidate = weighted(method, norm_of(name), solution.problem)
        again = certify(solution.problem, candidate, name, 1e-9, 1e-6)
        assert again.status == solution.status == (SvmStatus.solved,) * 2
        torch.testing.assert_close(again.certificate.upper, solution.objective, rtol=2e-9, atol=0)
    assert solution.problem.inequality.equal(single_token(X, Z, selected, mask).inequality)
