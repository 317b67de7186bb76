"""Rows of a problem in the units of the interior-point method, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.norm import Norm
from attnsvm.norm.rows import DenseRows, FactoredRows, Rows
from attnsvm.svm.problem import INEQUALITY, PADDING, SvmProblem, power_of_two


@dataclass(frozen=True)
class Scaling:
    """Units in which rows have unit size and W has size one, powers of two; and bases of the spans.

    With orthonormal bases P_d (B, d, p) of span(d_k) and P_z (B, d, q) of span(z_i), None for the
    identity, W is P_d W' P_z^T. `unit` (B, N, 1) are the units of the rows, `size` (B, 1, 1) that
    of W, `shape` that of a W whose rows are any A_k.
    """

    unit: Tensor
    size: Tensor
    shape: tuple[int, int] | None
    P_d: Tensor | None = None
    P_z: Tensor | None = None

    def inward(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W' (B, p, q) and a' (B, N, 1) from those of the problem, (B, d, d) and (B, N)."""
        W = W if self.shape is None else W.reshape(len(W), -1, 1)
        W = W if self.P_d is None else self.P_d.mT @ W
        W = W if self.P_z is None else W @ self.P_z
        return W / self.size, a[..., None] * self.unit

    def outward(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, d, d) and a (B, N) of the problem."""
        W = W if self.P_d is None else self.P_d @ W
        W = W if self.P_z is None else W @ self.P_z.mT
        W = W if self.shape is None else W.reshape(len(W), *self.shape)
        return W * self.size, (a / self.unit)[..., 0]


def scaled_rows(
    norm: Norm,
    problem: SvmProblem,
    index: Tensor,
    size: Tensor,
    P_d: Tensor | None = None,
    P_z: Tensor | None = None,
) -> tuple[Rows, Scaling]:
    """Return the rows at `index` of a problem for W of norm `size`, and their units.

    Rows of any A_k are vectors unless the norm is one of singular values.
    """
    unit = power_of_two(problem.scale[:, index, None])
    kind = problem.kind[:, index, None]
    columns = {
        "h": problem.h[:, index, None] / unit / size,
        "rhs_scale": problem.most[..., None] / unit / size,
        "inequality": kind == INEQUALITY,
        "real": kind != PADDING,
    }
    samples, sample = torch.unique_consecutive(
        index // (problem.N // problem.n), return_inverse=True
    )
    D, Z = problem.D[:, index] / unit, problem.Z[:, samples]
    if problem.shape is not None and norm.rotation_invariant:
        A = (D * Z).reshape(*D.shape[:2], *problem.shape)
        return DenseRows(A=A, **columns), Scaling(unit, size, None)
    D = D if P_d is None else D @ P_d
    Z = Z if P_z is None else Z @ P_z
    rows = FactoredRows(D=D, Z=Z, sample=sample, **columns)
    return rows, Scaling(unit, size, problem.shape, P_d, P_z)
