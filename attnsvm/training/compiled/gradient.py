"""The gradient of the compiled training loop, eight instances in the lanes of every entry.

The attention of sample i depends on W only through U_i = W z_i, and the gradient in W is
sum_i P_i z_i^T with P_i = X_i^T q_i (THEORY, sections 2 and 7). This file computes the P_i from the
U_i; `steps` the next U_i from the P_i.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.head import feature
from attnsvm.linalg.jit import inlined
from attnsvm.linalg.simd import blocks
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, fma, maximum, minimum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.blocks import Workspace, workspace
from attnsvm.linalg.simd.matmul import matmul_inline, rescale
from attnsvm.loss import slope
from attnsvm.optimizer.base import Rule

TILE = 384
"""Token entries that are processed together: 384 of 64 bytes, 24 KB, fit the L1 cache."""

FAINT = 1e-100
"""Largest sum of e^(logit - second) (C - C_top) that may need a scale."""


class Update(NamedTuple):
    """The update: the loss, log(2 ridge), exact gradient or not, and the rule of steps.

    The loss has its code and, if it is the squared one, its target. Weights may decay. R may be
    triangular. `classes`: the tokens of each sample are the unit vectors.
    """

    loss: int
    target: float
    log_ridge: float
    exact: bool
    decays: bool
    triangular: bool
    classes: bool
    rule: Rule


@arrays
class Instance(NamedTuple):
    """What is given: of all blocks, with an axis more in front, or of one block.

    Tokens X (n, T, r), features of the tokens F (n, T, k), alpha, beta and rho of each feature
    `kinds` (3, k), the queries' triangle R (c, n), bias (n, T), labels Y and weights -Y / n (n,),
    0 where the query is 0.
    """

    X: LaneArray
    F: LaneArray
    kinds: LaneArray
    R: LaneArray
    bias: LaneArray
    Y: LaneArray
    weights: LaneArray


SHAPES = {
    "nT": "logits E",
    "T": "C",
    "n": "top second big inverse margin size",
    "nk": "w best",
    "nr": "U P",
    "nm": "A B",
    "cr": "W",
    "rm": "G",
    "ch": "H",
    "g": "copy",
    "ss": "right",
    "s": "sigma",
}
"""The work arrays by their axes.

Axes are n, T; r and c of X and R in `Instance`; k features; m columns of K and Q in their span, 0:
W is trained; h is m, or r for W; a gradient has at most g entries and s singular values.

E becomes q, and C is E (C - C_top); A and B are K^T P and Q^T z, W is Q K^T, G and H the gradients
in K, and in V or Q; `copy` is one of a gradient, with its right singular vectors and singular
values `sigma`.
"""

Work = workspace(__name__, SHAPES)


def work_arrays(n: int, T: int, r: int, c: int, k: int, m: int) -> Any:
    """Return the work arrays of a thread."""
    h, largest = m or r, max(r, c)
    further = {"h": h, "g": largest * h, "s": min(largest, h)}
    lengths = {"n": n, "T": T, "r": r, "c": c, "k": k, "m": m, **further}
    return blocks.work_arrays(Work, SHAPES, lengths)


@njit(inline="always")
def of_block(data: Instance, b: int) -> Instance:
    """Return what is given of block b."""
    return Instance(
        data.X[b], data.F[b], data.kinds[b], data.R[b], data.bias[b], data.Y[b], data.weights[b]
    )


@inlined
def _write_logits(data: Instance, work: Workspace, classes: bool, first: int, last: int) -> None:
    """Write X_i U_i, where tokens are admissible, else -inf."""
    for i in range(first, last):
        logits = work.logits[i]
        if classes:
            logits[:] = work.U[i]
        else:
            matmul_inline(logits, data.X[i], work.U[i])
        for t in range(len(logits)):
            logits[t] += data.bias[i, t]


@inlined
def _attend(data: Instance, work: Workspace, exact: bool, first: int, last: int) -> None:
    """Write E, `second`, `top`, `big`, `inverse` and size = log big, of the samples.

    E = e^(logit - second), but 0 at the largest logit `top` if that is larger than the `second`.
    Exact gradient: big = e^(second - top), and the attention of the top is `inverse`,
    1 / (1 + big sum E). If there is no second logit, E and big are 0 and size is -inf. With several
    largest logits, or the published gradient, E = e^(logit - largest), big is 1, and `inverse` is
    1 / sum E; the `top` of the published gradient is infinite: no token is treated apart.
    """
    T = data.X.shape[1]
    for i in range(first, last):
        top, second = fill(-np.inf), fill(-np.inf)
        for t in range(T):
            logit = work.logits[i, t]
            second = maximum(minimum(logit, top), second)
            top = maximum(logit, top)
        if not exact:
            second = top
        work.top[i] = top if exact else fill(np.inf)
        work.second[i], work.size[i] = second, second - top
    for i in range(first, last):
        second, big, total = work.second[i], fill(1.0), fill(0.0)
        for t in range(T):
            above = work.logits[i, t] - second
            e = exp(-abs(above))
            big = where(above > 0, e, big)
            e = where(above > 0, 0, e)
            total += e
            work.E[i, t] = e
        work.big[i], work.inverse[i] = big, 1 / (big * total + where(work.size[i] < 0, 1, 0))


@inlined
def _predict(data: Instance, work: Workspace, update: Update, first: int, last: int) -> None:
    """Write margins and w, the slopes of the loss in the features of the attended mean.

    The exponents of the slopes are added to `size`. `best` are the features of the top token, or 0.
    """
    _, T, k = data.F.shape
    for i in range(first, last):
        top, big, value = work.top[i], work.big[i], fill(0.0)
        for j in range(k):
            rest, f_top = fill(0.0), fill(0.0)
            for t in range(T):
                f = data.F[i, t, j]
                rest += work.E[i, t] * f
                f_top = where(work.logits[i, t] >= top, f, f_top)
            mean = (big * rest + where(work.size[i] < 0, f_top, 0)) * work.inverse[i]
            h, dh = feature(mean, data.kinds, j)
            value += h
            work.w[i, j], work.best[i, j] = dh, f_top
        work.margin[i] = data.Y[i] * value
    for i in range(first, last):
        factor, exponent = slope(work.margin[i], update.loss, update.target)
        if not update.exact:
            factor, exponent = factor * exp(exponent), fill(0.0)
        factor *= data.weights[i]
        rescale(work.w[i], factor)
        work.size[i] += exponent


@njit(inline="always")
def score(w: LaneArray, F: LaneArray) -> Any:
    """Return <w, F>, with the same bits for equal F."""
    c = fill(0.0)
    for j in range(len(w)):
        c = fma(w[j], F[j], c)
    return c


@inlined
def _pull_back(data: Instance, work: Workspace, update: Update, first: int, last: int) -> None:
    """Write q_i e^-size; `size` is -inf for a sample that does not contribute to the gradient.

    q_t = s_t (C_t - sum_u s_u C_u) for the scores C = <w, F>, all less C_top; the entry of q at the
    top is minus the sum of the other entries.
    """
    T = data.X.shape[1]
    for i in range(first, last):
        E, C, w = work.E[i], work.C, work.w[i]
        c_top, total = score(w, work.best[i]), fill(0.0)
        for t in range(T):
            c = E[t] * (score(w, data.F[i, t]) - c_top)
            total += c
            C[t] = c
        if update.exact and any_lane(abs(total) < FAINT):
            total = _weigh_untied(data, work, i, c_top, total)
        inverse = work.inverse[i]
        mean, rest = total * work.big[i] * inverse, fill(0.0)
        for t in range(T):
            q = where(work.logits[i, t] > work.second[i], 0, inverse * (C[t] - mean * E[t]))
            E[t] = q
            rest -= q
        for t in range(T):
            E[t] = where(work.logits[i, t] > work.second[i], rest, E[t])


@inlined
def _weigh_untied(data: Instance, work: Workspace, i: int, c_top: Any, total: Any) -> Any:
    """Set `size` by the tokens with C != c_top: only they contribute to the gradient.

    If the second largest logit is not one of theirs (it may be a copy of the top token), their E
    may underflow. Then write e^(logit - their largest logit) (C - c_top) and return the sum.
    """
    logits, w, second, largest = work.logits[i], work.w[i], work.second[i], fill(-np.inf)
    for t in range(len(logits)):
        tied = score(w, data.F[i, t]) == c_top
        largest = where(tied, largest, maximum(logits[t], largest))
    work.size[i] = where(largest > -np.inf, work.size[i] + (largest - second), -np.inf)
    if not any_lane((second > largest) & (largest > -np.inf)):
        return total
    total = fill(0.0)
    for t in range(len(logits)):
        c = exp(logits[t] - largest) * (score(w, data.F[i, t]) - c_top)
        total += c
        work.C[t] = c
    return total


@inlined
def gradient(data: Instance, work: Workspace, update: Update, weights: Any, recorded: bool) -> Any:
    """Write P_i e^-scale and return the scale, the largest `size` of a contributing sample.

    It is -inf, and the P_i are zero, if there is none. `weights` are those of the samples, or
    empty. A sample without weight has no logits and no margin unless they are `recorded`.

    A few samples are processed together: as many as keep their tokens in the cache for both
    products. Within a sample each stage (logits, exponentials, slope, ...) depends on the one
    before. Each stage is a loop over these samples, so the processor has independent work.
    """
    n, T, r = data.X.shape
    some = len(weights) > 0
    few = 1 if some else max(1, TILE // (T * r))
    for first in range(0, n, few):
        last = min(first + few, n)
        if some and weights[first] == 0 and not recorded:
            continue
        _write_logits(data, work, update.classes, first, last)
        _attend(data, work, update.exact, first, last)
        _predict(data, work, update, first, last)
        _pull_back(data, work, update, first, last)
        for i in range(first, last):
            if update.classes:
                work.P[i] = work.E[i]
            else:
                matmul_inline(work.P[i], data.X[i].T, work.E[i])
    scale = fill(-np.inf)
    for i in range(n):
        if some and weights[i] == 0:
            work.size[i] = -np.inf
        scale = maximum(work.size[i], scale)
    shift = where(scale > -np.inf, scale, 0)
    for i in range(n):
        weight = weights[i] if some else 1.0
        share = weight * exp(work.size[i] - shift)
        for j in range(r):
            work.P[i, j] = share * work.P[i, j] if weight > 0 else fill(0.0)
    return scale
