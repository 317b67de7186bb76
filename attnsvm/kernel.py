"""The fused training loop: eight instances in the lanes of each value, compiled by numba.

The attention of sample i sees W only through U_i = W z_i. A step changes W by sum_i P_i z_i^T, P_i
the token-space gradient, hence U by sum_j (z_i^T z_j) P_j: the loop needs the Gram matrix of the
queries and never W itself. It keeps V with W = a W0 + sum_i V_i z_i^T, from which W follows.

All arrays of a block are flat, entry by entry of eight lanes: X (n, T, r), F (n, T, k),
gram (n, n), bias (n, T), Y (n,), U, U0, V, P (n, r), K (r, m), B, B0, VQ, A (n, m).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.config import MACHINE_EPS
from attnsvm.simd import LANES, exp, fill, fma, load, root, store, where_equal, where_greater

LOGISTIC, EXPONENTIAL = 0, 1
"""Codes of the losses; any other number is the linear loss."""

TINY = 1e-300
FAST = {"nogil": True, "cache": True, "error_model": "numpy"}


@njit(inline="always")  # type: ignore[untyped-decorator]
def _slope(u: Any, loss: Any) -> Any:
    """Return l'(u)."""
    if loss == LOGISTIC:
        return fill(-1.0) / (fill(1.0) + exp(u))
    if loss == EXPONENTIAL:
        return fill(-1.0) * exp(fill(0.0) - u)
    return fill(-1.0)


@njit(**FAST)  # type: ignore[untyped-decorator]
def _attend(X: Any, bias: Any, U: Any, logits: Any, rows: Any, n: int, T: int, r: int) -> Any:
    """Write logits and, to `rows`, each row's maximum and its first place; return the shift.

    The shift is the largest difference of a second to a largest logit of a row, 0 without any.
    """
    shift = fill(-np.inf)
    for i in range(n):
        top, second, place = fill(-np.inf), fill(-np.inf), fill(0.0)
        for t in range(T):
            at = i * T + t
            logit = load(bias, at)
            for j in range(r):
                logit = fma(load(X, at * r + j), load(U, i * r + j), logit)
            store(logits, at, logit)
            second = where_greater(logit, top, top, where_greater(logit, second, logit, second))
            place = where_greater(logit, top, fill(float(t)), place)
            top = where_greater(logit, top, logit, top)
        store(rows, 2 * i, top)
        store(rows, 2 * i + 1, place)
        gap = second - top
        shift = where_greater(gap, shift, gap, shift)
    return where_greater(shift, fill(-1e300), shift, fill(0.0))


@njit(**FAST)  # type: ignore[untyped-decorator]
def _pull(
    X: Any, F: Any, kinds: Any, bias: Any, Y: Any, U: Any, P: Any, logits: Any, rows: Any, E: Any,
    w: Any, loss: int, n: int, T: int, r: int, k: int, exact: bool,
) -> Any:  # fmt: skip
    """Write P_i exp(-shift), return the shift; `kinds` holds alpha, beta, rho of each feature.

    Exact: the largest softmax of a row is 1 minus the others', its gradient minus the sum of
    theirs. Not exact, as published: no row has such a place, and the shift is zero.
    """
    shift = _attend(X, bias, U, logits, rows, n, T, r)
    zero, one, apart = fill(0.0), fill(1.0), fill(1.0)
    if not exact:
        shift, apart = zero, zero
    big = exp(shift)
    for i in range(n):
        top, place = load(rows, 2 * i), load(rows, 2 * i + 1)
        if not exact:
            place = fill(-1.0)
        total = zero
        for t in range(T):
            e = exp(load(logits, i * T + t) - top - shift)
            e = where_equal(place, fill(float(t)), zero, e)
            store(E, t, e)
            total = total + e
        inverse = one / fma(big, total, apart)
        value = zero
        for j in range(k):
            p = zero
            for t in range(T):
                s = where_equal(place, fill(float(t)), one, big * load(E, t))
                p = fma(s, load(F, (i * T + t) * k + j), p)
            p = p * inverse
            alpha, beta, rho = fill(kinds[0, j]), fill(kinds[1, j]), fill(kinds[2, j])
            value = value + p * (alpha + fill(0.5) * beta * p + where_greater(p, zero, rho, zero))
            store(w, j, alpha + beta * p + where_greater(p, zero, rho, zero))
        label = load(Y, i)
        slope = _slope(label * value, loss) * label * fill(1.0 / n)
        c_top, mean = zero, zero
        for t in range(T):
            c = zero
            for j in range(k):
                c = fma(load(w, j), load(F, (i * T + t) * k + j), c)
            c = c * slope
            store(logits, i * T + t, c)
            c_top = where_equal(place, fill(float(t)), c, c_top)
        for t in range(T):
            mean = fma(load(E, t), load(logits, i * T + t) - c_top, mean)
        mean = mean * big * inverse
        rest = zero
        for t in range(T):
            q = load(E, t) * inverse * (load(logits, i * T + t) - c_top - mean)
            store(E, t, q)
            rest = rest - q
        for t in range(T):
            store(E, t, where_equal(place, fill(float(t)), rest, load(E, t)))
        for j in range(r):
            pulled = zero
            for t in range(T):
                pulled = fma(load(E, t), load(X, (i * T + t) * r + j), pulled)
            store(P, i * r + j, pulled)
    return shift


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weights(shift: Any, log_ridge: float) -> Any:
    """Return log-scale, factor of the risk's and factor of the ridge's gradient."""
    ridge = fill(log_ridge)
    scale = where_greater(shift, ridge, shift, ridge)
    return scale, exp(shift - scale), exp(ridge - scale)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _length(square: Any, scale: Any, eta: float, normalized: bool, eps: float) -> Any:
    """Return the factor of the scaled gradient in a step."""
    if normalized:
        positive = where_greater(square, fill(0.0), square, fill(0.0))
        return fill(eta) / (root(positive) + fill(eps))
    return fill(eta) * exp(scale)


@njit(**FAST)  # type: ignore[untyped-decorator]
def train_w(
    first: int, last: int, X: Any, F: Any, kinds: Any, gram: Any, bias: Any, Y: Any, U: Any,
    U0: Any, V: Any, a: Any, square0: Any, etas: Any, loss: int, log_ridge: float,
    normalized: bool, n: int, T: int, r: int, k: int, exact: bool,
) -> None:  # fmt: skip
    """Take len(etas) steps of W in the blocks first <= b < last; updates U, V and a."""
    eps = TINY if exact else MACHINE_EPS
    P, H, w = np.empty(n * r * LANES), np.empty(n * r * LANES), np.empty(k * LANES)
    logits, rows, E = np.empty(n * T * LANES), np.empty(2 * n * LANES), np.empty(T * LANES)
    for b in range(first, last):
        for eta in etas:
            shift = _pull(
                X[b], F[b], kinds, bias[b], Y[b], U[b], P, logits, rows, E, w, loss, n, T, r, k,
                exact,
            )  # fmt: skip
            scale, risk, ridge = _weights(shift, log_ridge)
            square, cross, size, share = fill(0.0), fill(0.0), fill(0.0), load(a[b], 0)
            for i in range(n):
                for j in range(r):
                    at = i * r + j
                    h = fill(0.0)
                    for other in range(n):
                        h = fma(load(gram[b], i * n + other), load(P, other * r + j), h)
                    store(H, at, h)
                    square = fma(load(P, at), h, square)
            square = risk * risk * square
            if log_ridge > -np.inf:
                for at in range(n * r):
                    cross = fma(load(P, at), load(U[b], at), cross)
                    size = fma(load(V[b], at), fma(share, load(U0[b], at), load(U[b], at)), size)
                size = fma(share * share, load(square0[b], 0), size)
                square = square + ridge * (fill(2.0) * risk * cross + ridge * size)
            step = _length(square, scale, eta, normalized, eps)
            keep = fill(1.0) - step * ridge
            step = fill(0.0) - step * risk
            for at in range(n * r):
                store(U[b], at, fma(step, load(H, at), keep * load(U[b], at)))
                store(V[b], at, fma(step, load(P, at), keep * load(V[b], at)))
            store(a[b], 0, share * keep)


@njit(**FAST)  # type: ignore[untyped-decorator]
def train_kq(
    first: int, last: int, X: Any, F: Any, kinds: Any, gram: Any, bias: Any, Y: Any, K: Any,
    B: Any, B0: Any, VQ: Any, a: Any, square0: Any, etas: Any, loss: int, log_ridge: float,
    normalized: bool, n: int, T: int, r: int, k: int, m: int,
) -> None:  # fmt: skip
    """Take len(etas) steps of (K, Q) in the blocks first <= b < last; updates K, B, VQ and a.

    B_i = Q^T z_i and Q = a[1] Q0 + sum_i z_i VQ_i^T; K is that in the span of the tokens, what is
    outside of it is a[0] times its start. `square0` holds the squares of both at the start.
    """
    U, P, w = np.empty(n * r * LANES), np.empty(n * r * LANES), np.empty(k * LANES)
    logits, rows, E = np.empty(n * T * LANES), np.empty(2 * n * LANES), np.empty(T * LANES)
    A, HB, G = np.empty(n * m * LANES), np.empty(n * m * LANES), np.empty(r * m * LANES)
    for b in range(first, last):
        for eta in etas:
            for i in range(n):
                for j in range(r):
                    u = fill(0.0)
                    for c in range(m):
                        u = fma(load(K[b], j * m + c), load(B[b], i * m + c), u)
                    store(U, i * r + j, u)
            shift = _pull(
                X[b], F[b], kinds, bias[b], Y[b], U, P, logits, rows, E, w, loss, n, T, r, k,
                True,
            )  # fmt: skip
            scale, risk, ridge = _weights(shift, log_ridge)
            ridged = log_ridge > -np.inf
            square_K, square_Q = fill(0.0), fill(0.0)
            share_K, share_Q = load(a[b], 0), load(a[b], 1)
            for i in range(n):
                for c in range(m):
                    pulled = fill(0.0)
                    for j in range(r):
                        pulled = fma(load(K[b], j * m + c), load(P, i * r + j), pulled)
                    store(A, i * m + c, pulled)
            for i in range(n):
                for c in range(m):
                    h = fill(0.0)
                    for other in range(n):
                        h = fma(load(gram[b], i * n + other), load(A, other * m + c), h)
                    store(HB, i * m + c, h)
                    square_Q = fma(load(A, i * m + c), h, square_Q)
            square_Q = risk * risk * square_Q
            for j in range(r):
                for c in range(m):
                    g = fill(0.0)
                    for i in range(n):
                        g = fma(load(P, i * r + j), load(B[b], i * m + c), g)
                    if ridged:
                        g = fma(risk, g, ridge * load(K[b], j * m + c))
                    store(G, j * m + c, g)
                    square_K = fma(g, g, square_K)
            if ridged:
                cross, size = fill(0.0), share_Q * share_Q * load(square0[b], 1)
                for at in range(n * m):
                    old = fma(share_Q, load(B0[b], at), load(B[b], at))
                    cross = fma(load(A, at), load(B[b], at), cross)
                    size = fma(load(VQ[b], at), old, size)
                square_Q = square_Q + ridge * (fill(2.0) * risk * cross + ridge * size)
                outside = ridge * share_K
                square_K = fma(outside * outside, load(square0[b], 0), square_K)
            step_K = _length(square_K, scale, eta, normalized, TINY)
            step_Q = _length(square_Q, scale, eta, normalized, TINY)
            for at in range(r * m):
                store(K[b], at, load(K[b], at) - step_K * load(G, at))
            keep = fill(1.0) - step_Q * ridge
            step = fill(0.0) - step_Q * risk
            for at in range(n * m):
                store(B[b], at, fma(step, load(HB, at), keep * load(B[b], at)))
                store(VQ[b], at, fma(step, load(A, at), keep * load(VQ[b], at)))
            store(a[b], 0, share_K * (fill(1.0) - step_K * ridge))
            store(a[b], 1, share_Q * keep)
