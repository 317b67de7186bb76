"""What the methods have in common: a predictor-corrector method on changing rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from attnsvm.norm import Norm, norm_of
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.large.rows import Rows
from attnsvm.svm.large.working_set import OnRows, restrict, staying
from attnsvm.svm.problem import SvmProblem, power_of_two

STEPS = 60
BACK = 0.995
"""Share of the largest step that keeps all variables positive."""

PATIENCE = 4
"""Steps without a narrower bracket before an instance stops."""

LEAST = 1e-4
"""Least slack, relative to h_k, of a row that enters."""

SHARE = 0.1
"""Least slack of any row, relative to h_k, as a share of the largest violation."""

POLISHED = 2**20
"""Most entries of all vec(d_k z_k^T) with which the method for small instances is tried."""


@dataclass(frozen=True)
class Point:
    """An iterate: W (d, d), slacks s and multipliers a (r,); s is 1 on equalities."""

    W: Tensor
    s: Tensor
    a: Tensor


PointT = TypeVar("PointT", bound=Point)


class PredictorCorrector(OnRows, Generic[PointT]):
    """A norm on some rows.

    Parameters
    ----------
    small : FromFrobenius
        The method for small instances, which is tried where the bracket stays open.
    """

    ROUGH: ClassVar[tuple[float, ...]] = (1e-1, 1e-2, 1e-3, 1e-4)

    norm: Norm
    rows: Rows
    point: PointT

    def __init__(self, small: FromFrobenius) -> None:
        self.norm, self.small = norm_of(small.norm), small

    @abstractmethod
    def start(self, W: Tensor, a: Tensor) -> PointT:
        """Return a strictly positive point near the Frobenius solution."""

    @abstractmethod
    def step(self, x: PointT, M: Tensor, margin: Tensor) -> PointT | None:
        """Return the next point from M(a) and the margins of W; None if there is none."""

    def at(self, x: PointT) -> tuple[PointT, Tensor]:
        """Return the point, with the W that it stands for, and M(a)."""
        return x, self.rows.combine(x.a)

    def begin(self, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor) -> None:
        """Scale W to size one, and start there."""
        self.problem, self.index, self.size = problem, index, power_of_two(W.norm())
        self.rows = Rows(problem, index, self.size)
        self.point = self.start(*self.rows.scaled(W, a))

    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of the best bounds."""
        x, left = self.point, PATIENCE
        best_W, best_a, upper, lower = x.W, x.a, math.inf, 0.0
        for _ in range(STEPS):
            x, M = self.at(x)
            margin = self.rows.margins(x.W)
            new_upper, new_lower = self._bracket(x, M, margin, gap)
            left = PATIENCE if new_upper < upper or new_lower > lower else left - 1
            if new_upper < upper:
                best_W, upper = x.W, new_upper
            if new_lower > lower:
                best_a, lower = x.a, new_lower
            if upper <= (1 + gap) * lower or not left:
                break
            new = self.step(x, M, margin)
            if new is None:
                break
            x = new
        if keep:
            self.point = x
        W, a = self.rows.given(best_W, best_a)
        if keep or upper <= (1 + gap) * lower or len(self.index) * W.numel() > POLISHED:
            return W, a
        found = self.small.candidates(restrict(self.problem, self.index))
        return (found.W, found.multipliers) if found.W.isfinite().all() else (W, a)

    def change(self, index: Tensor, gap: float) -> None:
        """Continue with the slacks and multipliers of the rows that stay.

        A row that enters gets the size of its slack and the multiplier mu / s_k. Where W violates a
        row by much, W must move by much, so that no slack may be too small: else steps are short.
        """
        x = self.point
        mu = self._complementarity(x)[1]
        self.rows = Rows(self.problem, index, self.size)
        slack = self.rows.margins(x.W) - self.rows.h
        s = torch.maximum(slack.abs(), max(gap, LEAST) * self.rows.h)
        a = mu / s
        stays, place = staying(self.index, index)
        s[stays], a[stays] = x.s[place], x.a[place]
        violation = self.on_inequalities(-slack / self.rows.h).amax().clamp(min=0.0)
        room = SHARE * violation * self.rows.h
        s = torch.where(self.rows.inequality, torch.maximum(s, room), 1.0)
        self.index = index
        self.point = replace(x, s=s, a=a)

    def _bracket(self, x: PointT, M: Tensor, margin: Tensor, gap: float) -> tuple[float, float]:
        """Return norm(W) / min margin and h^T a / dual_norm(M(a)).

        The upper bound is infinite while W misses an equality by `gap` times the largest h_k.
        """
        rows = self.rows
        ratio = torch.where(rows.inequality, margin / rows.h, torch.inf)
        missed = torch.where(rows.inequality, 0.0, margin - rows.h).abs().amax()
        met = missed <= gap * rows.h.abs().amax()
        least = float(ratio.amin().nan_to_num(0.0, posinf=1.0)) if met else 0.0
        dual = float(self.norm.dual.value(M))
        upper = float(self.norm.value(x.W)) / least if least > 0 else math.inf
        return upper, float(self.rows.h @ x.a) / dual if dual > 0 else 0.0

    def _complementarity(self, x: PointT) -> tuple[Tensor, Tensor]:
        """Return a^T s of the inequalities, and its mean; one without any."""
        products = self.on_inequalities(x.s * x.a).sum()
        products = torch.where(products > 0, products, 1.0)
        return products, products / self.rows.inequality.sum().clamp(min=1)

    def on_inequalities(self, x: Tensor) -> Tensor:
        """Return x (r,), zero on equalities."""
        return torch.where(self.rows.inequality, x, 0.0)

    def near(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return W of least margin one, the slacks of its inequalities, and their size.

        W keeps its scale if an equality has h_k != 0.
        """
        margin, rows = self.rows.margins(W), self.rows
        ratio = torch.where(rows.inequality, margin / rows.h, torch.inf).amin()
        fixed = ((rows.h != 0) & ~rows.inequality).any() | ratio.isinf()
        stretch = torch.where(fixed, 1.0, 1 / ratio)
        s = self.on_inequalities((margin * stretch - rows.h).clamp(min=0.0))
        return W * stretch, s, torch.maximum(s, rows.h.abs()).amax()


def length(*pairs: tuple[Tensor, Tensor], back: float) -> float:
    """Return `back` times the largest step with x + t dx >= 0 for all pairs (x, dx), at most 1."""
    worst = max(float((-dx / x).amax()) for x, dx in pairs)
    return 1 / max(worst / back, 1.0)
