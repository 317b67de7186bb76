"""Rows of one instance, sorted by sample: their products, without any vec(d_k z_k^T)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import torch
from torch import Tensor

from attnsvm.svm.problem import INEQUALITY, SvmProblem, power_of_two


class Rows:
    """The rows at `index` of an instance, scaled by powers of two.

    Attributes
    ----------
    D : (r, d)
        Of size ||d_k|| ||z_k|| about one.
    Z : (m, d)
        The queries of the samples that have rows.
    sample : (r,)
        The sample of each row, ascending.
    h : (r,)
        Right-hand sides, for a W that is divided by `size`.
    inequality : (r,) bool
    """

    def __init__(self, problem: SvmProblem, index: Tensor, size: Tensor) -> None:
        self.unit, self.size = power_of_two(problem.scale()[0, index]), size
        samples, self.sample, counts = torch.unique_consecutive(
            index // (problem.N // problem.n), return_inverse=True, return_counts=True
        )
        self.D, self.Z = problem.D[0, index] / self.unit[:, None], problem.Z[0, samples]
        self.h = problem.h[0, index] / self.unit / size
        self.inequality = problem.kind[0, index] == INEQUALITY
        ends = counts.cumsum(0).tolist()
        self.blocks = list(zip([0, *ends[:-1]], ends, strict=True))

    def scaled(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (d, d) and a (r,) of these rows from those (1, d, d), (1, r) of the problem."""
        return W[0] / self.size, a[0] * self.unit

    def given(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (1, d, d) and a (1, r) of the problem."""
        return W[None] * self.size, (a / self.unit)[None]

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (r,)."""
        return (self.D * (self.Z @ W.mT)[self.sample]).sum(1)

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (d, d)."""
        sums = torch.zeros_like(self.Z).index_add_(0, self.sample, a[:, None] * self.D)
        return sums.mT @ self.Z

    def turned(self, X_1: Tensor, X_2: Tensor) -> Rows:
        """Return the rows X_1^T d_k, X_2^T z_k."""
        other = copy(self)
        other.D, other.Z = self.D @ X_1, self.Z @ X_2
        return other

    def weighted_gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K_kl = sum_ij (theta_ij d_li z_lj + beta_ij d_lj z_li) d_ki z_kj, lower triangle.

        O(m^2 d^2 + r^2 d) operations, m r d^2 more with beta, which is symmetric: the sums over j
        are those of two samples, not of two rows.
        """
        K = theta.new_empty(len(self.h), len(self.h))
        for i, (first, end) in enumerate(self.blocks):
            weight = (self.Z[i:] * self.Z[i]) @ theta.mT
            others = self.D[first:] * weight[self.sample[first:] - i]
            if beta is not None:
                crossed = (self.D[first:] * self.Z[i]) @ beta
                others.addcmul_(crossed, self.Z[self.sample[first:]])
            torch.mm(others, self.D[first:end].mT, out=K[first:, first:end])
        return K

    def solver(self, K: Tensor, s: Tensor, a: Tensor) -> Callable[[Tensor], Tensor] | None:
        """Return f -> (K + diag(s / a))^{-1} f; None if K has rounding errors of its size.

        Only the lower triangle of K counts; its diagonal is overwritten.
        """
        K.diagonal().add_(torch.where(self.inequality, s / a, 0.0))
        L, info = torch.linalg.cholesky_ex(K)
        if info:
            return None
        return lambda f: torch.cholesky_solve(f[:, None], L)[:, 0]
