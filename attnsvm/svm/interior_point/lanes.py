"""Rows of eight instances at a time, one in each lane, by compiled code."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import to_lanes
from attnsvm.linalg.simd.cholesky import PANEL, System
from attnsvm.svm.interior_point import kernels, nuclear_step
from attnsvm.svm.interior_point.nuclear_step import Iterate, RowsOfBlock, Work
from attnsvm.svm.interior_point.rows import Rows, Solve, transposed
from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING


class LaneRows(Rows):
    """Rows of the same number in each sample, in blocks of eight instances.

    Parameters
    ----------
    D, Z, h, kind : (B, N, p), (B, n, q), (B, N), (B, N)
        Rows of unit size; the last instance is repeated until blocks are full.
    """

    def __init__(self, D: Tensor, Z: Tensor, h: Tensor, kind: Tensor) -> None:
        self.D, self.Z, self.h = to_lanes(D), to_lanes(Z), to_lanes(h[:, :, None])
        kind = to_lanes(kind[:, :, None])
        self.inequality, self.real = kind == INEQUALITY, kind != PADDING
        self.has_equalities = bool((kind == EQUALITY).any())
        self.workspaces: dict[Any, list[LaneArray]] = {}  # by shapes; shared with `turned` rows
        self.nuclear: RowsOfBlock | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Samples, rows of each, and dimensions of both spans."""
        n, q = self.Z.shape[1:3]
        return n, self.D.shape[1] // n, self.D.shape[2], q

    def work(self, *shapes: tuple[int, ...]) -> list[LaneArray]:
        """Return arrays of these shapes with any entries: the same arrays in each call."""
        if shapes not in self.workspaces:
            self.workspaces[shapes] = LaneArray.several(*shapes)
        return self.workspaces[shapes]

    def take(self, blocks: Tensor) -> Self:
        """Return the rows of the instances of these blocks."""
        other = super().take(blocks)
        other.workspaces, other.nuclear = {}, None
        return other

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k."""
        n, _, p, _ = self.sizes
        margin = torch.empty_like(self.h)
        kernels.margins(*_arrays(self.D, self.Z, W), _vectors(margin), *self.work((n, p)))
        return margin

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a)."""
        n, _, p, q = self.sizes
        M = a.new_empty(len(a), p, q, LANES)
        kernels.combine(*_arrays(self.D, self.Z), _vectors(a), *_arrays(M), *self.work((n, p)))
        return M

    def gram(self, theta: Tensor, beta: Tensor | None = None) -> Tensor:
        """Return K."""
        (_, R, p, q), (G, N) = self.sizes, self.h.shape[:2]
        K, r = self.h.new_empty(G, N, N, LANES), min(p, q)
        work = self.work((p,), (q,), (R, p), (r, r))
        given = _arrays(self.D, self.Z, theta, theta if beta is None else beta)
        kernels.gram(*given, beta is not None, *_arrays(K), *work)
        return K

    def step_nuclear(self, Y: Tensor, s: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        """Return Y, s and a after the step of `Nuclear`."""
        n, R, p, q = self.sizes
        N, P = n * R, p + q
        dx = Iterate._make(self.work((P, P), (N,), (N,)))
        work = Work._make(self.work(*Work.shapes(n, R, p, q)))
        if self.nuclear is None:
            vectors = (_vectors(x.to(s)) for x in (self.h, self.inequality, self.real))
            self.nuclear = RowsOfBlock(*_arrays(self.D, self.Z), *vectors)
        Y, s, a = (x.clone(memory_format=torch.contiguous_format) for x in (Y, s, a))
        point = Iterate(_arrays(Y)[0], _vectors(s), _vectors(a))
        nuclear_step.steps(self.nuclear, point, dx, work, *self.work(*System.shapes(N)))
        return Y, s, a

    def factored(self, K: Tensor) -> Solve:
        """Return f -> K^{-1} f, refined by its residual."""
        G, N = K.shape[:2]
        system = *_arrays(K), *self.work((G, N, N), (G, N), (G, N), (N,), (N, PANEL))
        kernels.factor_systems(*system)

        def solve(f: Tensor) -> Tensor:
            x = torch.empty_like(self.h)
            kernels.solve_systems(*system, _vectors(f), _vectors(x))
            return x

        return solve

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        """Return A B."""
        C = A.new_empty(len(A), A.shape[1], B.shape[2], LANES)
        sizes = A.shape[1], B.shape[2], A.shape[2]
        kernels.products(_place(C), _place(A), _place(B), len(A), sizes)
        return C

    def cholesky(self, A: Tensor) -> Tensor:
        """Return L."""
        L, size = A.new_empty(A.shape), A.shape[1]
        kernels.choleskys(*_arrays(A, L), *self.work((size,), (size, PANEL)))
        return L

    def inverse_factor(self, A: Tensor) -> Tensor:
        """Return L^{-T}."""
        T, size = A.new_empty(A.shape), A.shape[1]
        work = self.work((size, size), (size,), (size, PANEL))
        kernels.inverse_factors(*_arrays(A, T), *work)
        return T

    def svd(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return U, sigma, V by Jacobi's rotations."""
        G, p, q = A.shape[:3]
        r = min(p, q)
        U, sigma, V = (A.new_empty(G, *shape, LANES) for shape in ((p, p), (r, 1), (q, q)))
        of_A, of_U, of_V = _arrays(A, U, V)
        kernels.svds(of_A, of_U, _vectors(sigma), of_V, *self.work((p * q,), (r,), (r,)))
        return transposed(U), sigma, transposed(V)

    def definite_step(self, A: Tensor, B: Tensor, C: Tensor | None, longest: Tensor) -> Tensor:
        """Return the step."""
        assert C is None  # only the step of the nuclear norm, which is compiled, needs it
        length, size = longest.contiguous().clone(), A.shape[1]
        work = self.work((size, size), (size, size), (size,), (size, PANEL))
        kernels.definite_steps(*_arrays(A, B), LaneArray.of(length.view(-1, LANES)), *work)
        return length


def _arrays(*matrices: Tensor) -> list[LaneArray]:
    return [LaneArray.of(x.contiguous()) for x in matrices]


def _vectors(x: Tensor) -> LaneArray:
    """Return columns (G, N, 1, 8) as vectors (G, N)."""
    return LaneArray.of(x.contiguous()[:, :, 0])


def _place(A: Tensor) -> tuple[int, ...]:
    """Return the address of a matrix or of a view of one, and its strides in entries."""
    return A.data_ptr(), *(stride // LANES for stride in A.stride()[:3])
