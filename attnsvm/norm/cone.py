"""The predictor-corrector method of all norms: start, step, bracket, best kept, stop.

Each norm has a file with its cone: what a point is, where it starts and how it steps. The bracket
of a point, norm(W) / min margin and h^T a / dual_norm(M(a)), decides when an instance stops.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import largest, total
from attnsvm.norm.base import Norm
from attnsvm.norm.rows import Rows

STEPS = 60

PATIENCE = 4
"""Steps without a narrower bracket before an instance stops: rounding dominates."""

BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""

CENTRING = 0.1
"""Target, relative to the mean of the products, of a step without a test of the predictor."""


@dataclass(frozen=True)
class Point:
    """An iterate: W (p, q), slacks s > 0 and multipliers a (N, 1), a > 0 on inequalities."""

    W: Tensor
    s: Tensor
    a: Tensor

    def take(self, index: Tensor) -> Self:
        """Return the points of the instances at `index`."""
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def moved(self, step: Self, primal: Tensor, dual: Tensor, duals: tuple[str, ...]) -> Self:
        """Return the point after steps of these lengths; `duals` are the dual variables."""
        lengths = {f.name: dual if f.name in duals else primal for f in fields(self)}
        new = {n: getattr(self, n) + t * getattr(step, n) for n, t in lengths.items()}
        return replace(self, **new)


PointT = TypeVar("PointT", bound=Point)
Pair = tuple[Tensor, Tensor]


class Cone(ABC, Generic[PointT]):
    """A norm: its points on given rows, and a step from one to the next."""

    PAIRS: ClassVar[tuple[tuple[str, str], ...]] = (("s", "a"),)
    """Primal and dual variables whose products go to zero."""

    def __init__(self, norm: Norm, rows: Rows) -> None:
        self.norm, self.rows = norm, rows

    def on(self, rows: Rows) -> Self:
        """Return the cone of the same norm on other rows."""
        cone = copy(self)
        cone.rows = rows
        return cone

    @abstractmethod
    def start(self, W: Tensor, a: Tensor) -> PointT:
        """Return a strictly positive point near a solution in another norm."""

    def evaluated(self, x: PointT) -> tuple[PointT, Tensor]:
        """Return the point, with the W that it stands for, and M(a)."""
        return x, self.rows.combine(x.a)

    def sizes(self, x: PointT, M: Tensor) -> tuple[Tensor, Tensor]:
        """Return norm(W), or a bound of it, and dual_norm(M)."""
        return size_of(self.norm, x.W), size_of(self.norm.dual, M)

    @abstractmethod
    def step(self, x: PointT, M: Tensor, margin: Tensor) -> PointT:
        """Return the next point, NaN where there is none, from M(a) and the margins of W."""

    def mean(self, x: PointT) -> Tensor:
        """Return the mean of a_k s_k; one without inequalities."""
        products = total(self.rows.on_inequalities(x.s * x.a))
        return torch.where(products > 0, products, 1.0) / self.count()

    def count(self) -> Tensor:
        """Return the number of inequalities, at least one."""
        return total(self.rows.inequality).clamp(min=1)

    def bracket(self, x: PointT, M: Tensor, margin: Tensor, gap: float) -> tuple[Tensor, Tensor]:
        """Return norm(W) / min margin and h^T a / dual_norm(M(a)).

        The upper bound is infinite while W misses an equality, or a row with h_k <= 0, by `gap`
        times the largest h_k. If rows are not homogeneous W keeps its scale, and may miss none.
        """
        rows = self.rows
        separating = rows.inequality & (rows.h > 0) & rows.homogeneous
        least = torch.where(separating, margin / rows.h, torch.inf).amin((1, 2), keepdim=True)
        met, missed = least > 0, rows.h - margin
        missed = torch.where(rows.inequality, missed.clamp(min=0.0), missed.abs())
        missed = torch.where(separating, 0.0, missed)
        met = met & (largest(missed) <= gap * largest(rows.h.abs()))
        least = torch.where(least.isinf(), 1.0, least)  # without inequalities
        size, dual = self.sizes(x, M)
        upper = torch.where(met, size / least, torch.inf)
        return upper, torch.where(dual > 0, total(rows.h * x.a) / dual, 0.0)

    def corrected(self, x: PointT, direction: Callable[..., PointT]) -> PointT:
        """Return the point after a step of Mehrotra's predictor-corrector method.

        `direction` returns the change that moves the products of PAIRS by its arguments.
        """
        products = [getattr(x, p) * getattr(x, d) for p, d in self.PAIRS]
        dx = direction(*(-product for product in products))
        now, after = self.mean(x), self.mean(self.moved(x, dx, 1.0))
        aim = now * (after / now).clamp(max=1.0) ** 3  # a predictor may end farther away
        changes = [getattr(dx, p) * getattr(dx, d) for p, d in self.PAIRS]
        aims = (aim - xy - dxy for xy, dxy in zip(products, changes, strict=True))
        return self.moved(x, direction(*aims), BOUNDARY)

    def moved(self, x: PointT, dx: PointT, back: float) -> PointT:
        """Return the point after `back` times the largest primal and dual steps."""
        further = [[(getattr(x, n), getattr(dx, n)) for n in names] for names in self.PAIRS[1:]]
        sides = zip(self.moves(x, dx.s, dx.a), *further, strict=True)
        primal, dual = (step_length(*side, back=back) for side in sides)
        return x.moved(dx, primal, dual, tuple(d for _, d in self.PAIRS))

    def moves(self, x: PointT, ds: Tensor, da: Tensor) -> tuple[Pair, Pair]:
        """Return slacks and multipliers that must stay positive, each with its change."""
        rows = self.rows
        return (x.s, ds), (torch.where(rows.inequality, x.a, 1.0), rows.on_inequalities(da))

    def centred(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return W of least margin one, and slacks and multipliers that are well above zero.

        W keeps its scale if rows are not homogeneous.
        """
        rows, margin = self.rows, self.rows.margins(W)
        separating = rows.inequality & (rows.h > 0)
        least = -largest(-torch.where(separating, margin / rows.h, torch.inf))
        stretch = torch.where(rows.homogeneous & ~least.isinf(), 1 / least, 1.0)
        s = rows.on_inequalities((margin * stretch - rows.h).clamp(min=0.0))
        size = largest(torch.maximum(s, rows.h.abs()))
        top = largest(rows.on_inequalities(a)).clamp(min=0.0)
        s = torch.where(rows.inequality, s + 0.1 * size, 1.0)
        a = torch.where(rows.inequality, a.clamp(min=0.0) + 0.1 * top, a * rows.real)
        return W * stretch, s, a


def size_of(norm: Norm, X: Tensor) -> Tensor:
    """Return norm(X), (1, 1)."""
    return norm.value(X)[:, None, None]


def follow(cone: Cone[PointT], x: PointT, gap: float) -> tuple[Tensor, Tensor]:
    """Return the W and the multipliers of every instance that prove the closest bounds.

    An instance leaves the batch when its bounds agree, or after PATIENCE steps that did not narrow
    them once both are finite.
    """
    W, a, lowest = x.W.clone(), x.a.clone(), torch.zeros_like(x.s[:, :1])
    least = lowest + torch.inf
    left = torch.full_like(lowest[:, 0, 0], PATIENCE)
    at = torch.arange(len(W), device=W.device)
    for _ in range(STEPS):
        x, M = cone.evaluated(x)
        margin = cone.rows.margins(x.W)
        upper, lower = cone.bracket(x, M, margin, gap)
        nearer = (upper < least[at])[:, 0, 0]
        higher = (lower > lowest[at])[:, 0, 0]
        W[at[nearer]], least[at[nearer]] = x.W[nearer], upper[nearer]
        a[at[higher]], lowest[at[higher]] = x.a[higher], lower[higher]
        unbounded = least[at].isinf()[:, 0, 0]
        left = torch.where(nearer | higher | unbounded, PATIENCE, left - 1)
        open_bracket = (least[at] > (1 + gap) * lowest[at])[:, 0, 0]
        goes_on = open_bracket & (left > 0) & total(x.s + x.a).isfinite()[:, 0, 0]
        if not goes_on.any():
            break
        if not goes_on.all():
            cone, x = cone.on(cone.rows.take(goes_on)), x.take(goes_on)
            M, margin, left, at = M[goes_on], margin[goes_on], left[goes_on], at[goes_on]
        x = cone.step(x, M, margin)
    return W, a


def step_length(*pairs: Pair, back: float = 1.0) -> Tensor:
    """Return `back` times the largest step with x + t dx >= 0 for all pairs (x, dx), at most 1."""
    ratios = [(dx / x).amin((1, 2), keepdim=True) for x, dx in pairs]
    return 1 / (-reduce(torch.minimum, ratios) / back).clamp(min=1.0)
