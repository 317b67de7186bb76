"""The rows of SVMs and the matrix algebra that a predictor-corrector method needs.

Every array is a batch of matrices (G, rows, columns, L): G blocks of L instances, one in each lane.
Vectors are columns (G, N, 1, L) and numbers (G, 1, 1, L), so that all of them broadcast. `OneRows`
has a single instance, G = L = 1, by BLAS and LAPACK; `interior_point.lanes` has L = 8, compiled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Self

import torch
from torch import Tensor

from attnsvm.linalg.simd.cholesky import RIDGE
from attnsvm.linalg.simd.definite import BISECTIONS, RESOLVED
from attnsvm.svm.problem import INEQUALITY, SvmProblem, power_of_two

Solve = Callable[[Tensor], Tensor]


class Rows(ABC):
    """Rows d_k^T W z_k >= h_k, or = h_k, of unit size, for W of size one.

    Attributes
    ----------
    D : (G, N, p, L)
    Z : (G, n, q, L)
        The queries of the samples.
    h : (G, N, 1, L)
    inequality, real : (G, N, 1, L) bool
        Which rows are inequalities, and which are no padding.
    has_equalities : bool
    """

    D: Tensor
    Z: Tensor
    h: Tensor
    inequality: Tensor
    real: Tensor
    has_equalities: bool

    @abstractmethod
    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (N, 1)."""

    @abstractmethod
    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (p, q)."""

    @abstractmethod
    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K_kl = sum_ij (theta_ij d_li z_lj + beta_ij d_lj z_li) d_ki z_kj, (N, N).

        Only the lower triangle counts. beta is symmetric, (r, r) with r = min(p, q). The sums over
        j are those of two samples, not of two rows.
        """

    @abstractmethod
    def factored(self, K: Tensor) -> Solve:
        """Return f -> K^{-1} f, NaN where K is not positive definite; K is overwritten."""

    @abstractmethod
    def product(self, A: Tensor, B: Tensor) -> Tensor:
        """Return A B."""

    @abstractmethod
    def cholesky(self, A: Tensor) -> Tensor:
        """Return L, A = L L^T, NaN or infinite where A is not positive definite."""

    @abstractmethod
    def inverse_factor(self, A: Tensor) -> Tensor:
        """Return the upper triangular T with A^{-1} = T T^T."""

    @abstractmethod
    def svd(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return U (p, p), sigma (r, 1) descending and V (q, q) of A = U diag(sigma) V^T."""

    def spectrum(self, A: Tensor) -> Tensor:
        """Return the singular values (r, 1), descending."""
        return self.svd(A)[1]

    @abstractmethod
    def definite_step(self, A: Tensor, B: Tensor, C: Tensor | None, longest: Tensor) -> Tensor:
        """Return t <= longest, (1, 1), to which A + t B + t^2 C stays positive definite.

        By bisection: the test is a Cholesky factor, which is cheaper than an eigenvalue.
        """

    def turned(self, X_1: Tensor, X_2: Tensor) -> Self:
        """Return the rows X_1^T d_k, X_2^T z_k."""
        other = copy(self)
        other.D, other.Z = self.product(self.D, X_1), self.product(self.Z, X_2)
        return other

    def take(self, blocks: Tensor) -> Self:
        """Return the rows of the instances of these blocks."""
        other = copy(self)
        for name in ("D", "Z", "h", "inequality", "real"):
            setattr(other, name, getattr(self, name)[blocks])
        return other

    def solver(self, K: Tensor, s: Tensor, a: Tensor) -> Solve:
        """Return f -> (K + diag(s / a))^{-1} f; K is overwritten. Rows of padding are unit rows."""
        added = torch.where(self.inequality, s / a, torch.where(self.real, 0.0, 1.0))
        K.diagonal(0, 1, 2).add_(added[:, :, 0].mT)
        return self.factored(K)

    def on_inequalities(self, x: Tensor) -> Tensor:
        """Return x (N, 1), zero on other rows."""
        return torch.where(self.inequality, x, 0.0)


class OneRows(Rows):
    """The rows at `index` of the single instance of `problem`, sorted by sample."""

    def __init__(self, problem: SvmProblem, index: Tensor, size: Tensor) -> None:
        self.unit, self.size = power_of_two(problem.scale()[0, index]), size
        samples, self.sample, counts = torch.unique_consecutive(
            index // (problem.N // problem.n), return_inverse=True, return_counts=True
        )
        self.D = (problem.D[0, index] / self.unit[:, None])[None, ..., None]
        self.Z = problem.Z[:, samples, :, None]
        self.h = (problem.h[0, index] / self.unit / size)[None, :, None, None]
        self.inequality = (problem.kind[0, index] == INEQUALITY)[None, :, None, None]
        self.real = torch.ones_like(self.inequality)
        self.has_equalities = not bool(self.inequality.all())
        ends = counts.cumsum(0).tolist()
        self.blocks = list(zip([0, *ends[:-1]], ends, strict=True))

    def scaled(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (p, q) and a (N, 1) of these rows from those (1, p, q), (1, N)."""
        return (W / self.size)[..., None], (a * self.unit)[:, :, None, None]

    def given(self, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W (1, p, q) and a (1, N) of the problem."""
        return W[..., 0] * self.size, a[:, :, 0, 0] / self.unit

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k."""
        D, Z = _plain(self.D, self.Z)
        return _lane((D * (Z @ _plain(W)[0].mT)[self.sample]).sum(1, keepdim=True))

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a)."""
        D, Z, weight = _plain(self.D, self.Z, a)
        sums = D.new_zeros(len(Z), D.shape[1]).index_add_(0, self.sample, weight * D)
        return _lane(sums.mT @ Z)

    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K: O(n^2 p q + N^2 p) operations, n N r^2 more with beta."""
        D, Z, weights = _plain(self.D, self.Z, theta)
        K = D.new_empty(len(D), len(D))
        r = min(weights.shape)
        for i, (first, end) in enumerate(self.blocks):
            weight = (Z[i:] * Z[i]) @ weights.mT
            others = D[first:] * weight[self.sample[first:] - i]
            if beta is not None:
                crossed = (D[first:, :r] * Z[i, :r]) @ _plain(beta)[0]
                others[:, :r].addcmul_(crossed, Z[self.sample[first:], :r])
            torch.mm(others, D[first:end].mT, out=K[first:, first:end])
        return _lane(K)

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
        return _lane(H.add_(cross).add_(cross.mT).div_(4))

    def _congruence(self, Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return D Y_11 D^T (N, N), D Y_12 Z^T (N, n), Z Y_22 Z^T (n, n)."""
        D, Z, X = _plain(self.D, self.Z, Y)
        p = D.shape[1]
        return D @ X[:p, :p] @ D.mT, D @ (X[:p, p:] @ Z.mT), Z @ X[p:, p:] @ Z.mT

    def factored(self, K: Tensor) -> Solve:
        """Return f -> K^{-1} f, refined by its residual."""
        (matrix,) = _plain(K)
        matrix.tril_()
        matrix = matrix + matrix.tril(-1).mT
        L, info = torch.linalg.cholesky_ex(matrix + torch.diag(RIDGE * matrix.diagonal()))
        if info:
            return lambda f: torch.full_like(f, torch.nan)

        def solve(f: Tensor) -> Tensor:
            (right,) = _plain(f)
            x = torch.cholesky_solve(right, L)
            return _lane(x + torch.cholesky_solve(right - matrix @ x, L))

        return solve

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        """Return A B."""
        return _lane(_plain(A)[0] @ _plain(B)[0])

    def cholesky(self, A: Tensor) -> Tensor:
        """Return L."""
        L, info = torch.linalg.cholesky_ex(_plain(A)[0])
        return _lane(L * torch.nan if info else L)

    def inverse_factor(self, A: Tensor) -> Tensor:
        """Return L^{-T}."""
        (L,) = _plain(self.cholesky(A))
        return _lane(torch.linalg.solve_triangular(L.mT, torch.eye(len(L)).to(L), upper=True))

    def svd(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return U, sigma, V; NaN where A is not finite."""
        (matrix,) = _plain(A)
        if not matrix.isfinite().all():
            p, q = matrix.shape
            shapes = (p, p), (min(p, q), 1), (q, q)
            U, sigma, V = (_lane(matrix.new_full(shape, torch.nan)) for shape in shapes)
            return U, sigma, V
        U, sigma, Vh = torch.linalg.svd(matrix)
        return _lane(U), _lane(sigma[:, None]), _lane(Vh.mT)

    def spectrum(self, A: Tensor) -> Tensor:
        """Return the singular values; NaN where A is not finite."""
        (matrix,) = _plain(A)
        finite = bool(matrix.isfinite().all())
        sigma = torch.linalg.svdvals(matrix if finite else torch.zeros_like(matrix))
        return _lane(sigma[:, None] if finite else sigma[:, None] * torch.nan)

    def definite_step(self, A: Tensor, B: Tensor, C: Tensor | None, longest: Tensor) -> Tensor:
        """Return the step."""
        first, second = _plain(A, B)
        low, high, t = 0.0, float(longest), float(longest)
        for _ in range(BISECTIONS):
            moved = first + t * second
            moved = moved if C is None else moved.add_(_plain(C)[0], alpha=t * t)
            low, high = (low, t) if torch.linalg.cholesky_ex(moved)[1] else (t, high)
            if not high - low > RESOLVED * high:
                break
            t = 0.5 * (low + high)
        return torch.full_like(longest, low)


def transposed(A: Tensor) -> Tensor:
    """Return A^T."""
    return A.transpose(1, 2)


def total(A: Tensor) -> Tensor:
    """Return the sum of all entries, (1, 1)."""
    return A.sum((1, 2), keepdim=True)


def largest(A: Tensor) -> Tensor:
    """Return the largest entry, (1, 1)."""
    return A.amax((1, 2), keepdim=True)


def diagonal(A: Tensor) -> Tensor:
    """Return the diagonal of A, (r, 1)."""
    return A.diagonal(0, 1, 2).transpose(1, 2)[:, :, None]


def identity(size: int, like: Tensor) -> Tensor:
    """Return the identity of each instance, (size, size)."""
    return torch.eye(size).to(like)[None, ..., None]


def _plain(*arrays: Tensor) -> tuple[Tensor, ...]:
    return tuple(x[0, :, :, 0] for x in arrays)


def _lane(matrix: Tensor) -> Tensor:
    return matrix[None, ..., None]
