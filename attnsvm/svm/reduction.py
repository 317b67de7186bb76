"""Instances of unit size, and wide ones (few vectors in many dimensions) in their span, and back.

Every instance is scaled by powers of two, in the Frobenius norm only if its entries are not of
ordinary size. That is exact: with D' = 2^s D and Z' = 2^t Z the solution is W = 2^(s + t) W'.
Norms, bounds and relief scale in the same way; margins, gaps and rays do not change. If float64
cannot represent the scaled instance or solution, the status is `undecided`.

With rows d_k = P_d d_k' and z_k = P_z z_k', P_d and P_z with orthonormal columns, the constraints
contain only P_d^T W P_z, and the least-norm W is P_d W' P_z^T (Lemma 1 of arXiv 2308.16898). So the
d x d matrix is formed only once, at the end. Few queries are reduced alone (P_d = I). Narrow
instances are not reduced: the factorisation would cost more than it saves.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnsvm.linalg import EPS, orthonormal
from attnsvm.svm.problem import PADDING, SvmProblem
from attnsvm.svm.solution import Candidate, Method, SvmStatus, Verdict
from attnsvm.svm.tolerances import FAINT_ROW

ORDINARY = 30
"""Exponent of entries that need not be scaled, where no power of them is taken."""

REPRESENTED = 1000
"""Largest |k| for which 2^k is certainly a float64."""

WIDE = 256
"""Least dimension d of a wide instance."""

MANY = 64
"""Least dimension d that is not so few."""

TINY_W = 1e-150
"""Least ||W|| for the thin spectrum: below it squares could underflow."""


def to_unit_size(problem: SvmProblem, ordinary: int = 0) -> tuple[SvmProblem, Tensor, Tensor]:
    """Return the scaled problem, the exponents s + t (B,), and whether scaling was exact (B,).

    Entries whose largest is between 2^-ordinary and 2^ordinary stay as they are.
    All rows become padding if an instance cannot be scaled exactly (its entries span more than
    float64's range, or a token difference overflows) or if a row is too small beside the others.
    """
    D, s, exact_D = _unit(problem.D, ordinary)
    Z, t, exact_Z = _unit(problem.Z, ordinary)
    same = D is problem.D and Z is problem.Z
    scaled = problem if same else replace(problem, D=D, Z=Z)
    faint, exact = (problem.kind != PADDING) & (scaled.scale < FAINT_ROW), exact_D & exact_Z
    if faint.any():
        exact &= ~(faint & ~scaled.zero).any(dim=1)
    if same and exact.all():
        return problem, s + t, exact
    arrays = {"D": D, "Z": Z, "h": problem.h, "kind": problem.kind}
    if problem.relief is not None:
        arrays["relief"] = times_power(problem.relief, s + t)
        exact = exact & arrays["relief"].isfinite().all(dim=1)
        exact = exact & (times_power(arrays["relief"], -s - t) == problem.relief).all(dim=1)
    kept: dict[str, Any] = {name: torch.where(_like(exact, x), x, 0) for name, x in arrays.items()}
    return replace(scaled, **kept), s + t, exact


def to_given_size(verdict: Verdict[Tensor], exponent: Tensor, exact: Tensor) -> Verdict[Tensor]:
    """Return the verdict on the given problem, computed from that on the scaled one.

    Where W, the multipliers or a bound overflow or lose digits to underflow, the bracket becomes
    [0, inf]. The instance is then `undecided`, unless a ray (which does not scale) proves it
    infeasible.
    """
    if exact.all() and not exponent.any():
        return verdict
    proof, found = verdict.certificate, verdict.certificate.upper.isfinite()
    scaled = [verdict.W, verdict.sigma, proof.upper, proof.lower, proof.multipliers]
    given = [times_power(x, exponent) for x in scaled]
    for x, y, tolerance in zip(scaled, given, [EPS] * 4 + [0.0], strict=True):
        exact = exact & _same(x, times_power(y, -exponent), tolerance)

    def kept(x: Tensor, otherwise: float) -> Tensor:
        return torch.where(_like(exact, x), x, otherwise)

    W, sigma, upper, lower, multipliers = given
    certificate = replace(
        proof,
        multipliers=kept(multipliers, 0.0),
        upper=kept(upper, torch.inf),
        lower=kept(lower, 0.0),
        gap=kept(proof.gap, torch.inf),
    )
    return replace(
        verdict,
        W=kept(W, torch.nan),
        sigma=kept(sigma, torch.nan),
        certificate=certificate,
        status=tuple(
            status if same or status == SvmStatus.infeasible else SvmStatus.undecided
            for status, same in zip(verdict.statuses, exact.tolist(), strict=True)
        ),
        min_margin=torch.where(found & ~exact, -torch.inf, verdict.min_margin),
        kappa=kept(verdict.kappa, torch.inf),
        rank=kept(verdict.rank, -1),
        rank_bound=kept(verdict.rank_bound, -1),
    )


def _unit(x: Tensor, ordinary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return 2^s x, the exponents s, and whether it is exact.

    The largest entry is in [1/2, 1), or ordinary already: then s = 0.
    """
    largest = x.abs().flatten(1).amax(dim=1)
    kept = (largest >= 2.0 ** (-ordinary - 1)) & (largest < 2.0**ordinary)
    if kept.all():
        return x, torch.zeros_like(largest, dtype=torch.int32), kept
    finite, exponent = largest.isfinite(), -torch.frexp(largest).exponent
    exponent = torch.where(finite & ~kept, exponent, 0)
    scaled = times_power(x, exponent)
    same = (times_power(scaled, -exponent) == x).flatten(1).all(dim=1)
    return scaled, exponent, finite & same


def _same(x: Tensor, y: Tensor, tolerance: float) -> Tensor:
    """Return whether y equals x where x is finite, to `tolerance` times the largest entry, (B,)."""
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    known = x.isfinite()
    largest = torch.where(known, x.abs(), 0.0).amax(dim=1, keepdim=True)
    return (~known | ((x - y).abs() <= tolerance * largest)).all(dim=1)


def times_power(x: Tensor, exponent: Tensor) -> Tensor:
    """Return 2^exponent x; in three factors where the power itself may overflow."""
    if (exponent.abs() <= REPRESENTED).all():
        return x * _like(torch.exp2(exponent.to(x.dtype)), x)
    third = torch.div(exponent, 3, rounding_mode="floor")
    for part in (third, third, exponent - 2 * third):
        x = x * _like(torch.exp2(part.to(x.dtype)), x)
    return x


def _like(per_instance: Tensor, x: Tensor) -> Tensor:
    return per_instance.reshape(-1, *(1,) * (x.ndim - 1))


def is_thin(rows: Tensor, many: int = MANY) -> bool:
    """Whether the rows (B, r, d) span at most half of `many` dimensions, or of more."""
    return rows.shape[2] >= many and 2 * rows.shape[1] <= rows.shape[2]


def basis(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (B, d, r) that spans the rows (B, r, d), r <= d."""
    return orthonormal(rows.mT)[0]


def coordinates(rows: Tensor) -> Tensor:
    """Return the rows (B, r, d) in an orthonormal basis of their span, (B, r, r).

    Computed row by row, so that equal (or opposite) rows stay equal (or opposite) to the last bit.
    The rows of a triangular factor would not.
    """
    return rows @ basis(rows)


def in_span(method: Method, problem: SvmProblem) -> Candidate:
    """Return the candidate W = P_d W' P_z^T, W' by `method` on span(d_k) x span(z_k) if wide."""
    if not is_thin(problem.Z):
        return method(problem)
    P_z, D, P_d = basis(problem.Z), problem.D, None
    if is_thin(D, WIDE) and is_thin(problem.Z, WIDE):
        P_d = basis(D)
        D = D @ P_d
    found = method(replace(problem, D=D, Z=problem.Z @ P_z))
    W = found.W if P_d is None else P_d @ found.W
    return found._replace(W=W @ P_z.mT)


def spectrum(W: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return singular values (B, r), descending, of matrices W', and ||W - W'||_F, (B,).

    W' = W, unless the queries Z (B, n, d) are few in many dimensions. Then W' = W P P^T, P an
    orthonormal basis of the queries, if that equals W up to rounding:
    ||W - W'||_F <= sqrt(d) EPS ||W'||_F. The singular values of W differ from those of W' by at
    most this distance (Weyl); NaN counts as zero.
    """
    if not is_thin(Z):
        return torch.linalg.svdvals(W.nan_to_num(0.0)), W.new_zeros(len(W))
    sigma, distance = W.new_zeros(len(W), min(W.shape[1:])), W.new_zeros(len(W))
    for b, P in enumerate(basis(Z)):
        inside = W[b] @ P
        size, rest = inside.norm(), torch.addmm(W[b], inside, P.mT, alpha=-1).norm()
        if size >= TINY_W and rest <= W.shape[1] ** 0.5 * EPS * size:
            values, distance[b] = torch.linalg.svdvals(inside), rest
            sigma[b, : len(values)] = values
        elif (whole := W[b].nan_to_num(0.0)).any():
            sigma[b] = torch.linalg.svdvals(whole)
    return sigma, distance
