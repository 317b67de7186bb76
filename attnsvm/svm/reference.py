"""The slow reference: the same problems through CVXPY, with explicit tolerances.

Used only for checks and comparisons. CVXPY is imported on first use.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.norm import Entrywise, Norm, norm_of
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
    solve_time_s: float


def solutions(problem: SvmProblem, norm: str | Norm, **options: Any) -> list[ReferenceSolution]:
    """Return CVXPY's solution of every instance, one after the other.

    Parameters
    ----------
    norm : str or Norm
        Any that CVXPY knows, or one with a method `expression`.
    **options
        Those of CVXPY: `solver`, by default its choice, and the tolerances of that solver.
    """
    return [_solve_one(problem, b, norm_of(norm), options) for b in range(problem.B)]


def candidates(problem: SvmProblem, norm: str | Norm, **options: Any) -> Candidate:
    """Return W and multipliers of `solutions`; CVXPY returns no ray."""
    found = solutions(problem, norm, **options)
    W = torch.from_numpy(np.stack([one.W for one in found]))
    a = torch.from_numpy(np.stack([one.multipliers for one in found]))
    return Candidate(W, a, torch.full_like(a, torch.nan))


def published_rank(W: Array) -> int:
    """Return the rank of W (d, d) as the published scripts count it.

    The number of singular values above 1e-7 (absolute); 1 where CVXPY returned no matrix, as for an
    infeasible instance.
    """
    if np.isnan(W).any():
        return 1
    return int((np.linalg.svd(W, compute_uv=False) > PUBLISHED_THRESHOLD).sum())


def _solve_one(
    problem: SvmProblem, b: int, norm: Norm, options: dict[str, Any]
) -> ReferenceSolution:
    import cvxpy as cp

    kind = problem.kind[b].cpu().numpy()
    rows = np.concatenate([np.flatnonzero(kind == 1), np.flatnonzero(kind == 2)])
    G = (problem.D[b, :, :, None] * problem.queries[b, :, None, :]).flatten(1).cpu().numpy()
    m, r, d = int((kind == 1).sum()), int((kind == 2).sum()), problem.d
    program, variable, parameters, constraints = _program(norm, d, m, r)
    h = problem.h[b].cpu().numpy()
    for parameter, value in zip(parameters, (G, h), strict=True):
        for part, chosen in zip(parameter, (rows[:m], rows[m:]), strict=True):
            if part is not None:
                part.value = value[chosen]
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "inaccurate" is also in the status
        try:
            program.solve(warm_start=False, **options)
            said = program.status
        except (cp.SolverError, MemoryError):  # some programs grow far beyond the instance
            said = "solver_error"
    elapsed = time.perf_counter() - begin
    nothing = np.full((d, d), np.nan)
    W = variable.value if said != "solver_error" else None
    a = np.zeros(problem.N)
    for chosen, constraint in zip((rows[:m], rows[m:]), constraints, strict=True):
        if constraint is not None and W is not None:
            a[chosen] = constraint.dual_value
    return ReferenceSolution(
        W=nothing if W is None else np.asarray(W),
        status=PROVED.get(said, SvmStatus.undecided),
        cvxpy_status=said,
        objective=float(program.value) if W is not None else np.inf,
        multipliers=a,
        solve_time_s=elapsed,
    )


@functools.lru_cache(maxsize=64)
def _program(norm: Norm, d: int, m: int, r: int) -> tuple[Any, Any, Any, Any]:
    """Return  min norm(W)  s.t.  G vec(W) >= h, E vec(W) = e  with m and r rows.

    The problem, W, the parameters ((G, E), (h, e)) and both constraints. CVXPY compiles it once per
    shape (DPP): instances differ in parameters only.
    """
    import cvxpy as cp

    W = cp.Variable((d, d))
    G, h = (cp.Parameter((m, d * d)), cp.Parameter(m)) if m else (None, None)
    E, e = (cp.Parameter((r, d * d)), cp.Parameter(r)) if r else (None, None)
    w = cp.vec(W, order="C")
    separate = G @ w >= h if m else None
    agree = E @ w == e if r else None
    size = _size(norm, W)
    problem = cp.Problem(cp.Minimize(size), [c for c in (separate, agree) if c is not None])
    return problem, W, ((G, E), (h, e)), (separate, agree)


def _size(norm: Norm, W: Any) -> Any:
    """Return norm(W) as an expression of CVXPY; a norm of one's own has a method `expression`."""
    import cvxpy as cp

    if hasattr(norm, "expression"):
        return norm.expression(W)
    if isinstance(norm, Entrywise):
        return cp.norm(cp.vec(W, order="C"), "inf" if norm.p == math.inf else norm.p)
    kinds = {"nuclear": "nuc", "frobenius": "fro", "spectral": 2}
    if norm.name not in kinds:
        raise ValueError(f"norm={norm.name}: CVXPY does not know it; must have `expression(W)`")
    return cp.norm(W, kinds[norm.name])
