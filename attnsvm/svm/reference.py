"""The slow oracle: the same problems through CVXPY, tolerances explicit, every status mapped.

Used to check and to compare, never to decide. CVXPY is imported when it is first needed.
"""

from __future__ import annotations

import functools
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.svm.certificate import Norm
from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.solution import SvmStatus

Array = NDArray[np.float64]

PUBLISHED_THRESHOLD = 1e-7

# What CVXPY says, in our words. An "inaccurate" answer decides nothing.
STATUS = {
    "optimal": SvmStatus.solved,
    "infeasible": SvmStatus.infeasible,
    "optimal_inaccurate": SvmStatus.undecided,
    "infeasible_inaccurate": SvmStatus.undecided,
    "unbounded": SvmStatus.undecided,
    "unbounded_inaccurate": SvmStatus.undecided,
    "infeasible_or_unbounded": SvmStatus.undecided,
    "user_limit": SvmStatus.undecided,
    "solver_error": SvmStatus.undecided,
}


@dataclass(frozen=True)
class ReferenceSolution:
    """What CVXPY returned for one instance: W (d, d), NaN where it returned none, and its word."""

    W: Array
    status: SvmStatus
    cvxpy_status: str
    objective: float
    multipliers: Array
    solve_time_s: float


def solve_reference(
    problem: SvmProblem, norm: Norm, solver: str | None = None, **tolerances: Any
) -> list[ReferenceSolution]:
    """Solve every instance of `problem` by CVXPY; `solver=None` is its default call."""
    return [_solve_one(problem, b, norm, solver, tolerances) for b in range(problem.B)]


def published_rank(W: Array) -> int:
    """Return the rank of W (d, d) as the published scripts count it.

    Singular values above 1e-7, absolute; and 1 where no matrix came back, as for an infeasible
    instance.
    """
    if np.isnan(W).any():
        return 1
    return int((np.linalg.svd(W, compute_uv=False) > PUBLISHED_THRESHOLD).sum())


def _solve_one(
    problem: SvmProblem, b: int, norm: Norm, solver: str | None, tolerances: dict[str, Any]
) -> ReferenceSolution:
    import cvxpy as cp

    kind = problem.kind[b].cpu().numpy()
    rows = np.concatenate([np.flatnonzero(kind == 1), np.flatnonzero(kind == 2)])
    G = (problem.D[b, :, :, None] * problem.queries[b, :, None, :]).flatten(1).cpu().numpy()
    m, r, d = int((kind == 1).sum()), int((kind == 2).sum()), problem.d
    program = _program(norm, d, m, r)
    h = problem.h[b].cpu().numpy()
    for parameter, value in zip(program.parameters, (G, h), strict=True):
        for part, chosen in zip(parameter, (rows[:m], rows[m:]), strict=True):
            if part is not None:
                part.value = value[chosen]
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "inaccurate": it is in the status
        try:
            program.problem.solve(solver=solver, warm_start=False, **tolerances)
            said = program.problem.status
        except cp.SolverError:
            said = "solver_error"
    elapsed = time.perf_counter() - begin
    nothing = np.full((d, d), np.nan)
    W = program.W.value if said != "solver_error" else None
    a = np.zeros(problem.N)
    for chosen, constraint in zip((rows[:m], rows[m:]), program.constraints, strict=True):
        if constraint is not None and W is not None:
            a[chosen] = constraint.dual_value
    return ReferenceSolution(
        W=nothing if W is None else np.asarray(W),
        status=STATUS[said],
        cvxpy_status=said,
        objective=float(program.problem.value) if W is not None else np.inf,
        multipliers=a,
        solve_time_s=elapsed,
    )


@dataclass(frozen=True)
class _Program:
    """A problem compiled once per shape (DPP): only parameters change between instances."""

    problem: Any
    W: Any
    parameters: tuple[tuple[Any, Any], tuple[Any, Any]]
    constraints: tuple[Any, Any]


@functools.lru_cache(maxsize=64)
def _program(norm: Norm, d: int, m: int, r: int) -> _Program:
    """Return  min norm(W)  s.t.  G vec(W) >= h, E vec(W) = e  with m and r rows."""
    import cvxpy as cp

    W = cp.Variable((d, d))
    G, h = (cp.Parameter((m, d * d)), cp.Parameter(m)) if m else (None, None)
    E, e = (cp.Parameter((r, d * d)), cp.Parameter(r)) if r else (None, None)
    w = cp.vec(W, order="C")
    separate = G @ w >= h if m else None
    agree = E @ w == e if r else None
    size = cp.norm(W, "fro") if norm == "frobenius" else cp.normNuc(W)
    problem = cp.Problem(cp.Minimize(size), [c for c in (separate, agree) if c is not None])
    return _Program(problem, W, ((G, E), (h, e)), (separate, agree))
