"""The forward pass of all layers and the backward pass of one, compiled for eight instances."""

from typing import Any

import numpy as np
from numba import njit

from attnsvm.head import feature
from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, maximum, minimum, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import add, add_matmul, inner, matmul, rescale
from attnsvm.loss import slope
from attnsvm.transformer.compiled.copies import compare_copies, find_near, gather_away
from attnsvm.transformer.compiled.layout import (
    EVERY,
    MEAN,
    Data,
    Sizes,
    attending,
    forget_zeros,
    queries,
)

DEPTH = 300.0
"""Sequences whose adjoints fall by less than e^-300 through all layers may do without exponents.

As much again is left for the sizes of tokens, values and head.
"""


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
            _expand(data, work, layer, R)
        for i in range(sizes.n if layer < sizes.L - 1 else 0):
            near = find_near(above[i], work.heights, work.apart[layer + 1, i])
            work.copies[layer + 1, i] = near
            if any_lane(near > 0):
                compare_copies(data, work, sizes, W, layer, i)


@njit(inline="always")
def _mix(data: Data, work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the first R rows of a sequence after attention: y = (x + sum_h V^T X^T s / sqrt(H))."""
    x, d = work.x[layer, i], sizes.d
    out = work.mixed[layer, i] if sizes.width > 0 else work.x[layer + 1, i]
    for h in range(sizes.H):
        logits, s = work.logits[layer, h, i], work.s[layer, h, i]
        matmul(logits[:R], work.U[layer, h, i, :R], x.T)
        for k in range(R):
            inverse, top, lowest = _attend(logits[k], s[k], data.bias[i, k])
            work.inverse[layer, h, i, k], work.top[layer, h, i, k] = inverse, top
            work.lowest[layer, h, i, k] = lowest
        mean = work.rows[:R]
        matmul(mean, s[:R], x)
        if sizes.values:
            mean = work.more_rows[:R]
            matmul(mean, work.rows[:R], data.V[layer, h])
        for k in range(R):
            for j in range(d):
                before = out[k, j] if h > 0 else sizes.kept * x[k, j]
                out[k, j] = before + sizes.share * mean[k, j]


@njit(inline="always")
def _attend(logits: LaneArray, s: LaneArray, bias: LaneArray) -> Any:
    """Write centred logits and attention of a row, return 1 / sum e^logit, top, lowest logit."""
    largest, lowest, place, total = fill(-np.inf), fill(np.inf), fill(0.0), fill(0.0)
    for t in range(len(s)):
        logit = logits[t] + bias[t]
        logits[t] = logit
        place = where(logit > largest, t, place)
        largest = maximum(logit, largest)
        lowest = minimum(where(logit > -np.inf, logit, np.inf), lowest)
    for t in range(len(s)):
        centred = logits[t] - largest
        e = exp(centred)
        logits[t], s[t] = centred, e
        total += e
    rescale(s, 1 / total)
    return 1 / total, place, lowest - largest


@subroutine
def _expand(data: Data, work: Workspace, layer: int, R: int) -> None:
    """Write hidden units relu(M1^T y) and the rows (y + M2^T relu(M1^T y)) / sqrt(2)."""
    out, y = attending(work.x[layer + 1], R), attending(work.mixed[layer], R)
    hidden = attending(work.hidden[layer], R)
    matmul(hidden, y, data.M1[layer, 0])
    rows, width = hidden.shape
    for k in range(rows):
        for j in range(width):
            hidden[k, j] = where(hidden[k, j] > 0, hidden[k, j], 0)
    matmul(out, hidden, data.M2[layer, 0])
    _add_residual(out, y, out)


@njit(inline="always")
def _add_residual(out: LaneArray, y: LaneArray, added: LaneArray) -> None:
    """Write (y + added) / sqrt(2)."""
    rows, d = out.shape
    for k in range(rows):
        for j in range(d):
            out[k, j] = (y[k, j] + added[k, j]) * np.sqrt(0.5)


@subroutine
def readout(data: Data, work: Workspace, sizes: Sizes) -> None:
    """Write the adjoints of the last rows and their exponents, and what the head reads."""
    T, d, k = sizes.T, sizes.d, sizes.k
    last, g, c, F = work.x[sizes.L], work.g, work.c, data.F[0, 0]
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
    for i in range(sizes.n):
        in_range = _share_exponent(work, sizes, layer, i, R)
        work.r_exponent[layer, i] = work.c[i]
        for h in range(sizes.H):
            r, g = work.r[layer, h, i, :R], work.g[i, :R]
            if sizes.values:
                g = work.rows[:R]
                matmul(g, work.g[i, :R], data.V[layer, h].T)
            for k in range(R):
                for j in range(sizes.d):
                    r[k, j] = sizes.share * g[k, j]
        if any_lane(~in_range):
            _pull_back(work, sizes, layer, i, R)
        if any_lane(in_range):
            _pull_back_in_range(work, sizes, layer, i, R)
        if any_lane(~in_range):
            _choose(work, sizes, layer, i, R, in_range)
    if layer > 0:
        for h in range(sizes.H):
            matmul(attending(work.back, R), attending(work.P[layer, h], R), W[layer, h])
            for i in range(sizes.n):
                for k in range(R):
                    share_k = exp(work.P_exponent[layer, h, i, k] - work.c[i, k])
                    add(work.g[i, k], work.back[i, k], share_k)
        forget_zeros(work.g.rows, work.c.flat)


@njit(inline="always")
def _share_exponent(work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> Any:
    """Give the adjoints of a sequence one exponent if then nothing underflows; return whether.

    It is decided for each lane alone: the bits of a result do not depend on the rest of a batch.
    """
    c, common, depth = work.c[i], fill(-np.inf), fill(0.0)
    for t in range(sizes.T):
        common = maximum(c[t], common)
    for h in range(sizes.H):
        for k in range(R):
            below = work.lowest[layer, h, i, k] + (c[k] - common)
            depth = minimum(where(c[k] > -np.inf, below, 0), depth)
    in_range = (work.copies[layer, i] == 0) & (depth >= -DEPTH / sizes.L)
    for t in range(sizes.T):
        if any_lane(in_range & (c[t] != common)):
            rescale(work.g[i, t], where(in_range, exp(c[t] - common), 1))
            c[t] = where(in_range, common, c[t])
    return in_range


@subroutine
def _choose(work: Workspace, sizes: Sizes, layer: int, i: int, R: int, in_range: Any) -> None:
    """Replace results of `_pull_back_in_range` by those of `_pull_back` in lanes out of range."""
    for k in range(sizes.T if layer > 0 else 0):
        work.c[i, k] = where(in_range, work.c[i, k], work.c_below[i, k])
        for j in range(sizes.d):
            work.g[i, k, j] = where(in_range, work.g[i, k, j], work.g_below[i, k, j])
    for h in range(sizes.H):
        for k in range(R):
            P, e = work.P[layer, h, i, k], work.P_exponent[layer, h, i]
            e[k] = where(in_range, e[k], work.other_exponent[h, k])
            for j in range(sizes.d):
                P[j] = where(in_range, P[j], work.other_P[h, k, j])


@njit(inline="always")
def _pull_back_in_range(work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write P and the adjoints below of a sequence whose numbers have one exponent."""
    x, g, common = work.x[layer, i], work.g[i], work.c[i, 0]
    if layer > 0:
        rescale(g.flat, sizes.kept)
    for h in range(sizes.H):
        s, r, q = work.s[layer, h, i, :R], work.r[layer, h, i, :R], work.q[h, :R]
        matmul(q, r, x.T)
        for k in range(R):
            _through_softmax(q[k], s[k], work.top[layer, h, i, k])
        matmul(work.P[layer, h, i, :R], q, x)
        work.P_exponent[layer, h, i, :R] = common
        if layer > 0:
            add_matmul(g, s.T, r)
            add_matmul(g, q.T, work.U[layer, h, i, :R])


@njit(inline="always")
def _through_softmax(q: LaneArray, s: LaneArray, top: Any) -> None:
    """Turn adjoints C of attention, in `q`, into q_t = s_t (C_t - sum_u s_u C_u) of logits.

    All C are taken less C_top: where attention saturates, their mean is small too.
    """
    C_top, mean = fill(0.0), fill(0.0)
    for t in range(len(s)):
        C_top = where(top == t, q[t], C_top)
    for t in range(len(s)):
        q[t] = q[t] - C_top
        mean += s[t] * q[t]
    for t in range(len(s)):
        q[t] = s[t] * (q[t] - mean)


@subroutine
def _pull_back(work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write P and the adjoints below of a sequence, each row with its own exponent."""
    c, g = work.c[i], work.g_below[i]
    for h in range(sizes.H):
        for k in range(R):
            _pull_back_row(work, layer, h, i, k)
    if layer == 0:
        return
    _begin_below(work, sizes, layer, i, R)
    for h in range(sizes.H):
        as_value, as_key = work.square[:R], work.q[h, :R]
        logits, inverse = work.logits[layer, h, i], work.inverse[layer, h, i]
        for k in range(R):
            for t in range(sizes.T):
                common = work.c_below[i, t]
                as_value[k, t] = inverse[k] * exp(logits[k, t] + c[k] - common)
                as_key[k, t] *= exp(work.q_exponent[h, k, t] - common)
        add_matmul(g, as_value.T, work.r[layer, h, i, :R])
        add_matmul(g, as_key.T, work.U[layer, h, i, :R])


@subroutine
def _pull_back_row(work: Workspace, layer: int, h: int, i: int, k: int) -> None:
    """Write q and P of a row, with their exponents.

    x_t - x_top = away e^size, and the score of t is above that of the top by rise e^size.
    """
    logits, inverse = work.logits[layer, h, i, k], work.inverse[layer, h, i, k]
    top, c, T, none = work.top[layer, h, i, k], work.c[i, k], len(work.size), -np.inf
    away, size, rise = work.away, work.size, work.square[0]
    q, exponent = work.q[h, k], work.q_exponent[h, k]
    gather_away(away, size, work, layer, i, top)
    matmul(rise, away, work.r[layer, h, i, k])
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
    matmul(work.other_P[h, k], away.T, rise)
    work.other_exponent[h, k] = largest


@subroutine
def _begin_below(work: Workspace, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the exponents of the adjoints of the rows, and what the residual connection adds."""
    for t in range(sizes.T):
        c = work.c[i, t]
        largest = c if sizes.residual else fill(-np.inf)
        for h in range(sizes.H):
            if t < R:
                largest = maximum(work.other_exponent[h, t], largest)
            for k in range(R):
                largest = maximum(work.logits[layer, h, i, k, t] + work.c[i, k], largest)
                largest = maximum(work.q_exponent[h, k, t], largest)
        work.c_below[i, t] = largest
        share = exp(c - largest) * sizes.kept if sizes.residual else fill(0.0)
        for j in range(sizes.d):
            work.g_below[i, t, j] = share * work.g[i, t, j]


@subroutine
def through_mlp(data: Data, work: Workspace, layer: int, R: int) -> None:
    """Turn adjoints of the rows after the MLP into those before it; write those of hidden units."""
    g, back = attending(work.g, R), attending(work.back, R)
    active, hidden = attending(work.active, R), attending(work.hidden[layer], R)
    matmul(active, g, data.M2[layer, 0].T)
    rows, width = active.shape
    for k in range(rows):
        for j in range(width):
            active[k, j] = where(hidden[k, j] > 0, active[k, j], 0)
    matmul(back, active, data.M1[layer, 0].T)
    _add_residual(g, g, back)
