"""The forward pass of all layers, compiled: eight instances a vector."""

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import matmul
from attnsvm.transformer.compiled.copies import compare_rows, gather_away
from attnsvm.transformer.compiled.layout import Data, Sizes, attending, queries


@njit
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
            for j in range(d):
                out[k, j] += share * mean[k, j]
    if sizes.residual:
        for k in range(R):
            for j in range(d):
                out[k, j] *= np.sqrt(0.5)


@njit
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
        for t in range(T):
            s[k, t] *= inverse[k]


@njit
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


@njit
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
