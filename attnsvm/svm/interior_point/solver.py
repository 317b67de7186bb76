"""Any norm from the Frobenius solution: the predictor-corrector method, then what it leaves open.

The Frobenius solution exists exactly where any solution does, and its ray proves infeasibility
whatever the norm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from attnsvm.norm import Entrywise, Norm, Schatten
from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.equalities import independent_equalities, restore_equalities
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.interior_point import face
from attnsvm.svm.interior_point.lanes import best_of_blocks
from attnsvm.svm.interior_point.linear import Linear
from attnsvm.svm.interior_point.loop import Cone, follow
from attnsvm.svm.interior_point.nuclear import Nuclear
from attnsvm.svm.interior_point.power import Power, stages
from attnsvm.svm.interior_point.rows import Rows
from attnsvm.svm.interior_point.spectral import Spectral
from attnsvm.svm.problem import PADDING, SvmProblem, power_of_two
from attnsvm.svm.reference import Cvxpy
from attnsvm.svm.solution import Candidate, Solver
from attnsvm.svm.tolerances import CONVERGED_GAP
from attnsvm.svm.wide import basis

SMALL_ROWS = 400
"""Most rows for which eight instances at a time are faster than one after the other."""

WITHOUT_PROGRAM = ("max", "l1", "nuclear")
"""Norms whose open instances are not given to CVXPY; it does not know Schatten p."""

CLARABEL = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def cones(norm: Norm) -> list[Cone[Any]]:
    """Return the cones whose solutions lead to that of the norm; none for a norm of one's own."""
    if type(norm) is Schatten and norm.p in (1, math.inf):
        return [Nuclear(norm) if norm.p == 1 else Spectral(norm)]
    if type(norm) is Entrywise and norm.p in (1, math.inf):
        return [Linear(norm)]
    if type(norm) is Entrywise or type(norm) is Schatten:
        return [Power(type(norm)(p)) for p in stages(norm.p)]
    return []


class InteriorPoint(Solver):
    """A predictor-corrector method for all instances, and others for what it leaves open."""

    norm: Norm

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W and multipliers, NaN where no W is feasible, and the rays of those."""
        start = LeastDistance().candidates(problem)
        W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
        margins = torch.where(problem.inequality, problem.margins(start.W), torch.inf)
        known = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1)
        index = (known & (margins.amin(dim=1) > 0)).nonzero()[:, 0]
        if index.numel():
            part = problem.take(index)
            part, rows = part.first_rows(int(part.most_rows().max()))
            part_a = start.multipliers[index].gather(1, rows)
            found = [x.to(start.W) for x in self.improved(*_on_cpu(part, start.W[index], part_a))]
            W[index] = found[0]
            a[index] = torch.zeros_like(a[index]).scatter(1, rows, found[1])
        return Candidate(W, a, start.ray)

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of feasible instances, from their Frobenius solutions."""
        return self.best(problem, *self.followed(problem, W, a))

    def followed(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of the predictor-corrector method."""
        given = Reduced.of(problem, W, self.norm)
        w, y = given.reduced(W, a)
        for cone in cones(self.norm):
            w, y = _each(given.problem, cone, w, y)
        W, a = given.given(w, y)
        return restore_equalities(problem, W), a

    def best(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best W and multipliers; others are tried where the bracket is open."""
        upper = upper_bound(problem, W, self.norm)
        lower = lower_bound(problem, a, self.norm)[1]
        for b in (~(upper <= (1 + CONVERGED_GAP) * lower)).nonzero()[:, 0].tolist():
            one = slice(b, b + 1)
            part = problem.take(one)
            for new_W, new_a in self.others(part, W[one], a[one]):
                new_upper = upper_bound(part, new_W, self.norm)
                new_lower = lower_bound(part, new_a, self.norm)[1]
                if new_upper < upper[b]:
                    W[one], upper[one] = new_W, new_upper
                if new_lower > lower[b]:
                    a[one], lower[one] = new_a, new_lower
                if upper[b] <= (1 + CONVERGED_GAP) * lower[b]:
                    break
        return W, a

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield further W (1, d, d) and multipliers (1, N) of a single instance, given such."""
        known = bool(cones(self.norm))
        if known:
            yield from _near_face(problem, W, a, self.norm)
        if self.norm.name not in WITHOUT_PROGRAM and not self.norm.name.startswith("schatten"):
            program = Cvxpy(self.norm, "CLARABEL", **CLARABEL).candidates(problem)
            yield program.W, program.multipliers
            if known and program.W.isfinite().all():
                yield from _near_face(problem, program.W, program.multipliers, self.norm)


def _near_face(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what `face` finds near W (1, d, d) and multipliers (1, N) of a single instance."""
    given = Reduced.of(problem, W, norm)
    part, kept = given.problem, given.problem.kind[0] != PADDING
    numbers = part.D[0], part.queries[0], part.h[0], part.equality[0]
    rows = face.Rows(*(x[kept].numpy() for x in numbers))
    w, y = given.reduced(W, a)
    start = w[0].numpy(), y[0, kept].numpy()
    found = face.polish(rows, *start, norm)
    if norm.name in ("max", "l1"):
        found = chain(found, face.from_vertex(rows, start[0], norm))
    for point, multipliers in found:
        y = torch.zeros_like(y)
        y[0, kept] = torch.from_numpy(multipliers)
        yield given.given(torch.from_numpy(point)[None], y)


@dataclass(frozen=True)
class Reduced:
    """A problem with rows of unit size, W of size one, in few dimensions if the norm allows it.

    Attributes
    ----------
    problem : SvmProblem
        Dependent equalities are padding.
    unit, size : (B, N), (B,)
        Powers of two: of the rows' size, and of the size of W.
    P_d, P_z : (B, d, p), (B, d, q), or None
        Orthonormal bases of span(d_k) and span(z_i).
    """

    problem: SvmProblem
    unit: Tensor
    size: Tensor
    P_d: Tensor | None
    P_z: Tensor | None

    @classmethod
    def of(cls, problem: SvmProblem, W: Tensor, norm: Norm) -> Reduced:
        """Return the problem near W."""
        P_d, P_z = (
            basis(x) if isinstance(norm, Schatten) and x.shape[1] < x.shape[2] else None
            for x in (problem.D, problem.Z)
        )
        keep = problem.inequality | independent_equalities(problem)
        unit, size = power_of_two(problem.scale()), power_of_two(W.flatten(1).norm(dim=1))
        D = torch.where(keep[..., None], problem.D, 0.0) / unit[..., None]
        reduced = replace(
            problem,
            D=D if P_d is None else D @ P_d,
            Z=problem.Z if P_z is None else problem.Z @ P_z,
            h=torch.where(keep, problem.h, 0.0) / unit / size[:, None],
            kind=torch.where(keep, problem.kind, PADDING),
        )
        return cls(reduced, unit, size, P_d, P_z)

    def given(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, d, d) and multipliers (B, N) of the problem itself."""
        W = W if self.P_d is None else self.P_d @ W
        W = W if self.P_z is None else W @ self.P_z.mT
        return W * self.size[:, None, None], a / self.unit

    def reduced(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, p, q) and multipliers (B, N) of the reduced problem."""
        W = W if self.P_d is None else self.P_d.mT @ W
        W = W if self.P_z is None else W @ self.P_z
        return W / self.size[:, None, None], a * self.unit


def _each(problem: SvmProblem, cone: Cone[Any], W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best W and multipliers: eight instances at a time, or one after the other."""
    if problem.N <= SMALL_ROWS:
        return _best(problem, cone, W, a, torch.arange(problem.N))
    found = []
    for b in range(problem.B):
        one, index = slice(b, b + 1), (problem.kind[b] != PADDING).nonzero()[:, 0]
        found.append(_best(problem.take(one), cone, W[one], a[one], index))
    return torch.cat([w for w, _ in found]), torch.cat([y for _, y in found])


def _best(
    problem: SvmProblem, cone: Cone[Any], W: Tensor, a: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the best W and multipliers on the rows at `index`."""
    rows = Rows(problem, index, W.new_ones(()))
    cone = cone.on(rows)
    x = cone.start(*rows.scaled(W, a[:, index]))
    method = best_of_blocks if problem.N <= SMALL_ROWS else follow
    best, _ = method(cone, x, CONVERGED_GAP)
    multipliers = torch.zeros_like(a)
    W, multipliers[:, index] = rows.given(best.W, best.a)
    return W, multipliers


def _on_cpu(problem: SvmProblem, *arrays: Tensor) -> tuple[Any, ...]:
    return problem.to("cpu"), *(x.cpu() for x in arrays)
