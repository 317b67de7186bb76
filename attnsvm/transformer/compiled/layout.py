"""What the compiled loop works on: sizes, its input and its work arrays, entries of eight lanes."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.simd.array import LaneArray, arrays

FIRST, MEAN, EVERY = 0, 1, 2
"""Codes of the readouts."""


class Sizes(NamedTuple):
    """n, T, d, layers L, heads H, projections of the head k, columns of K and Q m (0: W).

    `width` is that of the MLPs (0: none). Whether there is a residual connection and whether values
    are matrices; whether values, MLPs and head are trained, and at which rate; codes of readout
    and loss; the target of the squared loss.
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


@arrays
class Work(NamedTuple):
    """Work arrays of a thread.

    Of every layer: rows x; whether those of the first layer differ `drawn`, exponents 0 or -inf;
    for every head and row logits less the largest, attention s, 1 / sum e^logit, the index of the
    top token, U = W x, x_t - x_top `away` times e^size. After every layer but the last one
    the differences of its rows, of p < q, `pairs` times e^apart, and bounds `heights` on those
    that rounded rows give. With MLPs, the rows before them `mixed`, and their hidden units.

    Of the layer at hand: adjoints g e^c, twice; r; P e^P_exponent, W^T P `back`; for a sequence
    q e^q_exponent; adjoints of the hidden units `active`. W of K and Q, and gradients. What the
    head reads, and its slope w e^w_exponent in each projection. For a difference of two rows:
    `pair` and `exact`, the mean of a row, a sum, and further entries.
    """

    x: LaneArray
    drawn: LaneArray
    logits: LaneArray
    s: LaneArray
    inverse: LaneArray
    top: LaneArray
    U: LaneArray
    away: LaneArray
    size: LaneArray
    heights: LaneArray
    pairs: LaneArray
    apart: LaneArray
    mixed: LaneArray
    hidden: LaneArray
    g: LaneArray
    c: LaneArray
    g_below: LaneArray
    c_below: LaneArray
    P: LaneArray
    P_exponent: LaneArray
    back: LaneArray
    r: LaneArray
    q: LaneArray
    q_exponent: LaneArray
    square: LaneArray
    rows: LaneArray
    more_rows: LaneArray
    active: LaneArray
    W: LaneArray
    dW: LaneArray
    dK: LaneArray
    dQ: LaneArray
    dV: LaneArray
    dM1: LaneArray
    dM2: LaneArray
    dF: LaneArray
    read: LaneArray
    w: LaneArray
    w_exponent: LaneArray
    pair: LaneArray
    exact: LaneArray
    mean: LaneArray
    total: LaneArray
    part: LaneArray
    exponents: LaneArray


def work_arrays(sizes: Sizes) -> Work:
    """Return work arrays for networks of these sizes."""
    n, T, d, L, H, k, m, width = sizes[:8]
    samples, mlps = sizes.samples, L if width else 0
    shapes = {
        "x": (L + 1, n, T, d), "drawn": (n, T, T),
        **dict.fromkeys(("logits", "s", "size"), (L, H, n, T, T)),
        **dict.fromkeys(("inverse", "top"), (L, H, n, T)),
        "U": (L, H, n, T, d), "away": (L, H, n, T, T, d),
        "heights": (T,), "pairs": (L - 1, n, T, T, d), "apart": (L - 1, n, T, T),
        "mixed": (mlps, n, T, d), "hidden": (mlps, n, T, width),
        **dict.fromkeys(("g", "g_below", "back"), (n, T, d)),
        **dict.fromkeys(("c", "c_below"), (n, T)),
        "P": (H, n, T, d), "P_exponent": (H, n, T), "r": (H, n, T, d),
        **dict.fromkeys(("q", "q_exponent"), (H, T, T)), "square": (T, T),
        **dict.fromkeys(("rows", "more_rows"), (T, d)), "active": (n, T, width),
        "W": (L, H, d, d), "dW": (d, d), "dK": (d, m), "dQ": (d, m), "dV": (H, d, d),
        "dM1": (d, width), "dM2": (width, d), "dF": (d, k),
        "read": (*samples, d), "w": (*samples, k), "w_exponent": samples,
        # vectors with their exponent behind them
        **dict.fromkeys(("pair", "exact", "mean", "total"), (d + 1,)),
        **dict.fromkeys(("part", "exponents"), (max(T, d + 1, width),)),
    }  # fmt: skip
    return Work(**dict(zip(shapes, LaneArray.several(*shapes.values()), strict=True)))


@njit(inline="always")
def queries(sizes: Sizes, layer: int) -> int:
    """Return how many rows of a sequence attend: in the last layer only those that are read."""
    return 1 if layer == sizes.L - 1 and sizes.readout == FIRST else sizes.T


@njit(inline="always")
def attending(A: LaneArray, R: int) -> Any:
    """Return the first R rows of every sequence, of A (n, T, d), as a matrix; R is T or 1."""
    return A.rows[:: A.shape[1] // R]
