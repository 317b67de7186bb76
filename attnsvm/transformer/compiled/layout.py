"""What the compiled loop works on: sizes, addresses of its input and of its work arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

FIRST, MEAN, EVERY = 0, 1, 2
"""Codes of the readouts."""


class Sizes(NamedTuple):
    """n, T, d, layers L, heads H, projections of the head k, columns of K and Q m (0: W).

    Whether there is a residual connection and whether values are matrices; codes of readout and
    loss; the target of the squared loss.
    """

    n: int
    T: int
    d: int
    L: int
    H: int
    k: int
    m: int
    residual: bool
    values: bool
    readout: int
    loss: int
    target: float


class Data(NamedTuple):
    """Addresses of the input of each block.

    Tokens X (n, T, d), admissible keys as bias (n, T, T) of 0 and -inf, values V (L, H, d, d),
    projections of the head F (d, k), labels Y and weights -Y / count (n,) or (n, T). `kinds` is
    the same for all blocks: alpha, beta and rho of each projection, (3, k).
    """

    X: int
    bias: int
    V: int
    F: int
    kinds: int
    Y: int
    weights: int


class Space(NamedTuple):
    """Addresses of the work arrays of a thread.

    For every layer its rows x (L + 1, n, T, d), whether those of the first one differ (n, T, T):
    exponents 0 or -inf; for every head (L, H, ...): logits less the largest and attention s
    (n, T, T), 1 / sum e^logit and the index of the top token (n, T), U = W x (n, T, d), exponents
    of x_t - x_top of each row (n, T, T). These differences themselves, of every layer but the first
    one (L - 1, H, n, T, T, d); of the first one x_top (H, n, T, d), and space for the differences
    of two rows (2, T, d).
    After every layer but the last one the differences of its rows, only those of p < q,
    `pairs` (L - 1, n, T, T, d) and their exponents (L - 1, n, T, T), and bounds (T,) on those that
    rounded rows give.
    For the layer at hand: adjoints g (n, T, d) with exponents c (n, T), twice; P and r
    (H, n, T, d), the exponents of P (H, n, T), W^T P (n, T, d); for a sequence q and its exponents
    (H, T, T), a matrix (T, T) and rows (T, d). W (L, H, d, d), gradients of W (d, d), of K and of Q
    (d, m), projections (k,). For a difference: `pair` and `exact`, d entries each and an exponent;
    the means of two rows likewise, and 2 T or d further entries.
    """

    x: int
    drawn: int
    logits: int
    s: int
    inverse: int
    top: int
    U: int
    x_top: int
    leave: int
    away: int
    size: int
    heights: int
    pairs: int
    apart: int
    g: int
    c: int
    g_below: int
    c_below: int
    P: int
    P_exponent: int
    back: int
    r: int
    q: int
    q_exponent: int
    square: int
    rows: int
    W: int
    dW: int
    dK: int
    dQ: int
    w: int
    pair: int
    exact: int
    means: int
    part: int


def space_entries(sizes: Sizes) -> Space:
    """Return the number of entries of each part of the space."""
    n, T, d, L, H, k, m = sizes[:7]
    rows, heads = n * T, L * H * n * T
    return Space(
        x=(L + 1) * rows * d,
        drawn=rows * T,
        logits=heads * T,
        s=heads * T,
        inverse=heads,
        top=heads,
        U=heads * d,
        x_top=H * rows * d,
        leave=2 * T * d,
        away=(L - 1) * H * rows * T * d,
        size=heads * T,
        heights=T,
        pairs=(L - 1) * rows * T * d,
        apart=(L - 1) * rows * T,
        g=rows * d,
        c=rows,
        g_below=rows * d,
        c_below=rows,
        P=H * rows * d,
        P_exponent=H * rows,
        back=rows * d,
        r=H * rows * d,
        q=H * T * T,
        q_exponent=H * T * T,
        square=T * T,
        rows=T * d,
        W=L * H * d * d,
        dW=max(d * d, T * d),
        dK=d * m,
        dQ=d * m,
        w=k,
        pair=d + 1,
        exact=d + 1,
        means=2 * (d + 1),
        part=max(2 * T, d),
    )


@njit(inline="always")  # type: ignore[untyped-decorator]
def queries(sizes: Sizes, layer: int) -> int:
    """Return how many rows of a sequence attend: in the last layer only those that are read."""
    return 1 if layer == sizes.L - 1 and sizes.readout == FIRST else sizes.T


@njit(inline="always")  # type: ignore[untyped-decorator]
def of_head(sizes: Sizes, layer: int, h: int, i: int, k: int) -> Any:
    """Return the number of row k of sequence i in one head, among the rows of all heads."""
    return ((layer * sizes.H + h) * sizes.n + i) * sizes.T + k
