"""The slow reference: the same problems through CVXPY, with explicit tolerances.

Used only for checks and comparisons. CVXPY is imported on first use.
"""

import functools
import operator
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.display.pace import each
from attnsvm.norm import Norm, norm_of
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Candidate, SvmStatus

Array = NDArray[np.float64]

PUBLISHED_THRESHOLD = 1e-7

PROVED = {"optimal": SvmStatus.solved, "infeasible": SvmStatus.infeasible}
"""What CVXPY's status proves; an "inaccurate" solution proves nothing."""


@dataclass(frozen=True)
class ReferenceSolution:
    """CVXPY's solution of one instance and its status; W (d, d) is NaN where it returned none."""

    W: Array
    status: SvmStatus
    cvxpy_status: str
    objective: float
    multipliers: Array


def solutions(problem: SvmProblem, norm: str | Norm, **options: Any) -> list[ReferenceSolution]:
    """Return CVXPY's solution of every instance, one after the other.

    Options are those of CVXPY: `solver`, by default its choice, and the tolerances of that solver.
    """
    instances = each("instance", range(problem.B))
    return [_solve_instance(problem, b, norm_of(norm), options) for b in instances]


def candidates(problem: SvmProblem, norm: str | Norm, **options: Any) -> Candidate:
    """Return W and multipliers of `solutions`; CVXPY returns no ray."""
    results = solutions(problem, norm, **options)
    W = torch.from_numpy(np.stack([result.W for result in results]))
    a = torch.from_numpy(np.stack([result.multipliers for result in results]))
    return Candidate(W, a, torch.full_like(a, torch.nan))


def published_rank(W: Array) -> int:
    """Return the rank of W (d, d) as the published scripts count it.

    The number of singular values above 1e-7 (absolute); 1 where CVXPY returned no matrix, as for an
    infeasible instance.
    """
    if np.isnan(W).any():
        return 1
    return int((np.linalg.svd(W, compute_uv=False) > PUBLISHED_THRESHOLD).sum())


def _solve_instance(
    problem: SvmProblem, b: int, norm: Norm, options: dict[str, Any]
) -> ReferenceSolution:
    import cvxpy as cp

    kind, h = problem.kind[b].cpu().numpy(), problem.h[b].cpu().numpy()
    G = (problem.D[b, :, :, None] * problem.queries[b, :, None, :]).flatten(1).cpu().numpy()
    rows = [np.flatnonzero(kind == 1), np.flatnonzero(kind == 2)]
    program, variable, groups = _program(norm, problem.size, *map(len, rows))
    rows = [chosen for chosen in rows if len(chosen)]
    for (of_rows, right, _), chosen in zip(groups, rows, strict=True):
        of_rows.value, right.value = G[chosen], h[chosen]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "inaccurate" is also in the status
        try:
            program.solve(warm_start=False, **options)
            status = program.status
        except (cp.SolverError, cp.DCPError, MemoryError):  # too large, or p is 1 when rounded
            status = "solver_error"
    W = variable.value if status != "solver_error" else None
    a = np.zeros(problem.N)
    if W is not None:
        for (_, _, constraint), chosen in zip(groups, rows, strict=True):
            a[chosen] = constraint.dual_value
    return ReferenceSolution(
        W=np.full(problem.size, np.nan) if W is None else np.asarray(W),
        status=PROVED.get(status, SvmStatus.undecided),
        cvxpy_status=status,
        objective=float(program.value) if W is not None else np.inf,
        multipliers=a,
    )


@functools.lru_cache(maxsize=64)
def _program(
    norm: Norm, size: tuple[int, int], m: int, r: int
) -> tuple[Any, Any, list[tuple[Any, Any, Any]]]:
    """Return  min norm(W)  s.t.  G vec(W) >= h, E vec(W) = e  with m and r rows, as a problem.

    And W, and of both groups of rows, if there are any, the parameters and the constraint. CVXPY
    compiles it once per shape (DPP): instances differ in parameters only.
    """
    import cvxpy as cp

    W, groups = cp.Variable(size), []
    for count, relation in ((m, operator.le), (r, operator.eq)):  # of h first: signs of duals
        if count:
            G, h = cp.Parameter((count, size[0] * size[1])), cp.Parameter(count)
            groups.append((G, h, relation(h, G @ cp.vec(W, order="C"))))
    problem = cp.Problem(
        cp.Minimize(norm.expression(W)), [constraint for _, _, constraint in groups]
    )
    return problem, W, groups
