"""The forward pass of all layers and the backward pass of one, compiled for eight instances."""

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.loss import feature, slope
from attnsvm.linalg.simd.matmul import add, inner, matmul, rescale
from attnsvm.transformer.compiled.copies import compare_rows, gather_away
from attnsvm.transformer.compiled.layout import (
    EVERY,
    MEAN,
    Data,
    Sizes,
    attending,
    forget_zeros,
    queries,
)


@subroutine
def forward(data: Data, work: Workspace, sizes: Sizes, W: LaneArray) -> None:
    """Write rows, logits, attention, U and differences of rows of every layer."""
    for layer in range(sizes.L):
        R = queries(sizes, layer)
        x, above = work.x[layer], work.x[layer + 1]
        for h in range(sizes.H):
            matmul(attending(work.U[layer, h], R), attending(x, R), W[layer, h].T)
        for i in range(sizes.n):
            _mix(data, work, sizes, layer, i, R)
        if sizes.width > 0:
            hidden, M1, M2 = work.hidden[layer], data.M1[layer], data.M2[layer]
            expand(above, work.mixed[layer], hidden, M1, M2, R)
        for i in range(sizes.n if layer < sizes.L - 1 else 0):
            compare_rows(data, work, sizes, W, layer, i)


@njit(inline="always")
def _mix(data: Data, work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the first R rows of a sequence after attention: y = (x + sum_h V^T X^T s / sqrt(H))."""
    x, d = work.x[layer, i], sizes.d
    out = work.mixed[layer, i] if sizes.width > 0 else work.x[layer + 1, i]
    share = 1 / np.sqrt(sizes.H)
    for k in range(R):
        for j in range(d):
            out[k, j] = x[k, j] if sizes.residual else fill(0.0)
    for h in range(sizes.H):
        logits, s = work.logits[layer, h, i], work.s[layer, h, i]
        top, away, size = work.top[layer, h, i], work.away[layer, h, i], work.size[layer, h, i]
        matmul(logits[:R], work.U[layer, h, i, :R], x.T)
        _attend(logits, s, top, work.inverse[layer, h, i], data.bias[i], R)
        for k in range(R):
            apart = work.apart[layer, i]
            if layer == 0:
                _away_from_top(away[k], size[k], x, top[k], apart)
            else:
                gather_away(away[k], size[k], top[k], work.pairs[layer, i], apart)
        mean = work.rows[:R]
        matmul(mean, s[:R], x)
        if sizes.values:
            mean = work.more_rows[:R]
            matmul(mean, work.rows[:R], data.V[layer, h])
        for k in range(R):
            add(out[k], mean[k], share)
    if sizes.residual:
        for k in range(R):
            rescale(out[k], np.sqrt(0.5))


@subroutine
def _attend(
    logits: LaneArray, s: LaneArray, top: LaneArray, inverse: LaneArray, bias: LaneArray, R: int
) -> None:
    """Write `top`, `inverse`, centred logits and attention of the first R rows of one head."""
    T = len(logits)
    for k in range(R):
        largest, place, total = fill(-np.inf), fill(0.0), fill(0.0)
        for t in range(T):
            logit = logits[k, t] + bias[k, t]
            logits[k, t] = logit
            place = where(logit > largest, t, place)
            largest = maximum(logit, largest)
        for t in range(T):
            centred = logits[k, t] - largest
            e = exp(centred)
            logits[k, t], s[k, t] = centred, e
            total += e
        inverse[k], top[k] = 1 / total, place
        rescale(s[k], inverse[k])


@subroutine
def _away_from_top(
    away: LaneArray, size: LaneArray, x: LaneArray, top: Any, apart: LaneArray
) -> None:
    """Write x_t - x_top and its exponents in the first layer, whose rows are as drawn."""
    T, d = x.shape
    for t in range(T):
        size[t] = -np.inf
        for u in range(T):
            if u != t:
                size[t] = where(top == u, apart[min(t, u), max(t, u)], size[t])
    for j in range(d):
        x_top = x[0, j]
        for t in range(1, T):
            x_top = where(top == t, x[t, j], x_top)
        for t in range(T):
            away[t, j] = x[t, j] - x_top


@subroutine
def expand(
    out: LaneArray, y: LaneArray, hidden: LaneArray, M1: LaneArray, M2: LaneArray, R: int
) -> None:
    """Write hidden units relu(M1^T y) and the rows (y + M2^T relu(M1^T y)) / sqrt(2)."""
    out, y, hidden = attending(out, R), attending(y, R), attending(hidden, R)
    matmul(hidden, y, M1)
    rows, width = hidden.shape
    for k in range(rows):
        for j in range(width):
            hidden[k, j] = where(hidden[k, j] > 0, hidden[k, j], 0)
    matmul(out, hidden, M2)
    add_residual(out, y, out)


@njit(inline="always")
def add_residual(out: LaneArray, y: LaneArray, added: LaneArray) -> None:
    """Write (y + added) / sqrt(2)."""
    rows, d = out.shape
    for k in range(rows):
        for j in range(d):
            out[k, j] = (y[k, j] + added[k, j]) * np.sqrt(0.5)


@subroutine
def readout(data: Data, work: Workspace, sizes: Sizes) -> None:
    """Write the adjoints of the last rows and their exponents, and what the head reads."""
    T, d, k = sizes.T, sizes.d, sizes.k
    last, g, c, F = work.x[sizes.L], work.g, work.c, data.F
    n, count = data.Y.shape
    share = 1.0 / T if sizes.readout == MEAN else 1.0
    for i in range(n):
        for position in range(count):
            o, w, value = work.read[i, position], work.w[i, position], fill(0.0)
            for j in range(d):
                o[j] = last[i, position, j]
                for t in range(1, T if sizes.readout == MEAN else 1):
                    o[j] += last[i, t, j]
                o[j] *= share
            for p in range(k):
                h, dh = feature(inner(o, F.T[p]), data.kinds, p)
                value += h
                w[p] = dh
            factor, exponent = slope(data.Y[i, position] * value, sizes.loss, sizes.target)
            rescale(w, factor * (data.weights[i, position] * share))
            work.w_exponent[i, position] = exponent
            for t in range(T):
                is_read = sizes.readout == MEAN or t == position
                if sizes.readout != EVERY or is_read:
                    c[i, t] = exponent if is_read else fill(-np.inf)
                    for j in range(d):
                        g[i, t, j] = inner(w, F[j]) if is_read else fill(0.0)
    forget_zeros(g.rows, c.flat)


@subroutine
def backward(data: Data, work: Workspace, sizes: Sizes, W: LaneArray, layer: int) -> None:
    """Write P and, above the first layer, the adjoints of the layer's input."""
    R = queries(sizes, layer)
    share = (np.sqrt(0.5) if sizes.residual else 1.0) / np.sqrt(sizes.H)
    work.r_exponent[layer] = work.c
    for h in range(sizes.H):
        r = attending(work.r[layer, h], R)
        if sizes.values:
            matmul(r, attending(work.g, R), data.V[layer, h].T)
        else:
            r[:] = attending(work.g, R)
        for k in range(len(r)):
            rescale(r[k], share)
    for i in range(sizes.n):
        for h in range(sizes.H):
            logits, inverse = work.logits[layer, h, i], work.inverse[layer, h, i]
            top, away, size = work.top[layer, h, i], work.away[layer, h, i], work.size[layer, h, i]
            for k in range(R):
                row = logits[k], inverse[k], top[k], away[k], work.c[i, k]
                P, r_k = work.P[layer, h, i, k], work.r[layer, h, i, k]
                if layer == 0:
                    e = _pull_back_first(
                        P, r_k, row, work.s[layer, h, i, k], work.square[0], work.part
                    )
                else:
                    q, exponent = work.q[h, k], work.q_exponent[h, k]
                    e = _pull_back(P, q, exponent, r_k, row, size[k], work.square[0])
                work.P_exponent[layer, h, i, k] = e
        if layer > 0:
            _begin_below(work, sizes, layer, i, R)
            for h in range(sizes.H):
                as_value, as_key = work.square[:R], work.q[h, :R]
                c, common, below = work.c[i], work.c_below[i], work.g_below[i].flat
                inverse = work.inverse[layer, h, i]
                _weigh_as_keys(as_value, as_key, work.q_exponent[h], work.logits[layer, h, i],
                               inverse, c, common)  # fmt: skip
                matmul(work.rows, as_value.T, work.r[layer, h, i, :R])
                add(below, work.rows.flat, 1.0)
                matmul(work.rows, as_key.T, work.U[layer, h, i, :R])
                add(below, work.rows.flat, 1.0)
    if layer > 0:
        for h in range(sizes.H):
            matmul(attending(work.back, R), attending(work.P[layer, h], R), W[layer, h])
            for i in range(sizes.n):
                for k in range(R):
                    share_k = exp(work.P_exponent[layer, h, i, k] - work.c_below[i, k])
                    add(work.g_below[i, k], work.back[i, k], share_k)
        work.g[:] = work.g_below
        work.c[:] = work.c_below
        forget_zeros(work.g.rows, work.c.flat)


@subroutine
def _pull_back_first(
    P: LaneArray, r: LaneArray, row: Any, s: LaneArray, rise: LaneArray, q: LaneArray
) -> Any:
    """Write P of a row of the first layer, return its exponent; rows as drawn need no other ones.

    `rise` is (x_t - x_top)^T r. `q` is scratch of at least T entries.
    """
    (logits, inverse, top, away, c), T = row, len(s)
    matmul(rise, away, r)
    largest, mean = fill(-np.inf), fill(0.0)
    for t in range(T):
        largest = maximum(where(rise[t] == 0, -np.inf, logits[t]), largest)
    # e^-largest times s_t (x_t - x_top)^T r; its sum is the mean
    for t in range(T):
        q[t] = rise[t] * exp(logits[t] - largest) * inverse
        mean += q[t]
    for t in range(T):
        q[t] = where(top == t, 0, q[t] - s[t] * mean)
    matmul(P, away.T, q[:T])
    return largest + c


@subroutine
def _pull_back(
    P: LaneArray, q: LaneArray, exponent: LaneArray, r: LaneArray, row: Any, size: LaneArray,
    rise: LaneArray,
) -> Any:  # fmt: skip
    """Write q and P of a row, with their exponents; return that of P.

    x_t - x_top = away e^size, and the score of t is above that of the top by rise e^size.
    """
    (logits, inverse, top, away, c), T, none = row, len(size), -np.inf
    matmul(rise, away, r)
    log_mean, mean, largest = fill(none), fill(0.0), fill(none)
    for t in range(T):
        log_mean = maximum(log_mean, where(rise[t] == 0, none, logits[t] + size[t]))
    for t in range(T):
        mean += rise[t] * exp(logits[t] + size[t] - log_mean)
    mean *= inverse
    # q = s (rise - mean) e^c; at the top token only the mean is left
    for t in range(T):
        scale = maximum(size[t], log_mean)
        apart = rise[t] * exp(size[t] - scale) - mean * exp(log_mean - scale)
        apart = where(top == t, -mean, apart)
        power = where(top == t, log_mean + c, logits[t] + (scale + c))
        power = where(apart == 0, none, power)
        q[t], exponent[t] = apart * inverse, power
        largest = maximum(largest, where(top == t, none, power + size[t]))
    for t in range(T):
        rise[t] = q[t] * exp(exponent[t] + size[t] - largest)
    matmul(P, away.T, rise)
    return largest


@subroutine
def _begin_below(work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the exponents of the adjoints of the rows, and what the residual connection adds."""
    for t in range(sizes.T):
        c = work.c[i, t]
        largest = c if sizes.residual else fill(-np.inf)
        for h in range(sizes.H):
            if t < R:
                largest = maximum(work.P_exponent[layer, h, i, t], largest)
            for k in range(R):
                largest = maximum(work.logits[layer, h, i, k, t] + work.c[i, k], largest)
                largest = maximum(work.q_exponent[h, k, t], largest)
        work.c_below[i, t] = largest
        share = exp(c - largest) * np.sqrt(0.5) if sizes.residual else fill(0.0)
        for j in range(sizes.d):
            work.g_below[i, t, j] = share * work.g[i, t, j]


@subroutine
def _weigh_as_keys(
    as_value: LaneArray, as_key: LaneArray, exponent: LaneArray, logits: LaneArray,
    inverse: LaneArray, c: LaneArray, common: LaneArray,
) -> None:  # fmt: skip
    """Write the weights of the rows' adjoints as values, s, and as keys, q, less `common`."""
    R, T = as_value.shape
    for k in range(R):
        for t in range(T):
            as_value[k, t] = inverse[k] * exp(logits[k, t] + c[k] - common[t])
            as_key[k, t] *= exp(exponent[k, t] - common[t])


@subroutine
def through_mlp(
    g: LaneArray, active: LaneArray, hidden: LaneArray, back: LaneArray, M1: LaneArray,
    M2: LaneArray, R: int,
) -> None:  # fmt: skip
    """Turn adjoints of the rows after the MLP into those before it; write those of hidden units."""
    g, active, hidden = attending(g, R), attending(active, R), attending(hidden, R)
    back = attending(back, R)
    matmul(active, g, M2.T)
    rows, width = active.shape
    for k in range(rows):
        for j in range(width):
            active[k, j] = where(hidden[k, j] > 0, active[k, j], 0)
    matmul(back, active, M1.T)
    add_residual(g, g, back)
