"""Exact scaling, by powers of two, of every instance to unit size, and of its solution back.

With D' = 2^s D and Z' = 2^t Z the solution is W = 2^(s + t) W'. Norms and bounds scale in the same
way; margins, gaps and rays do not change. If float64 cannot represent the scaled instance or
solution, the status is `undecided`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.linalg import EPS
from attnsvm.svm.problem import PADDING, SvmProblem
from attnsvm.svm.solution import SvmStatus, Verdict
from attnsvm.svm.tolerances import FAINT_ROW

REPRESENTED = 1000
"""Largest |k| for which 2^k is certainly a float64."""


def to_unit_size(problem: SvmProblem) -> tuple[SvmProblem, Tensor, Tensor]:
    """Return the scaled problem, the exponents s + t (B,), and whether scaling was exact (B,).

    All rows become padding if an instance cannot be scaled exactly (its entries span more than
    float64's range, or a token difference overflows) or if a row is too small beside the others.
    """
    D, s, exact_D = _unit(problem.D)
    Z, t, exact_Z = _unit(problem.Z)
    scaled = replace(problem, D=D, Z=Z)
    faint = (problem.kind != PADDING) & ~scaled.zero & (scaled.scale() < FAINT_ROW)
    exact = exact_D & exact_Z & ~faint.any(dim=1)
    scaled = replace(
        scaled,
        D=torch.where(exact[:, None, None], D, 0.0),
        Z=torch.where(exact[:, None, None], Z, 0.0),
        h=torch.where(exact[:, None], problem.h, 0.0),
        kind=torch.where(exact[:, None], problem.kind, PADDING),
    )
    return scaled, s + t, exact


def to_given_size(verdict: Verdict, exponent: Tensor, exact: Tensor) -> Verdict:
    """Return the verdict on the given problem, computed from that on the scaled one.

    Where W, the multipliers or a bound overflow or lose digits to underflow, the bracket becomes
    [0, inf]. The instance is then `undecided`, unless a ray (which does not scale) proves it
    infeasible.
    """
    proof = verdict.certificate
    found = proof.upper.isfinite()
    scaled = [verdict.W, verdict.sigma, proof.multipliers, proof.upper, proof.lower]
    given = [times_power(x, exponent) for x in scaled]
    for x, y in zip(scaled, given, strict=True):
        exact = exact & _same(x, times_power(y, -exponent), x is verdict.certificate.multipliers)
    blank = (torch.nan, torch.nan, 0.0, torch.inf, 0.0)
    W, sigma, multipliers, upper, lower = (
        torch.where(_like(exact, y), y, value) for y, value in zip(given, blank, strict=True)
    )
    lost = found & ~exact
    status = tuple(
        status if e or status == SvmStatus.infeasible else SvmStatus.undecided
        for status, e in zip(verdict.status, exact.tolist(), strict=True)
    )
    return replace(
        verdict,
        W=W,
        sigma=sigma,
        certificate=replace(
            proof,
            multipliers=multipliers,
            upper=upper,
            lower=lower,
            gap=torch.where(exact, proof.gap, torch.inf),
        ),
        status=status,
        min_margin=torch.where(lost, -torch.inf, verdict.min_margin),
        kappa=torch.where(exact, verdict.kappa, torch.inf),
        rank=torch.where(exact, verdict.rank, -1),
        rank_bound=torch.where(exact, verdict.rank_bound, -1),
    )


def _unit(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 2^s x with largest entry in [1/2, 1), the exponents s, and whether it is exact."""
    exponent = -torch.frexp(x.abs().flatten(1).amax(dim=1)).exponent
    finite = x.isfinite().flatten(1).all(dim=1)
    exponent = torch.where(finite, exponent, 0)
    scaled = times_power(x, exponent)
    same = (times_power(scaled, -exponent) == x).flatten(1).all(dim=1)
    return scaled, exponent, finite & same


def _same(x: Tensor, y: Tensor, strictly: bool) -> Tensor:
    """Return whether y equals x where x is finite, exactly or to rounding of the largest, (B,)."""
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    known = x.isfinite()
    largest = torch.where(known, x.abs(), 0.0).amax(dim=1, keepdim=True)
    tolerance = 0.0 if strictly else EPS * largest
    return (~known | ((x - y).abs() <= tolerance)).all(dim=1)


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
