"""Least norm under any linear constraints: KKT conditions, CVXPY, matrix completion, bad input."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import attnsvm
from attnsvm.config import ConfigError
from tests.kkt import normal
from tests.quick import quick


@pytest.mark.parametrize("seed", range(6))
def test_a_problem_of_cvxpy_has_its_value_and_keeps_its_variable(seed):
    rng = np.random.default_rng(seed)
    X, G = cp.Variable((3, 4)), rng.standard_normal((5, 12))
    norms = [cp.normNuc(X), cp.norm(X, "fro"), cp.sigma_max(X), cp.norm1(X), cp.max(cp.abs(X))]
    norm = [*norms, cp.pnorm(cp.vec(X, order="F"), 3)][seed]
    scale = cp.Parameter(value=2.0)
    problem = cp.Problem(
        cp.Minimize(norm),
        [G[:3] @ cp.vec(X, order="F") >= 1, X[0] <= 2, scale * cp.trace(X[:, :3]) == 3, X >= -1],
    )
    value, kept = problem.solve(solver="CLARABEL"), X.value.copy()
    solution = attnsvm.from_cvxpy(problem)
    assert solution.status == "solved"
    assert solution.objective == pytest.approx(value, rel=1e-6)
    assert (X.value == kept).all()


def test_completion_finds_the_matrix_where_scs_is_near():
    rng = np.random.default_rng(0)
    M = np.outer(rng.standard_normal(8), rng.standard_normal(7))
    i, j = np.nonzero(rng.uniform(size=M.shape) < 0.7)
    solution = attnsvm.solve_least_norm(
        norm="nuclear", equalities=((np.eye(8)[i], np.eye(7)[j]), M[i, j])
    )
    assert solution.status == "solved"
    assert (solution.rank, solution.rank_bound) == (1, 1)
    assert abs(solution.W - M).max() < 1e-8


def test_interpolation_of_least_frobenius_norm_is_the_pseudo_inverse():
    C, e = normal(1, 5, 4, 3), normal(1, 5, seed=1)
    solution = attnsvm.solve_least_norm(norm="frobenius", equalities=(C, e))
    expected = torch.linalg.pinv(C.flatten(2)) @ e[..., None]
    torch.testing.assert_close(solution.W.flatten(1), expected[..., 0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("norm", quick("frobenius", "nuclear", "spectral", "max", "l1", "l3"))
def test_what_asks_for_nothing_and_what_nearly_contradicts_itself(norm):
    """<A, W> >= b and = (1 - 1e-10) b: no W is called a solution."""
    A, b = normal(4, 4, 4, 3), normal(4, 4, seed=1).abs()
    for right in (-b, 0 * b):
        solution = attnsvm.solve_least_norm(A, right, norm)
        assert set(solution.status) == {"unconstrained"}
        assert not solution.objective.any()
    A, b = A[:, :1], b[:, :1]
    near = attnsvm.solve_least_norm(A, b, norm, (A, b * (1 - 1e-10)))
    assert "solved" not in near.status
    assert near.support.shape == (4, 2)


A, C = normal(3, 4, 3).numpy(), normal(2, 4, 3, seed=1).numpy()
b, e = A[:, 0, 0], C[:, 0, 0]
WRONG = [
    ((A + 1j, b), "A: torch.complex128; must be real"),
    ((A, b + 1j), "b: torch.complex128; must be real"),
    ((np.where(A == A[0, 0, 0], np.nan, A), b), "A: nan at index"),
    ((A, b[:2]), r"b: shape \(2,\); must be \(3,\)"),
    ((A[None], b), r"b: shape \(3,\); must be \(1, 3\)"),
    ((A[0], b), r"A: shape \(4, 3\); must have 3 axes"),
    ((A, 1e200 * b), "b: .* in size; must be 0, or"),
    ((A, None), "A: must be given with b"),
    ((["a"], b), "A: can't convert"),
    ((csr_array(A[0]), b), r"A: csr_array; must be dense"),
    (((A[:, 0], A[:2, :, 0]), b), r"A: shape \(2, 4\); must be \(3, 4\)"),
    ((A, b, "nuclear", (C.mT, e)), "C: must have the p, q of A"),
    ((A, b, "nuclear", ((C[:, 0], C[:, 0]), e)), "C: must be an array"),
    ((A, b, "nuclear", ()), "equalities: must be"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        attnsvm.solve_least_norm(*arguments)


X, Y = cp.Variable((2, 2), name="X"), cp.Variable((2, 2), PSD=True)
FRO, NUCLEAR = cp.norm(X, "fro"), cp.normNuc(X)
NO_NORMS = [
    *(-NUCLEAR, 0 * NUCLEAR, np.nan * NUCLEAR, 1 / NUCLEAR, (FRO - 1) ** 2, FRO**0.5),
    *(NUCLEAR + FRO, cp.quad_over_lin(X, -2.0)),
    NUCLEAR * cp.Parameter(),
    *(cp.normNuc(X - 1), cp.norm1(2 * X), cp.sum(X), cp.max(X), X[0, 0], 0),
    *(cp.norm(X, 1), cp.mixed_norm(X, 2, 1), cp.quad_form(X[:, 0], np.eye(2)), -cp.pnorm(X, 0.5)),
]
NO_ROWS = [
    (cp.norm(X) <= 1, "must be an affine"),
    (X >> 1, "must be an affine"),
    (cp.SOC(cp.Constant(1), X[0]), "must be an affine"),
    (X >= Y, "2 variables"),
    (X >= cp.Parameter(), "values of its parameters"),
    (X[:0] >= 1, "must have constraints"),
    (X >= np.inf, "b: inf at index"),
    (X >= 1e300, "b: 1e.300 in size; must be"),
]
PROBLEMS = [
    *((cp.Problem(cp.Minimize(f), [X >= 1]), "must minimise a norm of X itself") for f in NO_NORMS),
    (cp.Problem(cp.Maximize(NUCLEAR), [X >= 1]), "must minimise a norm of X itself"),
    *((cp.Problem(cp.Minimize(cp.norm1(X)), [row]), message) for row, message in NO_ROWS),
    (cp.Problem(cp.Minimize(cp.normNuc(Y)), [Y >= 1]), "has PSD; must be a constraint"),
    (cp.Problem(cp.Minimize(cp.normNuc(X))), "must have constraints"),
    (cp.Problem(cp.Minimize(cp.norm1(cp.Variable((2, 2, 2))))), "has 3 axes"),
    (cp.Problem(cp.Minimize(cp.pnorm(X, 200)), [X >= 1]), "norm=l200: must be"),
    *((value, "must be a cvxpy.Problem") for value in (None, cp.Problem)),
]


SAME = [
    *((cp.Minimize(f), FRO) for f in (cp.sum_squares(X), FRO**2 / 2 - 1, (FRO + 1) ** 3)),
    *((cp.Minimize(f), NUCLEAR) for f in (3 * NUCLEAR, 2 - (-NUCLEAR), NUCLEAR / 2)),
    (cp.Maximize(-2 * NUCLEAR), NUCLEAR),
]


@pytest.mark.parametrize(("objective", "norm"), SAME, ids=str)
def test_an_objective_with_the_minimiser_of_a_norm_is_that_norm(objective, norm):
    rows = [cp.sum(X) >= 1, X[0, 0] - X[1, 1] >= 1]
    solution, known = (
        attnsvm.from_cvxpy(cp.Problem(o, rows)) for o in (objective, cp.Minimize(norm))
    )
    assert solution.status == "solved"
    assert (solution.norm, solution.objective) == (known.norm, known.objective)


def test_a_number_is_the_right_hand_side_of_all_rows():
    for rows in (A, A[None], A.tolist()):
        known = attnsvm.solve_least_norm(A, np.ones(3)).W.tolist()
        W = attnsvm.solve_least_norm(rows, 1).W
        assert (W.tolist(), W.dtype) == ([known] if W.ndim == 3 else known, np.float64)
    solution = attnsvm.solve_least_norm(A, 1.0, "nuclear")
    assert isinstance(solution.objective, float)
    names = [line.split()[0] for line in str(solution).splitlines()[-4:]]
    assert names == ["status", "objective", "duality_gap", "rank"]


@pytest.mark.parametrize(("problem", "message"), PROBLEMS)
def test_a_problem_of_another_form_is_explained(problem, message):
    with pytest.raises(ConfigError, match=message):
        attnsvm.from_cvxpy(problem)


def test_constraints_of_numbers_alone_hold_or_contradict():
    rows = (cp.Constant(0) <= 1, 0 * X >= 0, X[:0] >= 1, True)
    for row in (*rows, cp.Constant(1) <= 0, 0 * X >= 1, False):
        solution = attnsvm.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(X)), [X >= 1, row]))
        holds = any(row is of for of in rows)
        assert solution.status == ("solved" if holds else "infeasible")
        assert not holds or solution.objective == pytest.approx(4, rel=1e-9)


@pytest.mark.parametrize("p", [1.2345678, 1.9999999, 2.0000001, 3.0000001, np.pi])
def test_the_p_of_cvxpy_is_the_one_that_was_asked_not_its_fraction(p):
    """min |x|_p s.t. <a, x> >= 1 is 1 / |a|_q; a fraction of p is off in the seventh digit."""
    x, a = cp.Variable(3), np.array([1.0, 2.0, 3.0])
    for rounded in (cp.pnorm(x, p), cp.norm(x, p), cp.pnorm(x, p, max_denom=10**6)):
        solution = attnsvm.from_cvxpy(cp.Problem(cp.Minimize(rounded), [a @ x >= 1]))
        assert solution.status == "solved"
        expected = 1 / np.linalg.norm(a, p / (p - 1))
        assert solution.lower_bound - 1e-13 <= expected <= solution.objective + 1e-13
        assert solution.duality_gap <= 1e-9
        assert solution.minimised.p == p
