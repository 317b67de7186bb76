"""The nuclear norm: one interior-point run whose rows change."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.svm.large.working_set import OnRows, restrict, staying
from attnsvm.svm.nuclear.cone import Cone, basis, project_on
from attnsvm.svm.nuclear.interior_point import Iterate, begin, interior_point, mean_complementarity
from attnsvm.svm.problem import SvmProblem

INSIDE = 0.99  # largest ||M(a)||_op of an iterate after rows have changed
LEAST = 1e-4  # least slack, relative to h_k, of a row that enters


class Nuclear(OnRows):
    """The cone keeps its bases; rows that stay keep their slacks and multipliers."""

    ROUGH: ClassVar[tuple[float, ...]] = (1e-2, 1e-4)

    def begin(self, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor) -> None:
        """Start as the method for small instances does."""
        self.problem, self.W, self.index = problem, W, index
        self.P_d, self.P_z = torch.eye(problem.d).to(W)[None], basis(problem.Z)
        self.cone = self._cone(index)
        self.iterate = begin(self.cone, *self.cone.reproject(W, a))

    def _cone(self, index: Tensor) -> Cone:
        return project_on(self.P_d, self.P_z, restrict(self.problem, index), self.W)

    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of the best bounds."""
        W, a, _, last = interior_point(self.cone, self.iterate, gap)
        if keep:
            self.iterate = last
        return self.cone.unproject(W, a)

    def change(self, index: Tensor, gap: float) -> None:
        """Continue near the central path.

        A row that enters gets its slack, at least a share of h_k, and the multiplier nu / s_k.
        """
        cone, iterate = self._cone(index), self.iterate
        nu = mean_complementarity(self.cone, iterate)
        slack = cone.apply(iterate.Y[:, : cone.p, cone.p :]) - cone.h
        s = torch.maximum(slack, max(gap, LEAST) * cone.h)
        a = nu[:, None] / s
        stays, place = staying(self.index, index)
        s[:, stays], a[:, stays] = iterate.s[:, place], iterate.a[:, place]
        top = torch.linalg.matrix_norm(cone.combine(a), ord=2)[:, None]
        self.iterate = Iterate(iterate.Y, s, a * (INSIDE / top).clamp(max=1.0))
        self.cone, self.index = cone, index
