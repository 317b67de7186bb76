r"""Rows in bases where a linear map H of matrices mixes entries ij and ji only.

Such are the derivative of a function of singular values, in bases of singular vectors, and the map
of the spectral norm's scaling. For X (p, q) in these bases, with symmetric weights beta,

    (H X)_ij = theta_ij X_ij + beta_ij X_ji  (i, j < r = min(p, q)),  theta_ij X_ij  (the others).
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.simd.arithmetic import at, fma, load, store
from attnsvm.linalg.simd.matmul import product


class Weights(NamedTuple):
    """Addresses of theta (p, q), beta (r, r), and workspace (r, r)."""

    theta: int
    beta: int
    pair: int


@njit
def turn(rows: Any, turned: Any, left: Any, right: Any) -> None:
    """Write the rows D X_1, Z X_2 and the products of two queries, for X_1 (p, p), X_2 (q, q).

    X_1 and X_2 are given as in `attnsvm.linalg.simd.matmul`, with their strides.
    """
    n, p, q, N, pair = rows.n, rows.p, rows.q, rows.n * rows.R, 0
    product((turned.D, p, 1), (rows.D, p, 1), left, (N, p, p))
    product((turned.Z, q, 1), (rows.Z, q, 1), right, (n, q, q))
    for i in range(n):
        for j in range(i + 1):
            for e in range(q):
                both = load(turned.Z, i * q + e) * load(turned.Z, j * q + e)
                store(turned.ZZ, pair * q + e, both)
            pair += 1


@njit
def weigh(weights: Any, X: int, result: int, p: int, q: int) -> None:
    """Write H X, (p, q), elsewhere than X."""
    r = min(p, q)
    for i in range(p):
        for j in range(q):
            entry = load(weights.theta, i * q + j) * load(X, i * q + j)
            if i < r and j < r:
                entry = fma(load(weights.beta, i * r + j), load(X, j * q + i), entry)
            store(result, i * q + j, entry)


@njit
def pair_gram(turned: Any, weights: Any, K: int) -> None:
    """Write the lower triangle of K_kl = <d_k z_k^T, H d_l z_l^T>, (N, N).

    For samples i, j the sums over the entries are d_k^T E d_l, where
    E_ef = beta_ef z_je z_if, and sum_f theta_ef z_if z_jf more where e = f.
    """
    n, R, p, q = turned.n, turned.R, turned.p, turned.q
    N, r, block, pair, E = n * R, min(p, q), turned.block, 0, weights.pair
    pairs = n * (n + 1) // 2
    product((turned.C, 1, p), (weights.theta, q, 1), (turned.ZZ, 1, q), (p, pairs, q))
    for i in range(n):
        for j in range(i + 1):
            for e in range(r):
                for f in range(r):
                    both = load(turned.Z, j * q + e) * load(turned.Z, i * q + f)
                    store(E, e * r + f, load(weights.beta, e * r + f) * both)
            D_j = at(turned.D, j * R * p)
            product((block, p, 1), (D_j, p, 1), (E, 1, r), (R, r, r))
            for k in range(R):
                for e in range(p):
                    diagonal = load(turned.C, pair * p + e) * load(D_j, k * p + e)
                    entry = load(block, k * p + e) + diagonal if e < r else diagonal
                    store(block, k * p + e, entry)
            place = (at(K, i * R * N + j * R), N, 1)
            product(place, (at(turned.D, i * R * p), p, 1), (block, 1, p), (R, R, p))
            pair += 1
