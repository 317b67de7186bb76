"""Canonical units, and wide instances (few vectors in many dimensions) in their span, and back.

Every problem is solved in units of its own, so that neither a status nor a relative gap depends on
those of the user. Rows are divided by powers of two until ||d_k|| and ||z_i|| are between 1/2 and
1, right-hand sides with them, and then all right-hand sides, and W, by one more until the largest
h_k that W = 0 misses is between 1/2 and 1. That is exact: margins and equalities hold as before,
norms and bounds scale with W, multipliers with their rows, and gaps and rays do not change. If
float64 cannot represent the scaled instance or its solution, the status is `undecided`.

With rows d_k = P_d d_k' and z_k = P_z z_k', P_d and P_z with orthonormal columns, the constraints
contain only P_d^T W P_z, and the least-norm W is P_d W' P_z^T (Lemma 1 of arXiv 2308.16898). So
wide instances are solved and certified there, and the d x d matrix is formed only once, at the
end. Few queries are reduced alone (P_d = I). Narrow instances are not reduced: the factorisation
would cost more than it saves.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnsvm.linalg import EPS, orthonormal
from attnsvm.svm.problem import SvmProblem, exponent_of
from attnsvm.svm.solution import SvmStatus, Verdict

REPRESENTED = 1000
"""Largest |k| for which 2^k is certainly a float64."""

WIDE = 256
"""Least dimension d of a wide instance."""

MANY = 64
"""Least dimension d that is not so few."""


UNPROVED = {
    "W": math.nan,
    "sigma": math.nan,
    "multipliers": 0.0,
    "upper": math.inf,
    "lower": 0.0,
    "gap": math.inf,
    "kappa": math.inf,
    "rank": -1,
    "rank_bound": -1,
}
"""Values of an instance of which float64 cannot represent the solution."""


class Units(NamedTuple):
    """Exponents of the powers of two between a problem and its canonical units.

    Row k is multiplied by 2^rows_k, `rows` (B, N), and W by 2^W, `W` (B,), so that h_k is
    multiplied by both. `exact` (B,) says where float64 represents all that.
    """

    rows: Tensor
    W: Tensor
    exact: Tensor


def to_canonical(problem: SvmProblem) -> tuple[SvmProblem, Units]:
    """Return the problem in canonical units, and these.

    All rows become padding where scaling is not exact: entries of a row, or right-hand sides, span
    more than float64's range, or a token difference overflows.
    """
    r, t = (-exponent_of(length) for length in problem.lengths)
    rows = (r + t).reshape(problem.h.shape)
    missed = (problem.h != 0) & ~problem.met_by_zero & ~problem.zero
    size = exponent_of(problem.h) + rows
    least = torch.iinfo(size.dtype).min
    unit = torch.where(missed, size, least).amax(dim=1)
    unit = -torch.where(missed.any(dim=1), unit, 0)
    alone = problem.zero & (problem.h != 0)  # any factor keeps such a row: one h_k is as good
    rows = torch.where(alone, -exponent_of(problem.h) - unit[:, None], rows)
    exponents = {"D": r.flatten(1), "Z": t[..., 0], "h": rows + unit[:, None]}
    if problem.relief is not None:
        exponents["relief"] = rows
    scaled: dict[str, Any] = {}
    exact = torch.ones_like(unit, dtype=torch.bool)
    for name, exponent in exponents.items():
        array = getattr(problem, name)
        scaled[name] = times_power(array, exponent)
        back = times_power(scaled[name], -exponent)
        if not (back.equal(array) and scaled[name].sum().isfinite()):
            exact &= ((back == array) & scaled[name].isfinite()).flatten(1).all(dim=1)
    if not exact.all():
        scaled |= {"kind": problem.kind}
        scaled = {name: torch.where(_like(exact, x), x, 0) for name, x in scaled.items()}
    return replace(problem, **scaled), Units(rows, unit, exact)


def to_given(verdict: Verdict[Tensor], units: Units) -> Verdict[Tensor]:
    """Return the verdict on the given problem, computed from that in canonical units.

    Where W, the multipliers or a bound overflow or lose digits to underflow, the bracket becomes
    [0, inf]. The instance is then `undecided`, unless a ray proves it infeasible. A ray that
    float64 cannot represent proves nothing.
    """
    proof = verdict.certificate
    values, exact = vars(verdict) | vars(proof), units.exact
    exponents = dict.fromkeys(("W", "sigma", "upper", "lower"), -units.W)
    for name, exponent in {**exponents, "multipliers": units.rows}.items():
        x, values[name] = values[name], times_power(values[name], exponent)
        back = times_power(values[name], -exponent)
        exact = exact & _same(x, back, 0.0 if name == "multipliers" else EPS)
    kept = {name: values[name] for name in UNPROVED}
    if not exact.all():
        kept = {n: torch.where(_like(exact, x), x, UNPROVED[n]) for n, x in kept.items()}
    ray, ray_exact = _ray(proof.ray, units.rows)
    kept["ray"] = torch.where(ray_exact[:, None], ray, torch.nan)
    kept["ray_ratio"] = torch.where(ray_exact, proof.ray_ratio, 0.0)
    of_proof = {name: kept.pop(name) for name in [*kept] if hasattr(proof, name)}
    is_proved = {True: ray_exact.tolist(), False: exact.tolist()}
    return replace(
        verdict,
        **kept,
        certificate=replace(proof, **of_proof),
        status=tuple(
            status if is_proved[status == "infeasible"][b] else SvmStatus.undecided
            for b, status in enumerate(verdict.statuses)
        ),
        min_margin=torch.where(proof.upper.isfinite() & ~exact, -torch.inf, verdict.min_margin),
    )


def _ray(ray: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ray of the given rows, 1^T |a| = 1, and where float64 represents it, (B,)."""
    used = ray.nan_to_num(0.0) != 0
    if not used.any():
        return ray, torch.ones_like(used[:, 0])
    size = torch.where(used, rows + exponent_of(ray), torch.iinfo(rows.dtype).min)
    exponent = torch.where(used, rows - size.amax(dim=1, keepdim=True), 0)
    scaled = times_power(ray, exponent)
    exact = _same(ray, times_power(scaled, -exponent), 0.0)
    total = scaled.abs().nansum(dim=1, keepdim=True)
    return scaled / torch.where(total > 0, total, 1.0), exact


def _same(x: Tensor, y: Tensor, tolerance: float) -> Tensor:
    """Return whether y equals x where x is finite, to `tolerance` times the largest entry, (B,)."""
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    known = x.isfinite()
    largest = torch.where(known, x.abs(), 0.0).amax(dim=1, keepdim=True)
    return (~known | ((x - y).abs() <= tolerance * largest)).all(dim=1)


def times_power(x: Tensor, exponent: Tensor) -> Tensor:
    """Return 2^exponent x; in four factors where the power itself may overflow."""
    if (exponent.abs() <= REPRESENTED).all():
        return x * _like(torch.exp2(exponent.to(x.dtype)), x)
    part = torch.div(exponent, 4, rounding_mode="floor")
    for factor in (part, part, part, exponent - 3 * part):
        x = x * _like(torch.exp2(factor.to(x.dtype)), x)
    return x


def _like(per_instance: Tensor, x: Tensor) -> Tensor:
    """Return numbers with as many axes as x, to broadcast."""
    return per_instance.reshape(*per_instance.shape, *(1,) * (x.ndim - per_instance.ndim))


def in_span(
    problem: SvmProblem, always: bool = False
) -> tuple[SvmProblem, Callable[[Tensor], Tensor]]:
    """Return the problem on span(d_k) x span(z_k) if wide, and the map of W' to P_d W' P_z^T.

    Or, with `always`, if there are fewer rows, or queries, than dimensions. Coordinates are
    computed row by row, so that equal (or opposite) rows stay equal (or opposite) to the last bit.
    The rows of a triangular factor would not.
    """

    def basis(rows: Tensor, least: int) -> Tensor | None:
        r, d = rows.shape[1:]
        few = r < d if always else d >= least and 2 * r <= d
        return orthonormal(rows.mT)[0] if few and problem.shape is None else None

    P_d, P_z = basis(problem.D, WIDE), basis(problem.Z, MANY)

    def back(W: Tensor) -> Tensor:
        W = W if P_d is None else P_d @ W
        return W if P_z is None else W @ P_z.mT

    D = problem.D if P_d is None else problem.D @ P_d
    Z = problem.Z if P_z is None else problem.Z @ P_z
    return replace(problem, D=D, Z=Z, dimension=max(problem.d, problem.dimension)), back
