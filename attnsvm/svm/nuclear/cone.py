r"""The linear matrix inequality of the nuclear norm: data, scaling and its few linear maps.

Vectors over the rows are (B, N) with the N = n R rows grouped by sample; matrices of the cone are
(B, P, P), P = p + q, in blocks [[p x p, p x q], [q x p, q x q]]. The k-th constraint matrix is
A_k = [[0, d_k z_k^T], [z_k d_k^T, 0]] / 2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from attnsvm.linalg import orthonormal
from attnsvm.svm.equalities import independent_equalities
from attnsvm.svm.problem import SvmProblem, power_of_two


@dataclass(frozen=True)
class Cone:
    """The projected and scaled problem.

    Attributes
    ----------
    D : (B, N, p)
        Rows in the basis of their span, divided by `unit`; zero where padding.
    Q : (B, n, q)
        Queries in the basis of their span.
    h : (B, N)
        Right-hand sides, divided by unit and size.
    inequality, padding : (B, N) bool
        The kinds of rows; the others are independent equalities.
    unit, size : (B, N), (B,)
        Powers of two: of the rows' size, and of the size of W.
    P_d, P_z : (B, d, p), (B, d, q)
        Orthonormal bases of span(d_k) and span(z_i).
    """

    D: Tensor
    Q: Tensor
    h: Tensor
    inequality: Tensor
    padding: Tensor
    unit: Tensor
    size: Tensor
    P_d: Tensor
    P_z: Tensor

    @property
    def p(self) -> int:
        """Dimension of the span of the differences."""
        return self.D.shape[2]

    @property
    def inhomogeneous(self) -> Tensor:
        """Where an equality has h_k != 0, so that W must not be rescaled, (B,)."""
        return (~self.padding & ~self.inequality & (self.h != 0)).any(dim=1)

    def take(self, index: Tensor) -> Cone:
        """Return the instances at `index`."""
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (B, p, q); padding does not count."""
        return self.by_sample(a[..., None] * self.D).sum(dim=2).mT @ self.Q

    def apply(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (B, N), for W (B, p, q)."""
        moved = self.Q @ W.mT
        return (self.by_sample(self.D) * moved[:, :, None, :]).sum(dim=3).reshape(self.h.shape)

    def schur(self, Y: Tensor, V: Tensor) -> Tensor:
        """Return H_kl = tr(A_k Y A_l V), (B, N, N), for symmetric Y and V.

        4 H = D Y_11 D^T o Q V_22 Q^T + Q Y_22 Q^T o D V_11 D^T + C_Y^T o C_V + C_Y o C_V^T,
        C_Y = D Y_12 Q^T. The factors of Q have n distinct rows only.
        """
        (Y_dd, Y_dz, Y_zz), (V_dd, V_dz, V_zz) = self._congruence(Y), self._congruence(V)
        B, N = self.h.shape
        n = self.Q.shape[1]
        R = N // n
        rows = (B, n, R, n, R)
        cross = Y_dz.mT.reshape(B, n, 1, n, R) * V_dz.reshape(B, n, R, n, 1)
        direct = Y_dd.view(rows) * V_zz[:, :, None, :, None]
        direct = direct.addcmul_(V_dd.view(rows), Y_zz[:, :, None, :, None])
        cross = cross.view(B, N, N)
        return direct.view(B, N, N).add_(cross).add_(cross.mT).div_(4)

    def _congruence(self, Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return D Y_11 D^T (N x N), D Y_12 Q^T (N x n), Q Y_22 Q^T (n x n)."""
        D, Q, p = self.D, self.Q, self.p
        return D @ Y[:, :p, :p] @ D.mT, D @ (Y[:, :p, p:] @ Q.mT), Q @ Y[:, p:, p:] @ Q.mT

    def by_sample(self, rows: Tensor) -> Tensor:
        """Return (B, N, ...) as (B, n, R, ...)."""
        B, n = self.Q.shape[:2]
        return rows.reshape(B, n, rows.shape[1] // n, *rows.shape[2:])

    def unproject(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, d, d) and multipliers (B, N) of the problem before `project`."""
        W = self.P_d @ W @ self.P_z.mT * self.size[:, None, None]
        return W, torch.where(self.padding, 0.0, a) / self.unit

    def reproject(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, p, q) and multipliers (B, N) of the scaled problem."""
        return self.P_d.mT @ W @ self.P_z / self.size[:, None, None], a * self.unit


def project(problem: SvmProblem, W: Tensor) -> Cone:
    """Return the problem on span(d_k) x span(z_i), rows of unit size, ||W|| about one."""
    return project_on(basis(problem.D), basis(problem.Z), problem, W)


def project_on(P_d: Tensor, P_z: Tensor, problem: SvmProblem, W: Tensor) -> Cone:
    """Return the problem in the bases P_d, P_z, rows of unit size, ||W|| about one."""
    keep = problem.inequality | independent_equalities(problem)
    D = torch.where(keep[..., None], problem.D, 0.0) @ P_d
    Q = problem.Z @ P_z
    unit = power_of_two(problem.scale())
    size = power_of_two(W.flatten(1).norm(dim=1))
    h = torch.where(keep, problem.h, 0.0) / unit / size[:, None]
    return Cone(D / unit[..., None], Q, h, problem.inequality, ~keep, unit, size, P_d, P_z)


def basis(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (B, d, p) that spans the rows (B, r, d), p = min(d, r)."""
    if rows.shape[1] >= rows.shape[2]:
        return torch.eye(rows.shape[2]).to(rows).expand(rows.shape[0], -1, -1)
    return orthonormal(rows.mT)[0]


def times_off_diagonal(Y: Tensor, M: Tensor) -> Tensor:
    """Return Y sum_k a_k A_k = Y [[0, M], [M^T, 0]] / 2 from M = M(a), for Y (B, r, p + q)."""
    p, half = M.shape[1], M / 2
    return torch.cat([Y[:, :, p:] @ half.mT, Y[:, :, :p] @ half], dim=2)


def slack_matrix(M: Tensor) -> Tensor:
    """Return S = [[I, -M], [-M^T, I]] / 2."""
    p, P = M.shape[1], sum(M.shape[1:])
    S = M.new_zeros((len(M), P, P))
    S[:, :p, p:] = M / -2
    S[:, p:, :p] = M.mT / -2
    S.diagonal(dim1=1, dim2=2).fill_(0.5)
    return S


def symmetric(Y: Tensor) -> Tensor:
    """Return (Y + Y^T) / 2."""
    return (Y + Y.mT) / 2
