"""Eight instances at a time, one in each lane: what the compiled methods of all cones share."""

from collections import namedtuple
from typing import Any

import numpy as np
import torch

from attnsvm.linalg.jit import in_parts, subroutine
from attnsvm.linalg.simd import blocks, cholesky
from attnsvm.linalg.simd.arithmetic import fill, maximum, minimum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.linalg.simd.cholesky import PANEL, System
from attnsvm.linalg.simd.matmul import inner
from attnsvm.linalg.simd.matmul import matmul as multiply
from attnsvm.svm.interior_point.loop import PATIENCE, Best, Cone

KERNEL = {"nogil": True, "error_model": "numpy"}


RowsOfBlock: Any = arrays(namedtuple("RowsOfBlock", "D Z h inequality real", module=__name__))
"""Rows D (N, p), Z (n, q), h (N,), and where they are inequalities, and real: one or zero."""

BestOfBlock: Any = arrays(namedtuple("BestOfBlock", "W a upper lower", module=__name__))
"""The best W (p, q) and a (N,), and their bounds, (1,) each."""


OF_ALL = """
    N: margin f inverse_a
    n p: moved
    p: weight
    q: both
    R p: block
"""
"""Work arrays of all methods; weight, both and block are for `gram_block`."""


def workspace(module: str, layout: str) -> Any:
    """Return a type of named arrays with a function `new`, from lines `axes: names`, and `OF_ALL`.

    The axes are n samples of R rows, N = n R, spans of p and q dimensions, P = p + q,
    r = min(p, q), 1, the products pq and PP, and the columns of a `panel`. The type must be the
    global name `Work` of the module.
    """
    lines = [line.split(":") for line in f"{layout.strip()}{OF_ALL}".splitlines()]
    axes = {name: line[0].split() for line in lines for name in line[1].split()}
    work = blocks.workspace(module, axes)

    def new(n: int, R: int, p: int, q: int) -> Any:
        sizes = {"n": n, "R": R, "p": p, "q": q, "N": n * R, "P": p + q, "r": min(p, q), "1": 1}
        sizes |= {"pq": p * q, "PP": (p + q) ** 2, "panel": PANEL}
        shapes = [tuple(sizes[axis] for axis in of_one) for of_one in axes.values()]
        return work._make(LaneArray.several(*shapes))

    work.new = staticmethod(new)
    return work


MATRICES = ("W", "Y", "G")
"""Fields of points that are matrices in compiled code; the others are vectors."""

SHARED = 2**12
"""Blocks times N^2 of a part of the batch: with less, another core costs more than it saves."""


def best_of_blocks(cone: Cone[Any], x: Any, gap: float) -> Best:
    """Return the best points of all instances, by `solve` of the module `cone.compiled`."""
    rows, method = cone.rows, cone.compiled
    (B, N, p), (n, q) = rows.D.shape, rows.Z.shape[1:]
    columns = (v[..., 0].to(x.s) for v in (rows.h, rows.inequality, rows.real))
    in_blocks = RowsOfBlock._make(map(blocks_of, (rows.D, rows.Z, *columns)))
    bounds = (torch.full_like(x.s[:, 0], bound) for bound in (torch.inf, 0.0))
    best = BestOfBlock._make(map(blocks_of, (x.W, x.a[..., 0], *bounds)))
    fields = {name: getattr(x, name) for name in method.Iterate._fields}
    shaped = (v if name in MATRICES else v.flatten(1) for name, v in fields.items())
    point = method.Iterate._make(map(blocks_of, shaped))

    def solve(first: int, end: int) -> None:
        """Solve the blocks from `first` to `end`."""
        here = (
            type(arrays)._make(LaneArray(x.array[first:end]) for x in arrays)
            for arrays in (in_blocks, point, best)
        )
        step = method.Iterate._make(LaneArray.several(*(array.shape[1:] for array in point)))
        work = method.Work.new(n, N // n, p, q)
        system = LaneArray.several((N, N), (N, N), (N,), (N,), (N,), (N, PANEL))
        method.solve(*here, step, work, gap, *cone.options(), System(*system))

    count = len(best.upper)
    in_parts(solve, count, count * N**2 // SHARED)
    W, a, upper, lower = (of_blocks(array, B) for array in best)
    return Best(W, a[..., None], upper[..., None], lower[..., None])


@subroutine
def block_of(rows: Any, best: Any, g: int) -> Any:
    """Return the rows and the best points of a block."""
    return (
        RowsOfBlock(rows.D[g], rows.Z[g], rows.h[g], rows.inequality[g], rows.real[g]),
        BestOfBlock(best.W[g], best.a[g], best.upper[g], best.lower[g]),
    )


@subroutine
def judged(
    rows: Any, W: LaneArray, x: Any, margin: LaneArray, sizes: Any, best: Any, left: Any, gap: float
) -> Any:
    """Keep W and a of x where they narrow the bracket; return how many steps each lane has left.

    `sizes` are norm(W) and dual_norm(M(a)). The rules are those of `loop.follow`.
    """
    (size, dual), least, s, a = sizes, fill(np.inf), x.s, x.a
    missed = top = value = sound = fill(0.0)
    for k in range(len(s)):
        inequality, h = rows.inequality[k] > 0.5, rows.h[k]
        least = minimum(where(inequality & (h > 0), margin[k] / h, np.inf), least)
        short = where(inequality, where(h > 0, 0, h - margin[k]), abs(margin[k] - h))
        missed = maximum(short, missed)
        top = maximum(abs(h), top)
        value += h * a[k]
        sound += abs(s[k]) + abs(a[k]) + abs(margin[k])
    met = (least > 0) & (missed <= gap * top)
    upper = where(met, size / where(least == np.inf, 1, least), np.inf)
    lower = where(dual > 0, value / dual, 0)
    running = (left > 0) & (sound < np.inf)
    below, above = running & (upper < best.upper[0]), running & (lower > best.lower[0])
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            best.W[i, j] = where(below, W[i, j], best.W[i, j])
    for k in range(len(a)):
        best.a[k] = where(above, a[k], best.a[k])
    best.upper[0] = where(below, upper, best.upper[0])
    best.lower[0] = where(above, lower, best.lower[0])
    left = where(below | above, PATIENCE, left - 1)
    return where(running & ~(best.upper[0] <= (1 + gap) * best.lower[0]), left, 0)


@subroutine
def add_slacks(rows: Any, x: Any, inverse_a: LaneArray, K: LaneArray) -> None:
    """Add diag(s / a) to K, one where padding, whose rows of K are zero; write 1 / a."""
    for k in range(len(x.s)):
        inverse_a[k] = where(rows.inequality[k] > 0.5, 1 / x.a[k], 0)
        K[k, k] += x.s[k] * inverse_a[k] + (1 - rows.real[k])


@subroutine
def find_slacks(rows: Any, x: Any, dx: Any, z: Any, system: Any) -> None:
    """Write the changes of a and s that lead to the products s a + cs.

    f holds the margins of the change of W that does not depend on that of a; it is overwritten.
    """
    for k in range(len(x.s)):
        missing = rows.h[k] - z.margin[k] + x.s[k] * rows.inequality[k]
        z.f[k] = missing + z.cs[k] * z.inverse_a[k] - z.f[k]
    cholesky.solve(system, z.f, dx.a, 1)
    for k in range(len(x.s)):
        dx.s[k] = (z.cs[k] - x.s[k] * dx.a[k]) * z.inverse_a[k]


@subroutine
def inverse_lengths(x: Any, dx: Any, z: Any, least: float) -> Any:
    """Return 1 / the largest steps with s >= 0 and a >= 0 on inequalities, at least `least`."""
    primal = dual = fill(least)
    for k in range(len(x.s)):
        primal = maximum(-dx.s[k] / x.s[k], primal)
        dual = maximum(-dx.a[k] * z.inverse_a[k], dual)
    return primal, dual


@subroutine
def weigh(theta: LaneArray, beta: LaneArray, X: LaneArray, weighed: LaneArray) -> None:
    """Write theta_ij X_ij + beta_ij X_ji, the latter for i, j < r."""
    r = len(beta)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            entry = theta[i, j] * X[i, j]
            if i < r and j < r:
                entry += beta[i, j] * X[j, i]
            weighed[i, j] = entry


@subroutine
def combine_block(D: LaneArray, Z: LaneArray, a: LaneArray, M: LaneArray, sums: LaneArray) -> None:
    """Write M(a) = sum_k a_k d_k z_k^T, (p, q),; sums (n, p)."""
    R = len(D) // len(Z)
    for i in range(len(Z)):
        multiply(sums[i], D[i * R : i * R + R].T, a[i * R : i * R + R])
    multiply(M, sums.T, Z)


@subroutine
def margins_block(
    D: LaneArray, Z: LaneArray, W: LaneArray, margin: LaneArray, moved: LaneArray
) -> None:
    """Write d_k^T W z_k, (N,),; moved (n, p)."""
    R = len(D) // len(Z)
    multiply(moved, Z, W.T)
    for i in range(len(Z)):
        for k in range(i * R, i * R + R):
            margin[k] = inner(D[k], moved[i])


@subroutine
def gram_block(
    D: LaneArray, Z: LaneArray, theta: LaneArray, beta: LaneArray, crossed: bool, K: LaneArray,
    work: Any,
) -> None:  # fmt: skip
    """Write the lower triangle of `Rows.gram`; work (p,), (q,), (R, p), (r, r).

    For samples i, j the sums over the entries are d_k^T E d_l, with the matrix E of entries
    E_ef = beta_ef z_je z_if, and sum_f theta_ef z_if z_jf more where e = f.
    """
    weight, both, block, E = work
    (n, q), p, r = Z.shape, D.shape[1], len(E)
    R = len(D) // n
    for i in range(n):
        D_i = D[i * R : i * R + R]
        for j in range(i + 1):
            D_j = D[j * R : j * R + R]
            for f in range(q):
                both[f] = Z[i, f] * Z[j, f]
            multiply(weight, theta, both)
            if crossed:
                for e in range(r):
                    for f in range(r):
                        E[e, f] = beta[e, f] * Z[j, e] * Z[i, f]
                multiply(block[:, :r], D_j[:, :r], E.T)
            for k in range(R):
                for e in range(p):
                    entry = weight[e] * D_j[k, e]
                    if crossed and e < r:
                        entry += block[k, e]
                    block[k, e] = entry
            multiply(K[i * R : i * R + R, j * R : j * R + R], D_i, block.T)
