"""Compiled operations on blocks of eight instances, one in each lane.

The first axis of an array is the block. Workspace is that of a single block.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, array, cholesky, definite, matmul, svd
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.cholesky import System, factor, inverse_cholesky, solve
from attnsvm.linalg.simd.definite import largest_definite_step
from attnsvm.linalg.simd.matmul import inner, product
from attnsvm.linalg.simd.matmul import matmul as multiply
from attnsvm.linalg.simd.svd import full_svd

KERNEL = {"nogil": True, "error_model": "numpy"}
BLOCKS = (arithmetic, array, matmul)


@compiled(*BLOCKS, **KERNEL)
def products(C: Any, A: Any, B: Any, blocks: int, sizes: Any) -> None:
    """Write C = A B, of matrices that may be views: (address, strides of blocks, rows, columns).

    `sizes` are those of C and the inner one; an entry has 64 bytes.
    """
    for g in range(blocks):
        product(
            (C[0] + 64 * g * C[1], C[2], C[3]),
            (A[0] + 64 * g * A[1], A[2], A[3]),
            (B[0] + 64 * g * B[1], B[2], B[3]),
            sizes,
        )


@njit
def combine_block(D: LaneArray, Z: LaneArray, a: LaneArray, M: LaneArray, sums: LaneArray) -> None:
    """Write M(a) = sum_k a_k d_k z_k^T, (p, q), of one block; sums (n, p)."""
    R = len(D) // len(Z)
    for i in range(len(Z)):
        multiply(sums[i], D[i * R : i * R + R].T, a[i * R : i * R + R])
    multiply(M, sums.T, Z)


@njit
def margins_block(
    D: LaneArray, Z: LaneArray, W: LaneArray, margin: LaneArray, moved: LaneArray
) -> None:
    """Write d_k^T W z_k, (N,), of one block; moved (n, p)."""
    R = len(D) // len(Z)
    multiply(moved, Z, W.T)
    for i in range(len(Z)):
        for k in range(i * R, i * R + R):
            margin[k] = inner(D[k], moved[i])


@compiled(*BLOCKS, **KERNEL)
def combine(D: LaneArray, Z: LaneArray, a: LaneArray, M: LaneArray, sums: LaneArray) -> None:
    """Write M(a) of each block."""
    for g in range(len(D)):
        combine_block(D[g], Z[g], a[g], M[g], sums)


@compiled(*BLOCKS, **KERNEL)
def margins(D: LaneArray, Z: LaneArray, W: LaneArray, margin: LaneArray, moved: LaneArray) -> None:
    """Write the margins of each block."""
    for g in range(len(D)):
        margins_block(D[g], Z[g], W[g], margin[g], moved)


@compiled(*BLOCKS, **KERNEL)
def gram(
    D: LaneArray, Z: LaneArray, theta: LaneArray, beta: LaneArray, crossed: bool, K: LaneArray,
    weight: LaneArray, both: LaneArray, block: LaneArray, E: LaneArray,
) -> None:  # fmt: skip
    """Write the lower triangle of `Rows.gram`; work (p,), (q,), (R, p), (r, r).

    For samples i, j the sums over the entries are d_k^T E d_l, with the matrix E of entries
    E_ef = beta_ef z_je z_if, and sum_f theta_ef z_if z_jf more where e = f.
    """
    (n, q), p, r = Z.shape[1:], D.shape[2], len(E)
    R = D.shape[1] // n
    for g in range(len(D)):
        for i in range(n):
            D_i = D[g, i * R : i * R + R]
            for j in range(i + 1):
                D_j = D[g, j * R : j * R + R]
                for f in range(q):
                    both[f] = Z[g, i, f] * Z[g, j, f]
                multiply(weight, theta[g], both)
                if crossed:
                    for e in range(r):
                        for f in range(r):
                            E[e, f] = beta[g, e, f] * Z[g, j, e] * Z[g, i, f]
                    multiply(block[:, :r], D_j[:, :r], E.T)
                for k in range(R):
                    for e in range(p):
                        entry = weight[e] * D_j[k, e]
                        if crossed and e < r:
                            entry += block[k, e]
                        block[k, e] = entry
                multiply(K[g, i * R : i * R + R, j * R : j * R + R], D_i, block.T)


@compiled(*BLOCKS, cholesky, **KERNEL)
def factor_systems(
    K: LaneArray, L: LaneArray, pivot: LaneArray, scale: LaneArray, rest: LaneArray,
    panel: LaneArray,
) -> None:  # fmt: skip
    """Factor K; L (N, N), 1 / L_ii, scale (N,) of each block; work (N,), (N, PANEL)."""
    for g in range(len(K)):
        factor(System(K[g], L[g], pivot[g], scale[g], rest, panel, K.shape[1]))


@compiled(*BLOCKS, cholesky, **KERNEL)
def solve_systems(
    K: LaneArray, L: LaneArray, pivot: LaneArray, scale: LaneArray, rest: LaneArray,
    panel: LaneArray, f: LaneArray, x: LaneArray,
) -> None:  # fmt: skip
    """Write x = K^{-1} f."""
    for g in range(len(K)):
        system = System(K[g], L[g], pivot[g], scale[g], rest, panel, K.shape[1])
        solve(system, f[g], x[g])


@compiled(*BLOCKS, cholesky, **KERNEL)
def choleskys(A: LaneArray, L: LaneArray, pivot: LaneArray, panel: LaneArray) -> None:
    """Write L with its diagonal and zeros above."""
    for g in range(len(A)):
        cholesky.cholesky(A[g], L[g], pivot, panel, 0.0)
        for i in range(A.shape[1]):
            L[g, i, i] = 1 / pivot[i]
            L[g, i, i + 1 :] = 0.0


@compiled(*BLOCKS, cholesky, **KERNEL)
def inverse_factors(
    A: LaneArray, T: LaneArray, L: LaneArray, pivot: LaneArray, panel: LaneArray
) -> None:
    """Write T = L^{-T}; work (size, size), (size,), (size, PANEL)."""
    for g in range(len(A)):
        inverse_cholesky(A[g], (L, pivot, panel), T[g])


@compiled(*BLOCKS, svd, **KERNEL)
def svds(
    A: LaneArray, U: LaneArray, sigma: LaneArray, V: LaneArray, columns: LaneArray,
    first: LaneArray, second: LaneArray,
) -> None:  # fmt: skip
    """Write U (p, p), V (q, q), column after column, and sigma (r,); work (p q,), (r,), (r,)."""
    for g in range(len(A)):
        full_svd(A[g], U[g], V[g], sigma[g], (columns, first, second))


@compiled(*BLOCKS, cholesky, definite, **KERNEL)
def definite_steps(
    A: LaneArray, B: LaneArray, length: LaneArray, moved: LaneArray, L: LaneArray,
    pivot: LaneArray, panel: LaneArray,
) -> None:  # fmt: skip
    """Overwrite `length`, the longest steps, as `Rows.definite_step`."""
    for g in range(len(A)):
        work = moved, L, pivot, panel
        length[g] = largest_definite_step(A[g], B[g], work, length[g])
