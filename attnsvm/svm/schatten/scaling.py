r"""Nesterov's and Todd's scaling of the spectral norm's linear matrix inequality.

With Cholesky factors S = L_S L_S^T, Y = L_Y L_Y^T and L_S^T L_Y = U diag(delta) R^T (SVD),

    G = L_Y R diag(delta)^{-1/2}:  G^T S G = G^{-1} Y G^{-T} = diag(delta),  V = G G^T,  V S V = Y.

Eliminating dY = ... - V dS V leaves dW -> V_11 dW V_22 + V_12 dW^T V_12. With V_11 = L_1 L_1^T,
V_22 = L_2 L_2^T and L_1^{-1} V_12 L_2^{-T} = U_1 diag(c) U_2^T it is X -> X + diag(c) X^T diag(c)
for dW = X_1 X X_2^T, X_1 = L_1^{-T} U_1, X_2 = L_2^{-T} U_2: pairs of entries, inverted at once.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import at, fill, fma, load, root, store
from attnsvm.linalg.simd.cholesky import decompose, inverse_factor
from attnsvm.linalg.simd.matmul import product
from attnsvm.linalg.simd.svd import decompose_columns, decompose_fully
from attnsvm.svm.schatten.turned import turn


@njit
def scale(rows: Any, x: Any, z: Any) -> None:
    """Write delta and G."""
    p, q = rows.p, rows.q
    P, t, zero = p + q, load(x.t, 0), fill(0.0)
    for i in range(P):
        for j in range(i):
            outside = i < p or j >= p
            store(z.F, i * P + j, zero if outside else zero - load(x.W, j * q + i - p))
        store(z.F, i * P + i, t)
    _factor(x.Y, z.Y_root, z, P)
    for i in range(P * P):
        store(z.G, i, load(z.Y_root, i))
    _scale(z, P)


@njit
def rescale(z: Any, primal: Any, dual: Any, P: int) -> None:
    """Write delta and G after steps of these lengths along dS and dY, given in the old scaling.

    There S and Y are nearly diagonal, and their small eigenvalues have all their digits.
    """
    for i in range(P):
        for j in range(i + 1):
            diagonal = load(z.delta, i) if i == j else fill(0.0)
            store(z.F, i * P + j, fma(primal, load(z.dS, i * P + j), diagonal))
            store(z.V, i * P + j, fma(dual, load(z.dY, i * P + j), diagonal))
    _factor(z.V, z.Y_root, z, P)
    product((z.V, P, 1), (z.G, P, 1), (z.Y_root, P, 1), (P, P, P))
    for i in range(P * P):
        store(z.G, i, load(z.V, i))
    _scale(z, P)


@njit
def _scale(z: Any, P: int) -> None:
    """Overwrite G by G R diag(delta)^{-1/2}, from S in z.F and the root of Y."""
    _factor(z.F, z.S_root, z, P)
    product((z.F, 1, P), (z.S_root, 1, P), (z.Y_root, P, 1), (P, P, P))
    decompose_columns(z.F, z.V, z.delta, P, P)
    product((z.F, P, 1), (z.G, P, 1), (z.V, 1, P), (P, P, P))
    for j in range(P):
        inverse = fill(1.0) / root(load(z.delta, j))
        for i in range(P):
            store(z.G, i * P + j, load(z.F, i * P + j) * inverse)


@njit
def _factor(A: int, L: int, z: Any, P: int) -> None:
    """Write L of A = L L^T with its diagonal and zeros above."""
    decompose(A, L, z.pivot, z.panel, P, 0.0)
    for i in range(P):
        store(L, i * P + i, fill(1.0) / load(z.pivot, i))
        for j in range(i + 1, P):
            store(L, i * P + j, fill(0.0))


@njit
def diagonalise(rows: Any, turned: Any, z: Any, weights: Any) -> None:
    """Write X_1, X_2, X_1^T G_1, X_2^T G_2, the turned rows and the weights of the inverse map."""
    p, q = rows.p, rows.q
    P, r, zero, one = p + q, min(p, q), fill(0.0), fill(1.0)
    G_2, work = at(z.G, p * P), (z.L, z.pivot, z.panel)
    product((z.V, p, 1), (z.G, P, 1), (z.G, 1, P), (p, p, P))
    inverse_factor(z.V, work, z.T_1, p)
    product((z.V, q, 1), (G_2, P, 1), (G_2, 1, P), (q, q, P))
    inverse_factor(z.V, work, z.T_2, q)
    product((z.H_1, P, 1), (z.T_1, 1, p), (z.G, P, 1), (p, P, p))
    product((z.H_2, P, 1), (z.T_2, 1, q), (G_2, P, 1), (q, P, q))
    product((z.M, q, 1), (z.H_1, P, 1), (z.H_2, 1, P), (p, q, P))
    decompose_fully(z.M, z.U_1, z.U_2, z.cosine, (z.V, z.reflected, z.flips), p, q)
    product((z.X_1, p, 1), (z.T_1, p, 1), (z.U_1, 1, p), (p, p, p))
    product((z.X_2, q, 1), (z.T_2, q, 1), (z.U_2, 1, q), (q, q, q))
    product((z.H_1, P, 1), (z.X_1, 1, p), (z.G, P, 1), (p, P, p))
    product((z.H_2, P, 1), (z.X_2, 1, q), (G_2, P, 1), (q, P, q))
    turn(rows, turned, (z.X_1, p, 1), (z.X_2, q, 1))
    for i in range(p):
        for j in range(q):
            weight = one
            if i < r and j < r:
                both = load(z.cosine, i) * load(z.cosine, j)
                weight = one / ((one - both) * (one + both))
                store(weights.beta, i * r + j, zero - both * weight)
            store(weights.theta, i * q + j, weight)
