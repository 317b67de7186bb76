"""Least norm under any linear constraints: KKT conditions, CVXPY, matrix completion, bad input."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import csr_array

import attnsvm
from attnsvm.config import ConfigError
from tests.kkt import normal
from tests.quick import quick

PRIMAL = cp.Variable((3, 4))
VALUES = [
    *(cp.normNuc(PRIMAL), cp.norm(PRIMAL, "fro"), cp.sigma_max(PRIMAL), cp.norm1(PRIMAL)),
    *(cp.max(cp.abs(PRIMAL)), cp.pnorm(cp.vec(PRIMAL, order="F"), 3), cp.pnorm(cp.abs(PRIMAL), 3)),
]


@pytest.mark.parametrize("norm", VALUES, ids=str)
def test_a_problem_of_cvxpy_has_its_value_and_keeps_its_variable(norm):
    G, scale = normal(3, 12).numpy(), cp.Parameter(value=2.0)
    rows = [G @ cp.vec(PRIMAL, order="F") >= 1, PRIMAL[0] <= 2, PRIMAL >= -1]
    rows.append(scale * cp.trace(PRIMAL[:, :3]) == 3)
    problem = cp.Problem(cp.Minimize(norm), rows)
    value, kept = problem.solve(solver="CLARABEL"), PRIMAL.value.copy()
    solution = attnsvm.from_cvxpy(problem)
    assert solution.status == "solved"
    assert solution.objective == pytest.approx(value, rel=1e-6)
    assert (PRIMAL.value == kept).all()


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


@pytest.mark.parametrize("norm", quick("nuclear", "frobenius", "spectral", "max", "l1", "l3"))
def test_a_row_far_beyond_its_right_hand_side_changes_nothing_beside_equalities(norm):
    C, e, A = normal(20, 2, 2, 3), normal(20, 2, seed=1), normal(20, 1, 2, 3, seed=2)
    alone = attnsvm.solve_least_norm(norm=norm, equalities=(C, e))
    A *= (A * alone.W[:, None]).sum((2, 3), keepdim=True).sign()
    b = 0.02 * (A * alone.W[:, None]).sum((2, 3))
    both = attnsvm.solve_least_norm(A, b, norm, (C, e))
    assert set(both.status) == {"solved"}
    np.testing.assert_allclose(both.objective, alone.objective, rtol=1e-8)


A, C = normal(3, 4, 3).numpy(), normal(2, 4, 3, seed=1).numpy()
b, e = A[:, 0, 0], C[:, 0, 0]
WRONG = [
    ((A + 1j, b), "A: torch.complex128; must be real"),
    ((A, b + 1j), "b: torch.complex128; must be real"),
    ((np.where(A == A[0, 0, 0], np.nan, A), b), "A: nan at index"),
    ((A[None], b), r"b: shape \(3,\); must be \(1, 3\)"),
    ((A[0], b), r"A: shape \(4, 3\); must have 3 axes"),
    ((A, 1e200 * b), "b: .* in size; must be 0, or"),
    ((A, None), "A: must be given with b"),
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
    *(-NUCLEAR, 0 * NUCLEAR, np.nan * NUCLEAR, 1 / NUCLEAR, NUCLEAR * cp.Parameter()),
    *(NUCLEAR + FRO, (FRO - 1) ** 2, FRO**0.5, cp.quad_over_lin(X, -2.0), cp.normNuc(X - 1)),
    *(cp.max(X), 0, cp.norm(X, 1), -cp.pnorm(X, 0.5)),
]
NO_ROWS = [
    (cp.norm(X) <= 1, "must be an affine"),
    (X >> 1, "must be an affine"),
    (cp.SOC(cp.Constant(1), X[0]), "must be an affine"),
    (X >= Y, "2 variables"),
    (X >= cp.Parameter(), "values of its parameters"),
    (X[:0] >= 1, "must have constraints"),
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
    """And the support is that of each row: three times a row is not active."""
    rows = np.concatenate([A, 3 * A])
    known, solution = (attnsvm.solve_least_norm(rows, right) for right in (np.ones(6), 1))
    assert (solution.W == known.W).all()
    assert solution.support.tolist() == [True] * 3 + [False] * 3
    assert type(solution.objective) is np.float64


@pytest.mark.parametrize(("problem", "message"), PROBLEMS)
def test_a_problem_of_another_form_is_explained(problem, message):
    with pytest.raises(ConfigError, match=message):
        attnsvm.from_cvxpy(problem)


NUMBERS = {
    ("solved", 4): (cp.Constant(0) <= 1, 0 * X >= 0, X[:0] >= 1, True),
    ("infeasible", np.inf): (cp.Constant(1) <= 0, 0 * X >= 1, False),
}


@pytest.mark.parametrize(("status", "objective"), NUMBERS)
def test_constraints_of_numbers_alone_hold_or_contradict(status, objective):
    for row in NUMBERS[status, objective]:
        solution = attnsvm.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(X)), [X >= 1, row]))
        assert solution.status == status
        assert solution.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("p", [1.2345678, 1.9999999, 2.0000001, 3.0000001, np.pi])
def test_the_p_of_cvxpy_is_the_one_that_was_asked_not_its_fraction(p):
    x = cp.Variable(2)
    for norm in (cp.pnorm(x, p), cp.norm(x, p), cp.pnorm(x, p, max_denom=10**6)):
        solution = attnsvm.from_cvxpy(cp.Problem(cp.Minimize(norm), [x[0] + 2 * x[1] >= 1]))
        assert (solution.status, solution.minimised.p) == ("solved", p)
