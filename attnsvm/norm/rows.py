"""The rows of linear constraints on W, and the matrix algebra that a cone's step needs of them.

Every array is a batch of matrices (B, rows, columns); vectors are columns (B, N, 1) and numbers
(B, 1, 1), so that all of them broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self, TypeAlias

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import cholesky

RIDGE = 1e-13
"""Relative, on the diagonal: dependent rows leave a Gram matrix singular."""

Solve = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sides:
    """The right-hand sides of rows <A_k, W> >= h_k, or = h_k, of a batch of instances.

    Attributes
    ----------
    h : (B, N, 1)
        Right-hand sides.
    inequality, real : (B, N, 1) bool
        Which rows are inequalities, and which are no padding.
    """

    h: Tensor
    inequality: Tensor
    real: Tensor

    def take(self, index: Tensor) -> Self:
        """Return the rows of the instances at `index`."""
        names = (field.name for field in fields(self) if field.name != "sample")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def on_inequalities(self, x: Tensor) -> Tensor:
        """Return x (N, 1), zero on other rows."""
        return torch.where(self.inequality, x, 0.0)

    @property
    def homogeneous(self) -> Tensor:
        """Whether no equality has h_k != 0 and no inequality h_k < 0, (1, 1)."""
        return ((self.h == 0) | ((self.h > 0) & self.inequality)).all(1, keepdim=True)

    def solver(self, K: Tensor, s: Tensor, a: Tensor) -> Solve:
        """Return f -> (K + diag(s / a))^{-1} f, refined; NaN where it is not positive definite.

        The lower triangle of K counts; K is overwritten.
        """
        ratio = torch.where(self.real, self.on_inequalities(s / a), 1.0)  # padding is zero in K
        K.tril_().diagonal(0, 1, 2).add_(ratio[..., 0])
        K = K + K.tril(-1).mT
        L = cholesky(K + torch.diag_embed(RIDGE * K.diagonal(0, 1, 2)))

        def solve(f: Tensor) -> Tensor:
            x = torch.cholesky_solve(f, L)
            return x + torch.cholesky_solve(f - K @ x, L)

        return solve


@dataclass(frozen=True)
class FactoredRows(Sides):
    """Rows A_k = d_k z_k^T.

    Attributes
    ----------
    D : (B, N, p)
        The vectors d_k, sorted by sample.
    Z : (B, n, q)
        The queries of the samples.
    sample : (N,) int
        The sample of each row, ascending.
    """

    D: Tensor
    Z: Tensor
    sample: Tensor

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last row (exclusive) of every sample."""
        ends = torch.unique_consecutive(self.sample, return_counts=True)[1].cumsum(0).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (N, 1)."""
        return (self.D * (self.Z @ W.mT)[:, self.sample]).sum(2, keepdim=True)

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (p, q)."""
        sums = self.D.new_zeros(*self.Z.shape[:2], self.D.shape[2])
        return sums.index_add_(1, self.sample, a * self.D).mT @ self.Z

    def turned(self, X_1: Tensor, X_2: Tensor) -> Self:
        """Return the rows X_1^T d_k, X_2^T z_k."""
        return replace(self, D=self.D @ X_1, Z=self.Z @ X_2)

    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K_kl = sum_ij (theta_ij d_li z_lj + beta_ij d_lj z_li) d_ki z_kj, (N, N).

        Only the lower triangle counts. beta is symmetric, (r, r) with r = min(p, q). The sums over
        j are those of two samples, not of two rows: O(n^2 p q + N^2 p) operations, n N r^2 more
        with beta.
        """
        D, Z, sample = self.D, self.Z, self.sample
        K = D.new_empty(len(D), D.shape[1], D.shape[1])
        r = min(theta.shape[1:])
        for i, (first, end) in enumerate(self.blocks):
            z = Z[:, i : i + 1]
            weight = (Z[:, i:] * z) @ theta.mT
            others = D[:, first:] * weight[:, sample[first:] - i]
            if beta is not None:
                crossed = (D[:, first:, :r] * z[..., :r]) @ beta
                others[..., :r].addcmul_(crossed, Z[:, sample[first:], :r])
            K[:, first:, first:end] = others @ D[:, first:end].mT
        return K

    def schur(self, Y: Tensor, V: Tensor) -> Tensor:
        """Return H_kl = tr(A_k Y A_l V), (N, N), A_k = [[0, d_k z_k^T], [z_k d_k^T, 0]] / 2.

        4 H = D Y_11 D^T o Z V_22 Z^T + Z Y_22 Z^T o D V_11 D^T + C_Y^T o C_V + C_Y o C_V^T,
        C_Y = D Y_12 Z^T, for symmetric Y and V.
        """
        (Y_dd, Y_dz, Y_zz), (V_dd, V_dz, V_zz) = self._congruence(Y), self._congruence(V)
        i = self.sample
        H = Y_dd.mul_(V_zz[:, i][:, :, i])
        H.addcmul_(V_dd, Y_zz[:, i][:, :, i])
        cross = Y_dz[:, :, i].mT * V_dz[:, :, i]
        return H.add_(cross).add_(cross.mT).div_(4)

    def _congruence(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return D X_11 D^T (N, N), D X_12 Z^T (N, n), Z X_22 Z^T (n, n)."""
        D, Z, p = self.D, self.Z, self.D.shape[2]
        right = Z.mT
        return D @ X[:, :p, :p] @ D.mT, D @ (X[:, :p, p:] @ right), Z @ X[:, p:, p:] @ right


@dataclass(frozen=True)
class DenseRows(Sides):
    """Rows of any A_k, `A` (B, N, p, q)."""

    A: Tensor

    def margins(self, W: Tensor) -> Tensor:
        """Return <A_k, W>, (N, 1)."""
        return self.A.flatten(2) @ W.flatten(1)[..., None]

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k A_k, (p, q)."""
        return (a.mT @ self.A.flatten(2)).reshape(len(a), *self.A.shape[2:])

    def turned(self, X_1: Tensor, X_2: Tensor) -> Self:
        """Return the rows X_1^T A_k X_2."""
        return replace(self, A=X_1.mT[:, None] @ self.A @ X_2[:, None])

    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K_kl = sum_ij (theta_ij A_l,ij + beta_ij A_l,ji) A_k,ij, in O(N^2 p q)."""
        others, r = theta[:, None] * self.A, min(theta.shape[1:])
        if beta is not None:
            others[..., :r, :r] += beta[:, None] * self.A[..., :r, :r].mT
        return self.A.flatten(2) @ others.flatten(2).mT

    def schur(self, Y: Tensor, V: Tensor) -> Tensor:
        """Return H_kl = tr(B_k Y B_l V), B_k = [[0, A_k], [A_k^T, 0]] / 2, in O(N^2 p q)."""
        A, p = self.A, self.A.shape[2]
        (Y_11, Y_12, Y_22), (V_11, V_12, V_22) = (
            (X[:, None, :p, :p], X[:, None, :p, p:], X[:, None, p:, p:]) for X in (Y, V)
        )
        moved = Y_11 @ A @ V_22 + V_11 @ A @ Y_22 + Y_12 @ A.mT @ V_12 + V_12 @ A.mT @ Y_12
        return A.flatten(2) @ moved.flatten(2).mT / 4


Rows: TypeAlias = FactoredRows | DenseRows


def weighted(theta: Tensor, beta: Tensor | None, X: Tensor) -> Tensor:
    """Return theta_ij X_ij + beta_ij X_ji, the latter for i, j < r = min(p, q)."""
    weighted = theta * X
    if beta is not None:
        r = beta.shape[1]
        weighted[:, :r, :r] += beta * X[:, :r, :r].mT
    return weighted
