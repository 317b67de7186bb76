"""From tokens to certified solutions: the functions that users call.

problem -> canonical units -> few dimensions -> solver -> certificate -> solution
"""

from __future__ import annotations

import time
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.names import keywords_checked
from attnsvm.display.pace import doing
from attnsvm.linalg import check_array, own_settings, tensor_of
from attnsvm.norm import Norm, norm_of
from attnsvm.svm import interior_point
from attnsvm.svm.certificate import certify
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.interior_point import LARGE, constraint_generation
from attnsvm.svm.problem import SvmProblem, frobenius
from attnsvm.svm.rank_constrained import of_rank
from attnsvm.svm.reduction import WIDE, in_span, to_canonical, to_given
from attnsvm.svm.solution import ArrayT, Candidate, Judge, Method, SvmSolution, Verdict, over_fields
from attnsvm.svm.tokens import finite_part, multi_token, single_token
from attnsvm.svm.tolerances import ACTIVE, GAP, RANK_TOLERANCE, ROUNDING
from attnsvm.svm.weighted import weighted, with_margins, with_offsets

Array: TypeAlias = Tensor | ArrayLike


@keywords_checked
@own_settings()
def solve_svm(
    X: ArrayT,
    Z: Array,
    selected: Array,
    norm: str | Norm = "frobenius",
    mask: Array | None = None,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
    offsets: Array | None = None,
    ratio: Array | None = None,
    margins: Array | None = None,
) -> SvmSolution[ArrayT]:
    """Solve Att-SVM:  min norm(W)  s.t.  (x_{i,alpha_i} - x_it)^T W z_i >= 1  for all t != alpha_i.

    Equations (Att-SVM) and (Att-SVM*) of arXiv 2308.16898. With `margins` b the right-hand sides
    are b_it instead of 1. With `offsets` gamma and `ratio` r it is the weighted SVM,

        Wbar = argmin norm(W)  s.t.  (x_{i,alpha_i} - x_it)^T W z_i >= max(0, c - r gamma_i),

    c such that norm(Wbar) = 1: c is the maximum, over all W with norm(W) <= 1 and no negative
    margin, of the least of margin + r gamma_i. W = objective * Wbar is returned, and
    c = 1 / objective + r min gamma, the least gamma of samples that have a row. r = 0 is Att-SVM;
    r = inf is the relaxed SVM of arXiv 2306.13596 (margin 1 for the least gamma, 0 for others).
    Opposite rows that r clips have margins of exactly 0: `undecided`, although such a W exists.

    Parameters
    ----------
    X : Tensor, ndarray or nested lists (B, n, T, d), or (n, T, d) for a single instance
    Z : (B, n, d)
    selected : (B, n) integers
        The token alpha_i to be selected in each sample.
    norm : str or Norm
        frobenius, nuclear, spectral, max, l1, l<p> or schatten<p>, as in l1.75; A+B, the larger of
        A of all columns but the last and B of that, a bias; or a norm of your own.
    mask : (B, n, T) bool, optional
        The admissible tokens.
    gap : float in [1e-12, 1e-2]
        Largest duality gap of a `solved` instance; an ill-conditioned one is allowed more.
    rank_tolerance : float in (0, 1)
        Relative threshold of the numerical rank.
    offsets : (B, n), optional
        gamma_i of each sample.
    ratio : float or (B,)
        r >= 0, or inf; with `offsets` only.
    margins : (B, n (T - 1)), optional
        b of each row, 0 or 1e-100 to 1e100; row i (T - 1) + j is the j-th token of i but alpha_i.

    Returns
    -------
    SvmSolution
        Torch arrays for tensors, else NumPy, float64; with a batch axis if the input has one.

    Raises
    ------
    ValueError
        Wrong shapes or types, NaN or Inf, a selected token that the mask excludes; both margins and
        offsets, or one of offsets and ratio without the other.
    """
    inputs, problem = _single_token(X, Z, selected, mask)
    if (offsets is None) != (ratio is None):
        raise ConfigError(f"{'offsets' if offsets is None else 'ratio'}: must be given, too")
    if margins is not None and offsets is not None:
        raise ConfigError("margins: must not be given together with offsets")
    if margins is not None:
        problem = with_margins(problem, inputs.real("margins", margins, problem.N))
    if offsets is not None:
        gamma = inputs.real("offsets", offsets, problem.n)
        problem = with_offsets(problem, gamma, inputs.number("ratio", ratio))
    return inputs.back(solve(problem, norm, inputs.axes[1], gap, rank_tolerance))


@keywords_checked
@own_settings()
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
    inputs = Inputs("X", X, 3)
    tokens, admissible = inputs.of_tokens(X, Z, mask)
    n, T, _ = inputs.axes
    sets = inputs.array("attended", attended, n, T)
    logs = inputs.array("log_softmax", inputs.number("log_softmax", log_softmax), n, T)
    problems = finite_part(*tokens, sets, logs, admissible), multi_token(*tokens, sets, admissible)
    fin, mm = (inputs.back(solve(p, norm, T, gap, rank_tolerance)) for p in problems)
    return fin, mm


@keywords_checked
@own_settings()
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
    inputs, problem = _single_token(X, Z, selected, mask)
    if type(m) is not int or not 1 <= m <= problem.d:
        raise ConfigError(f"m={m!r}: must be an integer >= 1 and <= d={problem.d}")
    return inputs.back(solve(problem, "nuclear", inputs.axes[1], gap, rank_tolerance, m))


def _single_token(X: Any, Z: Any, selected: Any, mask: Any) -> tuple[Inputs, SvmProblem]:
    """Return the user's input, checked, and Att-SVM."""
    inputs = Inputs("X", X, 3)
    tokens, admissible = inputs.of_tokens(X, Z, mask)
    selected = inputs.array("selected", selected, inputs.axes[0])
    return inputs, single_token(*tokens, selected, admissible)


class Inputs:
    """Array type, device, batch axis and further axes of the user's input; results get the same.

    They are those of the first array, `name`, which has `ndim` axes if of a single instance.
    """

    def __init__(self, name: str, X: Any, ndim: int) -> None:
        self.is_torch = isinstance(X, Tensor)
        self.device = X.device if isinstance(X, Tensor) else torch.device("cpu")
        shape = tuple(tensor_of(name, X).shape)
        if len(shape) not in (ndim, ndim + 1) or 0 in shape:
            must = f"must have {ndim} axes, or {ndim + 1} of a batch, none of them zero"
            raise ConfigError(f"{name}: shape {shape}; {must}")
        self.lead, self.axes = shape[:-ndim], shape[-ndim:]

    def of_tokens(self, X: Any, Z: Any, mask: Any) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
        """Return tokens and queries, and the mask, which is optional."""
        n, T, d = self.axes
        tokens = self.real("X", X, n, T, d), self.real("Z", Z, n, d)
        return tokens, None if mask is None else self.array("mask", mask, n, T)

    def array(self, name: str, array: Any, *axes: int) -> Tensor:
        """Return an array with these axes as a batched tensor."""
        tensor = tensor_of(name, array, self.device).detach()
        if tensor.shape != (*self.lead, *axes):
            must = f"must be {(*self.lead, *axes)}"
            raise ConfigError(f"{name}: shape {tuple(tensor.shape)}; {must}")
        return tensor if self.lead else tensor[None]

    def real(self, name: str, array: Any, *axes: int) -> Tensor:
        """Return an array of finite real numbers with these axes as a batched float64 tensor."""
        tensor = self.number(name, array)
        check_array(name, tensor, (*self.lead, *axes), torch.float64)
        return self.array(name, tensor, *axes)

    def number(self, name: str, array: Any) -> Tensor:
        """Return an array of real numbers, of any axes, as a float64 tensor."""
        tensor = tensor_of(name, array, self.device).detach()
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise ConfigError(f"{name}: {tensor.dtype}; must be real numbers")
        return tensor.to(torch.float64)

    def back(self, solution: SvmSolution[Tensor]) -> SvmSolution[Any]:
        """Return the solution in arrays of this kind; its problem stays batched tensors."""

        def changed(value: Any) -> Any:
            value = value if self.lead else value[0]
            return value.numpy()[()] if isinstance(value, Tensor) and not self.is_torch else value

        return over_fields(changed, solution)


def method_of(norm: Norm, rows: int, d: int) -> Method:
    """Return the method for problems with `rows` rows in d dimensions.

    Entry-wise norms change with the basis, so that many dimensions remain many.
    """
    wide = d >= WIDE and bool(norm.path()) and not norm.rotation_invariant
    large = rows >= LARGE or wide
    if norm.is_hilbert:
        by_rows = partial(constraint_generation, norm=norm) if large else least_norm
        return partial(interior_point.decided, by_rows)
    return partial(constraint_generation if large else interior_point.solve, norm=norm)


@own_settings()
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
    if not 1e-12 <= gap <= 1e-2:
        raise ConfigError(f"gap={gap!r}: must be >= 1e-12 and <= 1e-2")
    if not 0 < rank_tolerance < 1:
        raise ConfigError(f"rank_tolerance={rank_tolerance!r}: must be > 0 and < 1")
    begin = time.perf_counter()
    scaled, units = to_canonical(problem)
    method, back = method_of(norm, scaled.N, scaled.d), None
    judge = partial(certify, norm=norm, gap=gap, rank_tolerance=rank_tolerance)
    if norm.rotation_invariant:
        scaled, back = in_span(scaled)
        method = method if norm.is_hilbert else partial(_in_span, method)
    if m is not None and m < problem.d:
        method = partial(of_rank, m=m, relaxation=method, judge=judge)
    method = partial(weighted, method, norm)
    with doing(f"{norm.name} SVM"), np.errstate(all="ignore"):
        verdict = _isolated(scaled, method, judge)
    support = _support(scaled, verdict, T)
    if back:
        sigma = verdict.sigma
        zeros = 0 * sigma[:, :1].expand(-1, min(problem.size) - sigma.shape[1])
        verdict = replace(verdict, W=back(verdict.W), sigma=torch.cat([sigma, zeros], 1))
    verdict = to_given(verdict, units)
    proof = verdict.certificate
    return SvmSolution(
        **{f.name: getattr(verdict, f.name) for f in fields(verdict)},
        objective=proof.upper,
        lower_bound=proof.lower,
        duality_gap=proof.gap,
        support=support & ~verdict.W.isnan().any(dim=(1, 2))[:, None, None],
        solve_time_s=time.perf_counter() - begin,
        minimised=norm,
        problem=problem,
    )


def _in_span(method: Method, problem: SvmProblem) -> Candidate:
    """Return the candidate by `method` in the span of the rows, where these are few."""
    part, back = in_span(problem, always=True)
    candidate = method(part)
    return candidate._replace(W=back(candidate.W))


def _support(problem: SvmProblem, verdict: Verdict[Tensor], T: int) -> Tensor:
    """Return the tokens whose constraint is active, (B, n, T).

    Up to ACTIVE, or ROUNDING kappa, relative to h_k, or to ||d_k|| ||z_k|| ||W||_F / kappa if that
    is larger: of Att-SVM it is at most one.
    """
    W, h = verdict.W, problem.rhs_at_norm(verdict.certificate.upper)
    size = (frobenius(W) / verdict.kappa)[:, None]
    unit = torch.maximum(h.abs(), problem.scale * size)
    tolerance = (ROUNDING * verdict.kappa).clamp(min=ACTIVE)[:, None] * unit
    active = problem.inequality & (problem.margins(W) <= h + tolerance)
    active = active | problem.equality
    shape = (problem.B, problem.n, problem.N // problem.n)
    support = torch.zeros((problem.B, problem.n, T), dtype=torch.bool, device=W.device)
    return support.scatter(2, problem.token.reshape(shape), active.reshape(shape))


# Numerical code raises these (ValueError: NumPy's LinAlgError), and warnings that are errors.
NUMERICAL = torch.linalg.LinAlgError, ArithmeticError, ValueError, RuntimeWarning


def _isolated(problem: SvmProblem, method: Method, judge: Judge) -> Verdict[Tensor]:
    """Return the verdict of each instance; if the method raises, the candidate is empty (NaN).

    A batch that raises is halved until the instance at fault is alone.
    """
    try:
        return judge(problem, method(problem))
    except NUMERICAL:
        if problem.B == 1:
            nothing = torch.full_like(problem.h, torch.nan)
            return judge(problem, Candidate(problem.combine(nothing), nothing, nothing))
    halves = torch.arange(problem.B, device=problem.D.device).tensor_split(2)
    return over_fields(
        lambda x, y: torch.cat([x, y]) if isinstance(x, Tensor) else x + y,
        *(_isolated(problem.take(half), method, judge) for half in halves),
    )
