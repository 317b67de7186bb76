"""The rows of SVMs and the matrix algebra that a predictor-corrector method needs.

Every array is a batch of matrices (B, rows, columns); vectors are columns (B, N, 1) and numbers
(B, 1, 1), so that all of them broadcast. By BLAS and LAPACK; where a norm has a compiled method for
batches (`lanes`), only its start is made here, and the steps of large instances.
"""

from collections.abc import Callable
from copy import copy
from typing import Self

import torch
from torch import Tensor

from attnsvm.linalg.simd.cholesky import BISECTIONS, RESOLVED, RIDGE
from attnsvm.norm import Norm, Schatten
from attnsvm.svm.problem import INEQUALITY, PADDING, SvmProblem, power_of_two

Solve = Callable[[Tensor], Tensor]


class Rows:
    """The rows d_k^T W z_k >= h_k, or = h_k, at `index` of a problem, for W of norm `size`.

    They are divided by powers of two: then rows have unit size, and W has size one. With
    orthonormal bases P_d (B, d, p) of span(d_k), P_z (B, d, q) of span(z_i) W is P_d W P_z^T.

    D is (B, N, p), sorted by sample, whose number is `sample` (N,), and Z (B, n, q) has the queries
    of the samples. h and `most`, (B, N, 1), are the right-hand sides and the largest one of the
    problem; `inequality` and `real`, (B, N, 1) bool, which rows are inequalities, and no padding.
    """

    def __init__(
        self, problem: SvmProblem, index: Tensor, size: Tensor,
        P_d: Tensor | None = None, P_z: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.unit, self.size = power_of_two(problem.scale[:, index, None]), size
        self.P_d, self.P_z, self.shape = P_d, P_z, problem.shape
        samples, self.sample, counts = torch.unique_consecutive(
            index // (problem.N // problem.n), return_inverse=True, return_counts=True
        )
        D, Z = problem.D[:, index] / self.unit, problem.Z[:, samples]
        self.D, self.Z = D if P_d is None else D @ P_d, Z if P_z is None else Z @ P_z
        self.h = problem.h[:, index, None] / self.unit / size
        self.most = problem.most[..., None] / self.unit / size
        kind = problem.kind[:, index, None]
        self.inequality, self.real = kind == INEQUALITY, kind != PADDING
        ends = counts.cumsum(0).tolist()
        self.blocks = list(zip([0, *ends[:-1]], ends, strict=True))

    def scaled(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, p, q) and a (B, N, 1) of these rows from those (B, d, d), (B, N)."""
        W = W if self.shape is None else W.reshape(len(W), -1, 1)
        W = W if self.P_d is None else self.P_d.mT @ W
        W = W if self.P_z is None else W @ self.P_z
        return W / self.size, a[..., None] * self.unit

    def given(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (B, d, d) and a (B, N) of the problem."""
        W = W if self.P_d is None else self.P_d @ W
        W = W if self.P_z is None else W @ self.P_z.mT
        W = W if self.shape is None else W.reshape(len(W), *self.shape)
        return W * self.size, (a / self.unit)[..., 0]

    def on_inequalities(self, x: Tensor) -> Tensor:
        """Return x (N, 1), zero on other rows."""
        return torch.where(self.inequality, x, 0.0)

    @property
    def homogeneous(self) -> Tensor:
        """Whether no equality has h_k != 0 and no inequality h_k < 0, (1, 1)."""
        return ((self.h == 0) | ((self.h > 0) & self.inequality)).all(1, keepdim=True)

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (N, 1)."""
        return (self.D * (self.Z @ W.mT)[:, self.sample]).sum(2, keepdim=True)

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (p, q)."""
        sums = self.D.new_zeros(*self.Z.shape[:2], self.D.shape[2])
        return sums.index_add_(1, self.sample, a * self.D).mT @ self.Z

    def matrices(self) -> Tensor:
        """Return the A_k, (B, N, p, q)."""
        return self.D[..., None] * self.Z[:, self.sample, None]

    def turned(self, X_1: Tensor, X_2: Tensor) -> Self:
        """Return the rows X_1^T d_k, X_2^T z_k."""
        other = copy(self)
        other.D, other.Z = self.D @ X_1, self.Z @ X_2
        return other

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
        H = Y_dd.mul_(V_zz[i][:, i])
        H.addcmul_(V_dd, Y_zz[i][:, i])
        cross = Y_dz[:, i].mT * V_dz[:, i]
        return H.add_(cross).add_(cross.mT).div_(4)[None]

    def _congruence(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return D X_11 D^T (N, N), D X_12 Z^T (N, n), Z X_22 Z^T (n, n)."""
        D, Z, X, p = self.D[0], self.Z[0], X[0], self.D.shape[2]
        return D @ X[:p, :p] @ D.mT, D @ (X[:p, p:] @ Z.mT), Z @ X[p:, p:] @ Z.mT

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


class DenseRows(Rows):
    """Rows <A_k, W> of any A_k, (B, N, p, q), where the norm is one of singular values."""

    def __init__(self, problem: SvmProblem, index: Tensor, size: Tensor) -> None:
        super().__init__(problem, index, size)
        assert self.shape is not None
        self.A, self.shape = (self.D * self.Z).reshape(*self.D.shape[:2], *self.shape), None

    def matrices(self) -> Tensor:
        """Return the A_k."""
        return self.A

    def margins(self, W: Tensor) -> Tensor:
        """Return <A_k, W>, (N, 1)."""
        return self.A.flatten(2) @ W.reshape(len(W), -1, 1)

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k A_k, (p, q)."""
        return (a.mT @ self.A.flatten(2)).reshape(len(a), *self.A.shape[2:])

    def turned(self, X_1: Tensor, X_2: Tensor) -> Self:
        """Return the rows X_1^T A_k X_2."""
        other = copy(self)
        other.A = X_1.mT[:, None] @ self.A @ X_2[:, None]
        return other

    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K_kl = sum_ij (theta_ij A_l,ij + beta_ij A_l,ji) A_k,ij, in O(N^2 p q)."""
        others, r = theta[:, None] * self.A, min(theta.shape[1:])
        if beta is not None:
            others[..., :r, :r] += beta[:, None] * self.A[..., :r, :r].mT
        return self.A.flatten(2) @ others.flatten(2).mT

    def schur(self, Y: Tensor, V: Tensor) -> Tensor:
        """Return H_kl = tr(A_k Y A_l V), (N, N), A_k as there; O(N p q (p + q) + N^2 p q)."""
        A, p = self.A[0], self.A.shape[2]
        (Y_11, Y_12, Y_22), (V_11, V_12, V_22) = (
            (X[0, :p, :p], X[0, :p, p:], X[0, p:, p:]) for X in (Y, V)
        )
        moved = Y_11 @ A @ V_22 + V_11 @ A @ Y_22 + Y_12 @ A.mT @ V_12 + V_12 @ A.mT @ Y_12
        return (A.flatten(1) @ moved.flatten(1).mT / 4)[None]


def rows_for(
    norm: Norm, problem: SvmProblem, index: Tensor, size: Tensor,
    P_d: Tensor | None = None, P_z: Tensor | None = None,
) -> Rows:  # fmt: skip
    """Return the rows of a problem; those of any A_k are vectors unless the norm sees a matrix."""
    if problem.shape is not None and isinstance(norm, Schatten):
        return DenseRows(problem, index, size)
    return Rows(problem, index, size, P_d, P_z)


def cholesky(A: Tensor) -> Tensor:
    """Return L, A = L L^T, NaN where A is not positive definite."""
    L, info = torch.linalg.cholesky_ex(A)
    return torch.where(info[:, None, None] == 0, L, torch.nan) if info.any() else L


def inverse_factor(A: Tensor) -> Tensor:
    """Return the upper triangular T with A^{-1} = T T^T."""
    L = cholesky(A)
    return torch.linalg.solve_triangular(L.mT, torch.eye(L.shape[1]).to(L), upper=True)


def svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (p, p), sigma (r, 1), V (q, q) of A = U diag(sigma) V^T; NaN if it is not finite."""
    finite = A.isfinite().all()
    U, sigma, Vh = torch.linalg.svd(A if finite else torch.zeros_like(A))
    return U, (sigma if finite else sigma * torch.nan)[..., None], Vh.mT


def definite_step(A: Tensor, B: Tensor, C: Tensor | None, longest: Tensor) -> Tensor:
    """Return t <= longest, (1, 1), to which A + t B + t^2 C stays positive definite.

    By bisection: the test is a Cholesky factor, which is cheaper than an eigenvalue.
    """
    low, high, t = torch.zeros_like(longest), longest, longest
    for _ in range(BISECTIONS):
        moved = A + t * B if C is None else A + t * B + t * t * C
        inside = torch.linalg.cholesky_ex(moved)[1][:, None, None] == 0
        wide = high - low > RESOLVED * high
        low, high = torch.where(wide & inside, t, low), torch.where(wide & ~inside, t, high)
        t = 0.5 * (low + high)
        if not (high - low > RESOLVED * high).any():
            break
    return low


def total(A: Tensor) -> Tensor:
    """Return the sum of all entries, (1, 1)."""
    return A.sum((1, 2), keepdim=True)


def largest(A: Tensor) -> Tensor:
    """Return the largest entry, (1, 1)."""
    return A.amax((1, 2), keepdim=True)


def diagonal(A: Tensor) -> Tensor:
    """Return the diagonal of A, (r, 1)."""
    return A.diagonal(0, 1, 2)[..., None]


def identity(size: int, like: Tensor) -> Tensor:
    """Return the identity, (size, size)."""
    return torch.eye(size).to(like)
