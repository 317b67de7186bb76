"""The rows of one instance as vectors of unit size, for methods that work on one at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.svm.entrywise.face import Array, Mask
from attnsvm.svm.problem import PADDING, SvmProblem, power_of_two


class SingleRows:
    """Rows vec(d_k z_k^T) of the single instance of `problem`, divided by powers of two."""

    def __init__(self, problem: SvmProblem) -> None:
        self.problem, self.kept = problem, problem.kind[0] != PADDING
        self.unit = power_of_two(problem.scale())[0, self.kept]

    def start(self, W: Tensor, a: Tensor) -> tuple[Array, Array, Mask, Array, Array]:
        """Return G (N, d^2), h (N,), which rows are equalities, w (d^2,) and a (N,)."""
        D, Z, kept = self.problem.D[0], self.problem.queries[0], self.kept
        G = (D[kept, :, None] * Z[kept, None, :]).flatten(1) / self.unit[:, None]
        h, free = self.problem.h[0, kept] / self.unit, self.problem.equality[0, kept]
        tensors = G, h, free, W[0].flatten(), a[0, kept] * self.unit
        G_, h_, free_, w, y = (x.numpy() for x in tensors)
        return G_, h_, free_, w, y

    def matrices(self, w: Array, a: Array) -> tuple[Tensor, Tensor]:
        """Return W (1, d, d) and multipliers of all rows (1, N) for w and a of the unit rows."""
        d = self.problem.d
        multipliers = torch.zeros_like(self.problem.h)
        multipliers[0, self.kept] = torch.from_numpy(a) / self.unit
        return torch.from_numpy(w).reshape(1, d, d), multipliers
