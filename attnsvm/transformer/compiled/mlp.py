"""The MLP after a layer, compiled: forwards, its differences of two rows, and backwards."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.matmul import matmul
from attnsvm.transformer.compiled.layout import attending

NEAR_COPIES = -30.0
"""Rows whose log-difference is below this are on one side of every kink of a relu."""


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
    _add_residual(out, y, out)


@njit(inline="always")
def _add_residual(out: LaneArray, y: LaneArray, added: LaneArray) -> None:
    rows, d = out.shape
    for k in range(rows):
        for j in range(d):
            out[k, j] = (y[k, j] + added[k, j]) * np.sqrt(0.5)


@njit
def expand_difference(
    exact: LaneArray, a: LaneArray, b: LaneArray, M1: LaneArray, M2: LaneArray, rise: LaneArray,
    added: LaneArray,
) -> None:  # fmt: skip
    """Turn the difference of two rows before the MLP, with its exponent, into that after it.

    `a` and `b` are the hidden units of the rows; `rise` and `added` are work arrays of as many
    entries as hidden units and as the rows.
    """
    d = len(added)
    grown = exp(-maximum(exact[d], fill(NEAR_COPIES)))
    matmul(rise, M1.T, exact[:d])
    for j in range(len(a)):
        crossed = where(exact[d] > NEAR_COPIES, (a[j] - b[j]) * grown, where(a[j] > 0, rise[j], 0))
        neither, both = (a[j] <= 0) & (b[j] <= 0), (a[j] > 0) & (b[j] > 0)
        rise[j] = where(both, rise[j], where(neither, 0, crossed))
    matmul(added, M2.T, rise)
    for j in range(d):
        exact[j] = (exact[j] + added[j]) * np.sqrt(0.5)


@njit
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
    _add_residual(g, g, back)
