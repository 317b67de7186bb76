"""The slow reference: the same problems through CVXPY, with explicit tolerances.

Used only for checks and comparisons. CVXPY is imported on first use.
"""

import functools
import operator
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnsvm.display.pace import each
from attnsvm.norm import Norm, norm_of
from attnsvm.svm.problem import EQUALITY, INEQUALITY, SvmProblem

Array = NDArray[np.float64]

PUBLISHED_THRESHOLD = 1e-7


class ReferenceSolution(NamedTuple):
    """CVXPY's solution of one instance and its status; W (d, d) is NaN where it returned none."""

    W: Array
    multipliers: Array
    cvxpy_status: str


def solutions(problem: SvmProblem, norm: str | Norm, **options: Any) -> list[ReferenceSolution]:
    """Return CVXPY's solution of every instance, one after the other.

    Options are those of CVXPY: `solver`, by default its choice, and the tolerances of that solver.
    """
    problem, norm = problem.to("cpu"), norm_of(norm)
    instances = each("instance", range(problem.B))
    return [_solved(problem.take(slice(b, b + 1)), norm, options) for b in instances]


def published_rank(W: Array) -> int:
    """Return the rank of W (d, d) as the published scripts count it.

    The number of singular values above 1e-7 (absolute); 1 where CVXPY returned no matrix, as for an
    infeasible instance.
    """
    if np.isnan(W).any():
        return 1
    return int((np.linalg.svd(W, compute_uv=False) > PUBLISHED_THRESHOLD).sum())


def _solved(problem: SvmProblem, norm: Norm, options: dict[str, Any]) -> ReferenceSolution:
    """Return the solution of a single instance."""
    import cvxpy as cp

    G = (problem.D[0, :, :, None] * problem.queries[0, :, None, :]).flatten(1).numpy()
    kind, h = problem.kind[0].numpy(), problem.h[0].numpy()
    counts = ((kind == of).sum().item() for of in (INEQUALITY, EQUALITY))
    program, variable, groups = _program(norm, problem.size, *counts)
    for of, (of_rows, right, _) in groups.items():
        of_rows.value, right.value = G[kind == of], h[kind == of]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "inaccurate" is also in the status
        try:
            program.solve(warm_start=False, **options)
            W, status = variable.value, program.status
        except (cp.SolverError, cp.DCPError, MemoryError):  # too large, or p is 1 when rounded
            W, status = None, "solver_error"
    a = np.zeros(problem.N)
    if W is None:
        return ReferenceSolution(np.full(problem.size, np.nan), a, status)
    for of, (_, _, constraint) in groups.items():
        a[kind == of] = constraint.dual_value
    return ReferenceSolution(np.asarray(W), a, status)


@functools.lru_cache(maxsize=64)
def _program(
    norm: Norm, size: tuple[int, int], inequalities: int, equalities: int
) -> tuple[Any, Any, dict[int, tuple[Any, Any, Any]]]:
    """Return  min norm(W)  s.t.  G vec(W) >= h, E vec(W) = e  as a problem, and W.

    And for each kind of rows, if there are any, the parameters and the constraint. CVXPY compiles
    it once per shape (DPP): instances differ in parameters only.
    """
    import cvxpy as cp

    W, groups = cp.Variable(size), {}
    relations = (INEQUALITY, inequalities, operator.le), (EQUALITY, equalities, operator.eq)
    for kind, count, relation in relations:  # of h first: signs of duals
        if count:
            G, h = cp.Parameter((count, size[0] * size[1])), cp.Parameter(count)
            groups[kind] = G, h, relation(h, G @ cp.vec(W, order="C"))
    constraints = [constraint for _, _, constraint in groups.values()]
    return cp.Problem(cp.Minimize(norm.expression(W)), constraints), W, groups
