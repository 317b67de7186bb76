"""From tokens to certified solutions: the functions that users call.

problem -> unit size -> few dimensions -> solver -> certificate -> solution
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnsvm.config.names import keywords_checked
from attnsvm.linalg import one_thread
from attnsvm.norm import Norm, Schatten, norm_of
from attnsvm.svm.certificate import certify
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.input import Given
from attnsvm.svm.interior_point import LARGE, ConstraintGeneration, InteriorPoint, cones
from attnsvm.svm.problem import SvmProblem, finite_part, multi_token, single_token
from attnsvm.svm.rank_constrained import RankConstrained
from attnsvm.svm.scaling import to_given_size, to_unit_size
from attnsvm.svm.solution import (
    ArrayT,
    Candidate,
    Certificate,
    Solver,
    SvmSolution,
    Verdict,
)
from attnsvm.svm.tolerances import ACTIVE, GAP, RANK_TOLERANCE, ROUNDING
from attnsvm.svm.wide import WIDE, reduced

Array: TypeAlias = Tensor | ArrayLike


@keywords_checked
def solve_svm(
    X: ArrayT,
    Z: Array,
    selected: Array,
    norm: str | Norm = "frobenius",
    mask: Array | None = None,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
) -> SvmSolution[ArrayT]:
    """Solve Att-SVM:  min norm(W)  s.t.  (x_{i,alpha_i} - x_it)^T W z_i >= 1  for all t != alpha_i.

    Equations (Att-SVM) and (Att-SVM*) of arXiv 2308.16898.

    Parameters
    ----------
    X : Tensor, ndarray or nested lists (B, n, T, d), or (n, T, d) for a single instance
    Z : (B, n, d)
    selected : (B, n) integers
        The token alpha_i to be selected in each sample.
    norm : str or Norm
        frobenius, nuclear, spectral, max, l1, l<p> or schatten<p>, as in l1.75; or a norm of your
        own.
    mask : (B, n, T) bool, optional
        The admissible tokens.
    gap : float in (0, 1e-2]
        Largest duality gap of a `solved` instance; an ill-conditioned one is allowed more.
    rank_tolerance : float in (0, 1)
        Relative threshold of the numerical rank.

    Returns
    -------
    SvmSolution
        Torch arrays for tensors, else NumPy; with a batch axis if the input has one.

    Raises
    ------
    ValueError
        Wrong shapes or types, NaN or Inf, a selected token that the mask excludes.
    """
    given = Given(X)
    problem, T = _single_token(given, X, Z, selected, mask)
    solution: SvmSolution[ArrayT] = given.back(solve(problem, norm, T, gap, rank_tolerance))
    return solution


@keywords_checked
def solve_gen_svm(
    X: ArrayT,
    Z: Array,
    attended: Array,
    log_softmax: Array,
    norm: str | Norm = "frobenius",
    mask: Array | None = None,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
) -> tuple[SvmSolution[ArrayT], SvmSolution[ArrayT]]:
    """Solve Gen-SVM and return (W_fin, W_mm), section 6 of arXiv 2308.16898.

    W_fin: min norm(W)  s.t.  (x_it - x_iu)^T W z_i = log(s_it / s_iu)  for t, u in O_i.
    W_mm:  min norm(W)  s.t.  (x_it - x_iu)^T W z_i = 0 for t, u in O_i, >= 1 for t in O_i, u not.

    Parameters
    ----------
    X, Z, norm, mask, gap, rank_tolerance
        As in `solve_svm`.
    attended : (B, n, T) bool
        The sets O_i, none of them empty.
    log_softmax : (B, n, T)
        log s_it, read inside O_i only.
    """
    given = Given(X)
    tokens, queries, sets = (
        given.real("X", X),
        given.real("Z", Z),
        given.batch("attended", attended),
    )
    admissible = None if mask is None else given.batch("mask", mask)
    problems = (
        finite_part(tokens, queries, sets, given.real("log_softmax", log_softmax), admissible),
        multi_token(tokens, queries, sets, admissible),
    )
    T = tokens.shape[2]
    fin, mm = (given.back(solve(p, norm, T, gap, rank_tolerance)) for p in problems)
    return fin, mm


@keywords_checked
def solve_rank_constrained(
    X: ArrayT,
    Z: Array,
    selected: Array,
    m: int,
    mask: Array | None = None,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
) -> SvmSolution[ArrayT]:
    """Solve Att-SVM in the nuclear norm with rank(W) <= m, the limit of K, Q with m columns.

    min ||W||_*  s.t.  (x_{i,alpha_i} - x_it)^T W z_i >= 1,  rank(W) <= m:  equation (Att-SVM*) of
    arXiv 2308.16898. It is not convex. If the solution without the rank constraint has rank <= m,
    it is the solution, `solved`. Otherwise W is the best point of rank m found (NaN if none is),
    `lower_bound` is the least norm without the constraint, and the status is `undecided` unless
    the two agree to `gap`.

    Parameters
    ----------
    X, Z, selected, mask, gap, rank_tolerance
        As in `solve_svm`.
    m : int
        Largest rank, 1 <= m <= d.

    Returns
    -------
    SvmSolution
        As of `solve_svm`; `infeasible` where no W of any rank separates the tokens.

    Raises
    ------
    ValueError
        As in `solve_svm`, or m is not between 1 and d.
    """
    given = Given(X)
    problem, T = _single_token(given, X, Z, selected, mask)
    if type(m) is not int or not 1 <= m <= problem.d:
        raise ValueError(f"m={m!r}: must be an integer >= 1 and <= d={problem.d}")
    found: SvmSolution[ArrayT] = given.back(solve(problem, "nuclear", T, gap, rank_tolerance, m))
    return found


def _single_token(given: Given, X: Any, Z: Any, selected: Any, mask: Any) -> tuple[SvmProblem, int]:
    """Return the problem and the number of tokens."""
    X, Z, selected = given.real("X", X), given.real("Z", Z), given.batch("selected", selected)
    mask = None if mask is None else given.batch("mask", mask)
    return single_token(X, Z, selected, mask), X.shape[2]


def solver_of(norm: str | Norm, rows: int, d: int) -> Solver:
    """Return the method for problems with `rows` rows in d dimensions.

    Entry-wise norms change with the basis, so that many dimensions remain many.
    """
    norm = norm_of(norm)
    wide = d >= WIDE and bool(cones(norm)) and not isinstance(norm, Schatten)
    if rows >= LARGE or (wide and norm.name != "frobenius"):
        return ConstraintGeneration(norm)
    return LeastDistance() if norm.name == "frobenius" else InteriorPoint(norm)


def solve(
    problem: SvmProblem,
    norm: str | Norm,
    T: int,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
    m: int | None = None,
) -> SvmSolution[Tensor]:
    """Solve the batch `problem`, whose samples have T tokens, and certify the result.

    With `m` < d and the nuclear norm, rank(W) <= m is required.
    """
    norm = norm_of(norm)
    _check_tolerances(gap, rank_tolerance)
    begin = time.perf_counter()
    scaled, exponent, exact = to_unit_size(problem)
    solver = solver_of(norm, scaled.N, scaled.d)
    if m is not None and m < problem.d:
        solver = RankConstrained(m, solver, gap, rank_tolerance)
    with one_thread(), np.errstate(all="ignore"):
        judge = partial(certify, norm=norm, gap=gap, rank_tolerance=rank_tolerance)
        rotated = isinstance(norm, Schatten) or norm.name == "frobenius"
        candidates = partial(reduced, solver.candidates) if rotated else solver.candidates
        verdict = _isolated(scaled, candidates, judge)
    verdict = to_given_size(verdict, exponent, exact)
    proof = verdict.certificate
    return SvmSolution(
        W=verdict.W,
        status=verdict.status,
        objective=proof.upper,
        lower_bound=proof.lower,
        duality_gap=proof.gap,
        min_margin=verdict.min_margin,
        rank=verdict.rank,
        rank_bound=verdict.rank_bound,
        sigma=verdict.sigma,
        support=_support(problem, verdict.W, verdict.kappa, T),
        kappa=verdict.kappa,
        certificate=proof,
        solve_time_s=time.perf_counter() - begin,
        minimised=norm,
        problem=problem,
    )


def _support(problem: SvmProblem, W: Tensor, kappa: Tensor, T: int) -> Tensor:
    """Return the tokens whose constraint is active, (B, n, T)."""
    tolerance = (ROUNDING * kappa).clamp(min=ACTIVE)[:, None]
    active = problem.inequality & (problem.margins(W) <= problem.h * (1 + tolerance))
    active = active | (problem.equality & ~W.isnan().any(dim=(1, 2))[:, None])
    shape = (problem.B, problem.n, problem.N // problem.n)
    support = torch.zeros((problem.B, problem.n, T), dtype=torch.bool, device=W.device)
    return support.scatter(2, problem.token.reshape(shape), active.reshape(shape))


def _check_tolerances(gap: float, rank_tolerance: float) -> None:
    for name, value, allowed, holds in (
        ("gap", gap, "> 0 and <= 1e-2", 0 < gap <= 1e-2),
        ("rank_tolerance", rank_tolerance, "> 0 and < 1", 0 < rank_tolerance < 1),
    ):
        if not holds:
            raise ValueError(f"{name}={value!r}: must be {allowed}")


# Exceptions of numerical code; RuntimeWarning is one where warnings are errors.
NUMERICAL = (
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    ArithmeticError,
    ValueError,
    RuntimeWarning,
)


def _isolated(
    problem: SvmProblem,
    solve: Callable[[SvmProblem], Candidate],
    judge: Callable[[SvmProblem, Candidate], Verdict],
) -> Verdict:
    """Return the verdict of each instance; if the solver raises, the candidate is empty (NaN).

    A batch that raises is halved until the instance at fault is alone.
    """
    try:
        return judge(problem, solve(problem))
    except NUMERICAL:
        if problem.B == 1:
            return judge(problem, _nothing(problem))
    halves = torch.arange(problem.B, device=problem.D.device).tensor_split(2)
    return _joined(*(_isolated(problem.take(half), solve, judge) for half in halves))


def _nothing(problem: SvmProblem) -> Candidate:
    nothing = torch.full_like(problem.h, torch.nan)
    return Candidate(torch.full_like(problem.combine(nothing), torch.nan), nothing, nothing)


Part = TypeVar("Part", Verdict, Certificate[Tensor])


def _joined(first: Part, second: Part) -> Part:
    """Return two verdicts, or their certificates, as one."""
    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(first)):
        x, y = getattr(first, name), getattr(second, name)
        if isinstance(x, Certificate):
            joined[name] = _joined(x, y)
        else:
            joined[name] = torch.cat([x, y]) if isinstance(x, Tensor) else x + y
    return type(first)(**joined)
