"""What the compiled loop works on: sizes, arrays whose entries are eight lanes, vectors v e^c."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd import blocks
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, logarithm, maximum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.blocks import workspace
from attnsvm.linalg.simd.matmul import rescale

FIRST, MEAN, EVERY = 0, 1, 2
"""Codes of the readouts."""


VALUES, MLP, HEAD = 2, 3, 5
"""Places of values, M1 and the head in `Sizes.rates`."""


class Sizes(NamedTuple):
    """n, T, d, layers L, heads H, projections of the head k, columns of K and Q m (0: W).

    `width` is that of the MLPs (0: none). Whether there is a residual connection and whether values
    are matrices; a layer gives `kept` times x and `share` times the sum of its heads; steps of W or
    K, Q, V, M1, M2 and F as shares of eta (0: not trained); codes of readout and loss; target of
    the squared loss; whether the adjoints of the last rows are given.
    """

    n: int
    T: int
    d: int
    L: int
    H: int
    k: int
    m: int
    width: int
    residual: bool
    values: bool
    kept: float
    share: float
    rates: tuple[float, ...]
    readout: int
    loss: int
    target: float
    with_adjoints: bool


@arrays
class Data(NamedTuple):
    """What is given: of all blocks, with an axis more in front, or of one block.

    Tokens X (n, T, d), admissible keys as bias (n, T, T) of 0 and -inf, values V (L, H, d, d), MLPs
    M1 (L, 1, d, width) and M2 (L, 1, width, d), which are empty where there are none, projections
    of the head F (1, 1, d, k), alpha, beta and rho of each projection `kinds` (3, k), labels Y and
    weights -Y / count (n, 1) or (n, T). V, M1, M2 and F are updated where they are trained.
    """

    X: LaneArray
    bias: LaneArray
    V: LaneArray
    M1: LaneArray
    M2: LaneArray
    F: LaneArray
    kinds: LaneArray
    Y: LaneArray
    weights: LaneArray


SHAPES = {
    "rnTd": "x",
    "LHnTT": "logits s",
    "LHnT": "inverse top lowest P_exponent",
    "LHnTd": "U P r",
    "LnTTd": "pairs",
    "LnTT": "apart",
    "Ln": "copies",
    "T": "heights size other_size",
    "Td": "away other_away rows more_rows",
    "MnTd": "mixed",
    "MnTw": "hidden",
    "LnT": "r_exponent",
    "LHdd": "W dW dV",
    "LHdm": "dK dQ",
    "M1dw": "dM1",
    "M1wd": "dM2",
    "11dk": "dF",
    "nTd": "g g_below back",
    "nT": "c c_below",
    "nTw": "active",
    "HTT": "q q_exponent",
    "TT": "square",
    "HTd": "other_P",
    "HT": "other_exponent",
    "npd": "read",
    "npk": "w",
    "np": "w_exponent",
    "v": "pair exact mean total",
    "l": "part exponents",
}
"""The work arrays by their axes.

Axes are the letters of `Sizes` (w: width); r the L + 1 inputs and outputs of layers, M the layers
with an MLP, p the rows of a sequence that the head reads, v a vector and its exponent, l the
longest of the vectors.

Of every layer: its input and output x; logits less the largest, attention s, 1 / sum e^logit, the
index of the top token, the lowest logit, and U = W x, of every head and row; `heights`, bounds on
differences that rounded rows give; `pairs`, differences of rows p < q that are near each other,
times e^apart, and whether a sequence has some, `copies`; x_t - x_top = away e^size of a row; rows
before the MLP, `mixed`, and its hidden units; backwards r, P e^P_exponent and gradients; W of K and
Q. Of the layer at hand: adjoints g e^c, twice, W^T P at `back`, adjoints of the `active` hidden
units; of a sequence q e^q_exponent. What the head has `read`, and its slope w e^w_exponent in each
projection. Of a difference of two rows: vectors with their exponent behind them, further entries.
"""

Work = workspace(__name__, SHAPES)


def work_arrays(sizes: Sizes) -> Any:
    """Return the work arrays of a thread."""
    d, L, width = sizes.d, sizes.L, sizes.width
    lengths = {**sizes._asdict(), "1": 1, "w": width, "r": L + 1, "M": L if width else 0}
    lengths |= {"p": sizes.T if sizes.readout == EVERY else 1}
    lengths |= {"v": d + 1, "l": max(sizes.T, d + 1, width)}
    return blocks.work_arrays(Work, SHAPES, lengths)


@njit(inline="always")
def queries(sizes: Sizes, layer: int) -> int:
    """Return how many rows of a sequence attend: in the last layer only those that are read."""
    return 1 if layer == sizes.L - 1 and sizes.readout == FIRST else sizes.T


@njit(inline="always")
def attending(A: LaneArray, R: int) -> Any:
    """Return the first R rows of every sequence, of A (n, T, d), as a matrix; R is T or 1."""
    return A.rows[:: A.shape[1] // R]


# --- vectors v e^c; a vector with its exponent behind it has d + 1 entries ------------------------


@subroutine
def largest_entry(v: LaneArray) -> Any:
    """Return max_j |v_j|."""
    size = fill(0.0)
    for j in range(len(v)):
        size = maximum(abs(v[j]), size)
    return size


@subroutine
def log_size(v: LaneArray, exponent: Any) -> Any:
    """Return log max_j |v_j| e^exponent; -inf for a vector of zeros."""
    size = largest_entry(v)
    return where(size > 0, logarithm(size) + exponent, -np.inf)


@subroutine
def normalize(v: LaneArray) -> None:
    """Divide a vector by its largest magnitude and add the logarithm to the exponent behind it."""
    d = len(v) - 1
    size = largest_entry(v[:d])
    some = size > 0
    size = where(some, size, 1)
    rescale(v[:d], 1 / size)
    v[d] = where(some, v[d] + logarithm(size), -np.inf)


@njit(inline="always")
def is_zero(v: LaneArray) -> Any:
    """Return whether all entries are 0, in each lane."""
    zero = fill(0.0) == 0
    for j in range(len(v)):
        zero = zero & (v[j] == 0)
        if not any_lane(zero):
            break
    return zero


@subroutine
def forget_zeros(vectors: LaneArray, exponents: LaneArray) -> None:
    """Set the exponent of every vector of zeros to -inf: it adds nothing to a sum."""
    for k in range(len(vectors)):
        exponents[k] = where(is_zero(vectors[k]), -np.inf, exponents[k])


@subroutine
def add_scaled(total: LaneArray, v: LaneArray, exponent: Any, sign: float) -> None:
    """Add sign times v e^exponent to `total`, which has its exponent behind it."""
    d = len(total) - 1
    known = total[d]
    common = maximum(known, exponent)
    kept, share = exp(known - common), sign * exp(exponent - common)
    for j in range(d):
        total[j] = share * v[j] + kept * total[j]
    total[d] = common
