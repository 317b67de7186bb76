"""The predictor-corrector method of all norms: start, step, bracket, best kept, stop.

Each norm has a file with its cone: what a point is, where it starts and how it steps. The bracket
of a point, norm(W) / min margin and h^T a / dual_norm(M(a)), decides when an instance stops.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from attnsvm.norm import Norm
from attnsvm.svm.interior_point.rows import Rows, largest, total

STEPS = 60

PATIENCE = 4
"""Steps without a narrower bracket before an instance stops: rounding dominates."""

BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""

CENTRING = 0.1
"""Target, relative to the mean of the products, of a step without a test of the predictor."""

REFINE_BELOW = 1e-6
"""Nuclear norm: relative complementarity below which directions are refined."""

REFINEMENTS = 2

SMALL = 1e-7
"""l_p and Schatten p norms: entries or singular values that are smaller, relative to the largest,
count as this in the derivative."""

CLOSE = 1e-6
"""The same norms: relative distance of singular values that count as equal in the derivative."""


@dataclass(frozen=True)
class Point:
    """An iterate: W (p, q), slacks s > 0 and multipliers a (N, 1), a > 0 on inequalities."""

    W: Tensor
    s: Tensor
    a: Tensor

    def moved(self, step: Self, primal: Tensor, dual: Tensor, duals: tuple[str, ...]) -> Self:
        """Return the point after steps of these lengths; `duals` are the dual variables."""
        lengths = {f.name: dual if f.name in duals else primal for f in fields(self)}
        new = {n: getattr(self, n) + t * getattr(step, n) for n, t in lengths.items()}
        return replace(self, **new)


PointT = TypeVar("PointT", bound=Point)


class Cone(ABC, Generic[PointT]):
    """A norm: its points on given rows, and a step from one to the next."""

    ROUGH: ClassVar[tuple[float, ...]] = (1e-1, 1e-2, 1e-3, 1e-4)
    """Duality gaps at which rows are exchanged while a large instance is solved."""

    compiled: ClassVar[Any] = None
    compiled_in_s: ClassVar[int] = 0
    """The module with the loop for eight instances at a time, and the seconds that compile it."""

    rows: Rows

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def on(self, rows: Rows) -> Self:
        """Return the same cone on other rows."""
        other = type(self)(self.norm)
        other.rows = rows
        return other

    @abstractmethod
    def start(self, W: Tensor, a: Tensor) -> PointT:
        """Return a strictly positive point near a solution in another norm."""

    def at(self, x: PointT) -> tuple[PointT, Tensor]:
        """Return the point, with the W that it stands for, and M(a)."""
        return x, self.rows.combine(x.a)

    def sizes(self, x: PointT, M: Tensor) -> tuple[Tensor, Tensor]:
        """Return norm(W), or a bound of it, and dual_norm(M)."""
        return size_of(self.norm, x.W), size_of(self.norm.dual, M)

    @abstractmethod
    def step(self, x: PointT, M: Tensor, margin: Tensor) -> PointT:
        """Return the next point, NaN where there is none, from M(a) and the margins of W."""

    def options(self) -> tuple[float, ...]:
        """Return the options of the compiled loop."""
        return ()

    def mean(self, x: PointT) -> Tensor:
        """Return the mean of a_k s_k; one without inequalities."""
        products = total(self.rows.on_inequalities(x.s * x.a))
        return torch.where(products > 0, products, 1.0) / self.count()

    def count(self) -> Tensor:
        """Return the number of inequalities, at least one."""
        return total(self.rows.inequality).clamp(min=1)

    def inside(self, x: PointT) -> PointT:
        """Return a point of the cone near one whose rows have changed."""
        return x

    def bracket(self, x: PointT, M: Tensor, margin: Tensor, gap: float) -> tuple[Tensor, Tensor]:
        """Return norm(W) / min margin and h^T a / dual_norm(M(a)).

        The upper bound is infinite while W misses an equality, or a row with h_k <= 0, by `gap`
        times the largest h_k.
        """
        rows = self.rows
        separating = rows.inequality & (rows.h > 0)
        least = torch.where(separating, margin / rows.h, torch.inf).amin((1, 2), keepdim=True)
        met, missed = least > 0, rows.h - margin
        missed = torch.where(rows.inequality, missed.clamp(min=0.0), missed.abs())
        missed = torch.where(separating, 0.0, missed)
        met = met & (largest(missed) <= gap * largest(rows.h.abs()))
        least = torch.where(least.isinf(), 1.0, least)  # without inequalities
        size, dual = self.sizes(x, M)
        upper = torch.where(met, size / least, torch.inf)
        return upper, torch.where(dual > 0, total(rows.h * x.a) / dual, 0.0)

    def near(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


class Best(NamedTuple):
    """W and multipliers of the least upper and the greatest lower bound, and these bounds."""

    W: Tensor
    a: Tensor
    upper: Tensor
    lower: Tensor

    def narrowed(self, W: Tensor, a: Tensor, upper: Tensor, lower: Tensor) -> Self:
        """Return the best of these and others, of one instance; itself if no bound improves."""
        best = self._replace(W=W, upper=upper) if upper < self.upper else self
        return best._replace(a=a, lower=lower) if lower > best.lower else best

    def met(self, gap: float) -> bool:
        """Return whether the bounds of a single instance agree to `gap`."""
        return bool(self.upper <= (1 + gap) * self.lower)


def follow(cone: Cone[PointT], x: PointT, gap: float) -> tuple[Best, PointT]:
    """Return the best W and multipliers of a single instance, and its last point.

    It stops when its bounds agree, or after PATIENCE steps that did not narrow them. In compiled
    code, this is `kernels.judged` and the loops that call it.
    """
    none = torch.zeros_like(x.s[:, :1])
    best, left = Best(x.W, x.a, none + torch.inf, none), PATIENCE
    for _ in range(STEPS):
        x, M = cone.at(x)
        margin = cone.rows.margins(x.W)
        last = best
        best = last.narrowed(x.W, x.a, *cone.bracket(x, M, margin, gap))
        left = left - 1 if best is last else PATIENCE
        if not left or best.met(gap) or not total(x.s + x.a).isfinite():
            break
        x = cone.step(x, M, margin)
    return best, x


def step_length(*pairs: tuple[Tensor, Tensor], back: float = 1.0) -> Tensor:
    """Return `back` times the largest step with x + t dx >= 0 for all pairs (x, dx), at most 1."""
    ratios = [(dx / x).amin((1, 2), keepdim=True) for x, dx in pairs]
    return 1 / (-reduce(torch.minimum, ratios) / back).clamp(min=1.0)
