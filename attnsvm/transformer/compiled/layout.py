"""What the compiled loop works on: sizes, addresses of its input and of its work arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

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


class Data(NamedTuple):
    """Addresses of the input of each block.

    Tokens X (n, T, d), admissible keys as bias (n, T, T) of 0 and -inf, values V (L, H, d, d), MLPs
    M1 (L, d, width) and M2 (L, width, d), projections of the head F (d, k), labels Y and weights
    -Y / count (n,) or (n, T). `kinds` is the same for all blocks: alpha, beta and rho of each
    projection, (3, k). V, M1, M2 and F are updated where they are trained.
    """

    X: int
    bias: int
    V: int
    M1: int
    M2: int
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
    rounded rows give. With MLPs, the rows before them `mixed` (L, n, T, d), and their hidden units
    `hidden` (L, n, T, width).
    For the layer at hand: adjoints g (n, T, d) with exponents c (n, T), twice; P and r
    (H, n, T, d), the exponents of P (H, n, T), W^T P (n, T, d); for a sequence q and its exponents
    (H, T, T), a matrix (T, T) and rows (T, d); adjoints of the hidden units (n, T, width).
    W (L, H, d, d), gradients of W (d, d), of K and of Q (d, m), of V (H, d, d), of M1 and M2, of F.
    What the head reads (n, d) or (n, T, d), its gradient at each projection (n, k) or (n, T, k)
    with exponents. For a difference: `pair` and `exact`, d entries each and an exponent; the means
    of two rows likewise, and 2 T, d + 1 or width further entries.
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
    mixed: int
    hidden: int
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
    active: int
    W: int
    dW: int
    dK: int
    dQ: int
    dV: int
    dM1: int
    dM2: int
    dF: int
    read: int
    w: int
    w_exponent: int
    pair: int
    exact: int
    means: int
    part: int


def space_entries(sizes: Sizes) -> Space:
    """Return the number of entries of each part of the space."""
    n, T, d, L, H, k, m, width = sizes[:8]
    rows, heads = n * T, L * H * n * T
    samples = rows if sizes.readout == EVERY else n
    mlps = 1 if width else 0
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
        mixed=mlps * L * rows * d,
        hidden=L * rows * width,
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
        active=rows * width,
        W=L * H * d * d,
        dW=max(d * d, T * d),
        dK=d * m,
        dQ=d * m,
        dV=H * d * d,
        dM1=d * width,
        dM2=width * d,
        dF=d * k,
        read=samples * d,
        w=samples * k,
        w_exponent=samples,
        pair=d + 1,
        exact=d + 1,
        means=2 * (d + 1),
        part=max(2 * T, d + 1, width),
    )


@njit(inline="always")  # type: ignore[untyped-decorator]
def queries(sizes: Sizes, layer: int) -> int:
    """Return how many rows of a sequence attend: in the last layer only those that are read."""
    return 1 if layer == sizes.L - 1 and sizes.readout == FIRST else sizes.T


@njit(inline="always")  # type: ignore[untyped-decorator]
def of_head(sizes: Sizes, layer: int, h: int, i: int, k: int) -> Any:
    """Return the number of row k of sequence i in one head, among the rows of all heads."""
    return ((layer * sizes.H + h) * sizes.n + i) * sizes.T + k
