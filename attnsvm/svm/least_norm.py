r"""Least norm under linear constraints of any rows, with the certificates of the attention SVMs.

    min norm(W)  s.t.  <A_k, W> >= b_k,   <C_k, W> = e_k,      W (p, q).

Att-SVM is the case A_k = d_k z_k^T, b_k = 1; rows as factors u_k v_k^T have its methods, and those
of any A_k cost what their size costs. Where some b_k <= 0, or some e_k is not zero, W cannot be
scaled, and active rows are met up to rounding, as equalities are (`certificate`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attnsvm.config import ConfigError
from attnsvm.config.names import keywords_checked
from attnsvm.config.norm import name_of
from attnsvm.linalg import own_settings
from attnsvm.norm import Norm, norm_of
from attnsvm.svm.problem import EQUALITY, INEQUALITY, SvmProblem
from attnsvm.svm.solution import SvmSolution
from attnsvm.svm.solve import Inputs, solve
from attnsvm.svm.tolerances import GAP, RANK_TOLERANCE

EXTREME = 1e100
"""Right-hand sides are 0, or between this and its inverse."""

FIELDS = ("D", "Z", "h", "kind")

Matrices = Any
"""Arrays (N, p, q), or the factors ((N, p), (N, q)) of u_k v_k^T; with a batch axis (B, ...)."""


@keywords_checked
@own_settings()
def solve_least_norm(
    A: Matrices = None,
    b: Any = None,
    norm: str | Norm = "frobenius",
    equalities: tuple[Matrices, Any] | None = None,
    gap: float = GAP,
    rank_tolerance: float = RANK_TOLERANCE,
) -> SvmSolution[Any]:
    """Solve  min norm(W)  s.t.  <A_k, W> >= b_k,  <C_k, W> = e_k,  and certify the solution.

    Parameters
    ----------
    A : (B, N, p, q), or (N, p, q) for a single instance; or a tuple of factors
        The matrices A_k; or U (B, N, p) and V (B, N, q) of A_k = u_k v_k^T, which is faster.
        None without inequalities.
    b : (B, N), or a number for all rows
        Right-hand sides, 0 or 1e-100 to 1e100 in size.
    norm, gap, rank_tolerance
        As in `solve_svm`.
    equalities : (C, e), optional
        C of the kind of A and of the same p, q, with M rows, and e (B, M) or a number.

    Returns
    -------
    SvmSolution
        W (B, p, q), float64; multipliers, ray and `support` (B, N + M), rows of A first.
        `unconstrained` where W = 0 is feasible, `infeasible` with a ray also where equalities
        contradict each other, `undecided` where the bracket is open.

    Raises
    ------
    ValueError
        Shapes that do not fit, numbers that are not real or not finite, and neither A nor C.
    """
    is_pair = isinstance(equalities, tuple | list) and len(equalities) == 2
    C, e = equalities if equalities is not None and is_pair else (None, None)
    if equalities is not None and (C is None or e is None):
        raise ConfigError("equalities: must be (C, e)")
    groups = [("A", A, "b", b, INEQUALITY), ("C", C, "e", e, EQUALITY)]
    groups = [group for group in groups if group[1] is not None]
    if not groups or (A is None) != (b is None):
        raise ConfigError("A: must be given with b, or left out with it where there are equalities")
    name, first = groups[0][:2]
    factors = isinstance(first, tuple)
    inputs = Inputs(name, first[0], 2) if factors and first else Inputs(name, first, 3)
    parts = [_rows(inputs, *group, factors) for group in groups]
    if len(sizes := {part.size for part in parts}) > 1:
        raise ConfigError(f"C: must have the p, q of A; they are {sizes}")
    D, Z, h, kind = (torch.cat([getattr(part, name) for part in parts], 1) for name in FIELDS)
    (B, N), shape = h.shape, parts[0].shape
    token = torch.arange(N, device=D.device) if shape else torch.zeros_like(kind[0]).long()
    problem = SvmProblem(D, Z[:, :1] if shape else Z, h, kind, token.expand(B, N), shape=shape)
    solution = solve(problem, norm, N if shape else 1, gap, rank_tolerance)
    return inputs.back(replace(solution, support=solution.support.flatten(1)))


def _rows(
    inputs: Inputs, name: str, A: Matrices, right: str, b: Any, of: int, factors: bool
) -> SvmProblem:
    """Return the problem of some rows, each with a query; those of any A_k have a shape."""
    arrays = A if isinstance(A, tuple) else (A,)
    if isinstance(A, tuple) != factors or len(arrays) != 1 + factors:
        raise ConfigError(f"{name}: must be an array, or a tuple of factors (U, V), as A is")
    axes = [Inputs(name, array, 3 - factors).axes for array in arrays]
    N = axes[0][0]
    D, *rest = (inputs.real(name, x, N, *of_x[1:]) for x, of_x in zip(arrays, axes, strict=True))
    Z, shape = (rest[0], None) if factors else (D.new_ones(len(D), N, 1), (axes[0][1], axes[0][2]))
    h = inputs.number(right, b)
    h = h.expand(D.shape[:2]) if h.ndim == 0 else inputs.real(right, h, N)
    size = h[h != 0].abs()
    if len(wrong := size[~((size >= 1 / EXTREME) & (size <= EXTREME))]):
        raise ConfigError(f"{right}: {float(wrong[0])} in size; must be 0, or 1e-100 to 1e100")
    kind = torch.full_like(h, of, dtype=torch.int8)
    return SvmProblem(D.flatten(2), Z, h, kind, torch.zeros_like(kind), shape=shape)


ENTRYWISE = {"norm1": "l1", "norm_inf": "max", "Sum of abs": "l1", "max of abs": "max"}
SINGULAR = {"normNuc": "nuclear", "sigma_max": "spectral"}
SIGNS = {"Inequality": -1, "NonPos": -1, "NonNeg": 1, "Equality": 0, "Zero": 0}
"""Constraints of CVXPY whose expression is at most, at least, or equal to zero."""


def from_cvxpy(
    problem: Any, gap: float = GAP, rank_tolerance: float = RANK_TOLERANCE
) -> SvmSolution[Any]:
    """Solve a CVXPY problem  minimise norm(X)  under affine constraints, with a certificate.

    Parameters
    ----------
    problem : cvxpy.Problem
        Of one real variable X without attributes, which is not changed. The norm is one of
        `normNuc`, `sigma_max`, `norm(X, "fro")`, and of the entries `norm1`, `norm_inf`, `pnorm`,
        `sum(abs(X))`, `max(abs(X))`. What has the same minimiser will do: powers and positive
        multiples of a norm, constants added to it, `sum_squares(X)`, the maximum of -norm(X).
    gap, rank_tolerance
        As in `solve_svm`.

    Returns
    -------
    SvmSolution
        That of `solve_least_norm`, whose objective is the norm; a vector X is a matrix with one
        column.

    Raises
    ------
    ConfigError
        Why the problem is not of this form.
    """
    import cvxpy as cp  # imports are slow
    from scipy.sparse import csc_matrix

    if not isinstance(problem, cp.Problem):
        raise ConfigError(f"problem: {type(problem).__name__}; must be a cvxpy.Problem")
    variables = problem.variables()
    if len(variables) != 1:
        raise ConfigError(f"problem: {len(variables)} variables; must be one, the X of the norm")
    X = variables[0]
    if held := [name for name, value in X.attributes.items() if value not in (False, None)]:
        raise ConfigError(f"problem: {X.name()} has {held[0]}; must be a constraint")
    if X.ndim > 2:
        raise ConfigError(f"problem: {X.name()} has {X.ndim} axes; must be a matrix or a vector")
    norm = _norm_of(problem.objective, X)
    shape = (*X.shape, 1, 1)[:2]
    groups: tuple[list[Any], list[Any]] = [], []
    saved, X.value = X.value, np.zeros(X.shape)
    try:
        for constraint in problem.constraints:
            sign = SIGNS.get(type(constraint).__name__)
            if sign is None or not constraint.expr.is_affine() or constraint.expr.is_complex():
                raise ConfigError(
                    f"problem: {constraint}; must be an affine inequality or equality"
                )
            if constraint.expr.size == 0:
                continue
            if (at_zero := constraint.expr.value) is None:
                raise ConfigError(f"problem: {constraint}; must have values of its parameters")
            slope = constraint.expr.grad.get(X)
            J = csc_matrix((X.size, constraint.expr.size) if slope is None else slope).toarray()
            rows = np.stack([row.reshape(shape, order="F") for row in J.T])
            right = -np.ravel(at_zero, order="F")
            groups[sign == 0].append((rows * (sign or 1), right * (sign or 1)))
    finally:
        X.value = saved
    joined: Any = [tuple(map(np.concatenate, zip(*parts, strict=True))) for parts in groups]
    if not any(joined):
        raise ConfigError("problem: must have constraints: X = 0 without them")
    A, b = joined[0] or (None, None)
    return solve_least_norm(A, b, norm, joined[1] or None, gap, rank_tolerance)


def _norm_of(objective: Any, X: Any) -> Norm:
    """Return the norm of X with the minimisers of CVXPY's objective.

    Its `pnorm` rounds p to a fraction, unless it is told not to; the user's p counts.
    """
    sign, expr = _stripped(objective.args[0])
    kind, inside = type(expr).__name__, (*expr.args, None)[0]
    if type(inside).__name__ == "abs":
        kind, inside = f"{kind} of abs", inside.args[0]
    name = ENTRYWISE.get(kind)
    p = float(getattr(expr, "original_p", expr.p)) if kind.startswith("Pnorm") else math.nan
    if kind == "quad_over_lin" and expr.args[1].value is not None and expr.args[1].value > 0:
        p = 2.0
    if p >= 1:
        name = name_of("l", p)
    if name is not None and type(inside).__name__ == "reshape":
        inside = inside.args[0]
    name = name or SINGULAR.get(kind)
    sign = -sign if type(objective).__name__ == "Maximize" else sign
    if not sign > 0 or name is None or inside is not X:
        raise ConfigError(f"problem: {objective}; must minimise a norm of {X.name()} itself")
    return norm_of(name)


def _stripped(expr: Any) -> tuple[float, Any]:
    """Return a sign and what increases with sign * expr: without constants, factors and powers."""
    sign = 1.0
    while True:
        kind = type(expr).__name__
        varying = [part for part in expr.args if not part.is_constant()]
        if len(varying) != 1 or not varying[0].is_scalar():
            return sign, expr
        (inside,), factors = varying, [part.value for part in expr.args if part.is_constant()]
        if kind == "NegExpression":
            sign = -sign
        elif kind in ("multiply", "MulExpression", "DivExpression"):
            if factors[0] is None or (kind == "DivExpression" and inside is not expr.args[0]):
                return sign, expr
            sign *= float(np.sign(np.asarray(factors[0]).item()))
        elif not (
            kind == "AddExpression"
            or (kind.startswith("Power") and (expr.p_used or 0) >= 1 and inside.is_nonneg())
        ):
            return sign, expr
        expr = inside
