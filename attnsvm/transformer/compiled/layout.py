"""What the compiled loop works on: sizes, arrays whose entries are eight lanes, vectors v e^c."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, logarithm, maximum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.blocks import Shapes, workspace
from attnsvm.linalg.simd.matmul import rescale

FIRST, MEAN, EVERY = 0, 1, 2
"""Codes of the readouts."""


class Sizes(NamedTuple):
    """n, T, d, layers L, heads H, projections of the head k, columns of K and Q m (0: W).

    `width` is that of the MLPs (0: none). Whether there is a residual connection and whether values
    are matrices; whether values, MLPs and head are trained, and at which rate; codes of readout
    and loss; the target of the squared loss; whether the adjoints of the last rows are given.
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
    train_values: bool
    train_mlp: bool
    train_head: bool
    rate: float
    readout: int
    loss: int
    target: float
    with_adjoints: bool

    @property
    def samples(self) -> tuple[int, int]:
        """Sequences, and rows of each that the head reads, or one mean."""
        return self.n, self.T if self.readout == EVERY else 1


@arrays
class Data(NamedTuple):
    """What is given: of all blocks, with an axis more in front but for `kinds`, or of one block.

    Tokens X (n, T, d), admissible keys as bias (n, T, T) of 0 and -inf, values V (L, H, d, d), MLPs
    M1 (L, d, width) and M2 (L, width, d), which are empty where there are none, projections of the
    head F (d, k), alpha, beta and rho of each projection `kinds` (3, k), labels Y and weights
    -Y / count (n, 1) or (n, T). V, M1, M2 and F are updated where they are trained.
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


def shapes_of_work(sizes: Sizes) -> Shapes:
    """Return the shape of each work array, for networks of these sizes."""
    n, T, d, L, H, k, m, width = sizes[:8]
    samples, mlps = sizes.samples, L if width else 0
    return {
        # of every layer: rows; logits less the largest, attention, 1 / sum e^logit, the index of
        # the top token, the lowest logit, and U = W x, of every head and row
        "x": (L + 1, n, T, d),
        **dict.fromkeys(("logits", "s"), (L, H, n, T, T)),
        **dict.fromkeys(("inverse", "top", "lowest"), (L, H, n, T)),
        "U": (L, H, n, T, d),
        # bounds on differences that rounded rows give; differences of a layer's rows p < q that are
        # near each other, times e^apart, and whether a sequence has some; x_t - x_top = away e^size
        # of a row; rows before the MLP and its hidden units
        "heights": (T,),
        "pairs": (L, n, T, T, d),
        "apart": (L, n, T, T),
        "copies": (L, n),
        **dict.fromkeys(("away", "other_away"), (T, d)),
        **dict.fromkeys(("size", "other_size"), (T,)),
        "mixed": (mlps, n, T, d),
        "hidden": (mlps, n, T, width),
        # backwards, of every layer: r, P e^P_exponent, gradients; W of K and Q, and the gradients
        # of one K and Q
        **dict.fromkeys(("P", "r"), (L, H, n, T, d)),
        "P_exponent": (L, H, n, T),
        "r_exponent": (L, n, T),
        **dict.fromkeys(("W", "dW", "dV"), (L, H, d, d)),
        **dict.fromkeys(("dK", "dQ"), (d, m)),
        "dM1": (mlps, d, width),
        "dM2": (mlps, width, d),
        "dF": (d, k),
        # of the layer at hand: adjoints g e^c, twice, W^T P, adjoints of the hidden units; of a
        # sequence q e^q_exponent
        **dict.fromkeys(("g", "g_below", "back"), (n, T, d)),
        **dict.fromkeys(("c", "c_below"), (n, T)),
        "active": (n, T, width),
        **dict.fromkeys(("q", "q_exponent"), (H, T, T)),
        "square": (T, T),
        "other_P": (H, T, d),
        "other_exponent": (H, T),
        **dict.fromkeys(("rows", "more_rows"), (T, d)),
        # what the head reads, and its slope w e^w_exponent in each projection
        "read": (*samples, d),
        "w": (*samples, k),
        "w_exponent": samples,
        # of a difference of two rows, vectors with their exponent behind them, and further entries
        **dict.fromkeys(("pair", "exact", "mean", "total"), (d + 1,)),
        **dict.fromkeys(("part", "exponents"), (max(T, d + 1, width),)),
    }


_ones: Any = [1] * len(Sizes._fields)
Work = workspace(__name__, shapes_of_work(Sizes(*_ones)))


def work_arrays(sizes: Sizes) -> Any:
    """Return the work arrays of a thread."""
    return Work(*LaneArray.several(*shapes_of_work(sizes).values()))


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
