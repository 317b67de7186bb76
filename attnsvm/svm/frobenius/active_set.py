r"""Lawson and Hanson's active-set method on the Gram matrix, compiled, for whole batches.

The dual of least distance,  max_a h^T a - a^T K a / 2,  a_k >= 0 on inequalities,  with
K_kl = <g_k, g_l> = (d_k^T d_l)(z_k^T z_l), is solved as the non-negative least-squares problem of
the package by its normal equations (K + h h^T) u = h: fast, and accurate enough where the
conditioning is ordinary. An instance whose bracket is not tight is solved again from its rows,
which is slower.
"""

import math

import numpy as np
from numpy.typing import NDArray

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.svm.tolerances import MAX_GRAM_NORM, TIGHT

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

DEPENDENT_PIVOT = 1e-11  # relative pivot below which a row counts as dependent on the support
REORDERED = {"reassoc", "contract"}  # sums may be reordered, so that they use vector instructions


@compiled("solver of the Frobenius norm", "4 s", fastmath=REORDERED, nogil=True)
def solve_each(
    of_d: Array, of_z: Array, h: Array, kind: NDArray[np.int8]
) -> tuple[Array, NDArray[np.bool_]]:
    """Return multipliers (B, N) and whether they are optimal (B,).

    `of_d` (B, N, N) and `of_z` (B, n, n) are the Gram matrices of the d_k and of the queries, each
    of which N / n rows in turn share. h and kind, (B, N), are those of `SvmProblem`.
    """
    B, N = h.shape
    a = np.zeros((B, N))
    optimal = np.zeros(B, np.bool_)
    K, A, L, V = np.empty((N, N)), np.empty((N, N)), np.empty((N, N)), np.empty((N, N))
    y, u, s, w = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    unit, unit_h = np.empty(N), np.empty(N)
    support, old, barred = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.bool_)
    for b in range(B):
        size = scaled(of_d[b], of_z[b], h[b], K, A, unit, unit_h, w)
        barred[:] = kind[b] != 1
        m = active_set(A, unit_h, kind[b], L, V, y, u, s, w, support, old, barred)
        if m > 0:
            optimal[b] = solve_on_support(K, unit_h, kind[b], L, y, u, s, w, support, m, a[b])
            for k in range(N):
                a[b, k] *= size * unit[k]
    return a, optimal


@subroutine(fastmath=REORDERED)
def scaled(
    of_d: Array, of_z: Array, h: Array, K: Array, A: Array, unit: Array, unit_h: Array, row: Array
) -> float:
    """Write K = (D D^T) o (Z Z^T), h, and A = K + h h^T, of rows of norm about one.

    Rows are multiplied by the powers of two `unit`. Returned is the one that is taken out of h,
    whose largest entry becomes about one. `row` is a work array.
    """
    N, n, largest = len(h), len(of_z), 0.0
    R = N // n
    for k in range(N):
        unit[k] = 1 / power_of_two(of_d[k, k] * of_z[k // R, k // R], 2)
        unit_h[k] = h[k] * unit[k]
        largest = max(largest, abs(unit_h[k]))
    size = power_of_two(largest, 1)
    for k in range(N):
        unit_h[k] /= size
    for i in range(n):
        for j in range(N):
            row[j] = of_z[i, j // R] * unit[j]
        for k in range(i * R, (i + 1) * R):
            for j in range(N):
                K[k, j] = of_d[k, j] * row[j] * unit[k]
                A[k, j] = K[k, j] + unit_h[k] * unit_h[j]
    return size


@subroutine
def power_of_two(x: float, root: int) -> float:
    """Return a power of two near the square root of x > 0, or with root 1 near x; of 0 it is 1."""
    return math.ldexp(1.0, math.frexp(x)[1] // root) if x > 0 else 1.0


@subroutine(fastmath=REORDERED)
def active_set(
    A: Array,
    h: Array,
    kind: NDArray[np.int8],
    L: Array,
    V: Array,
    y: Array,
    u: Array,
    s: Array,
    w: Array,
    support: Integers,
    old: Integers,
    barred: NDArray[np.bool_],
) -> int:
    """Write the support of the solution of A u = h; return its size, 0 if the method fails.

    All others but `kind` are work arrays; `barred` says which rows must not enter at first. `w` is
    h - A u at the solution u on the support.
    """
    N = len(h)
    m = 0
    w[:] = h
    for k in range(N):
        if kind[k] == 2:
            if not append(A, h, L, V, y, w, support, m, k):
                return 0  # dependent equalities: to be solved from the rows
            m += 1
    fixed = m
    back_substitute(L, y, m, u)
    for _ in range(4 * N + 10):
        entering, most = -1, 1e-13
        for k in range(N):
            if not barred[k] and w[k] > most:
                entering, most = k, w[k]
        if entering < 0:
            return m
        barred[entering] = True
        if not append(A, h, L, V, y, w, support, m, entering):
            continue  # linearly dependent on the support
        u[m] = 0.0
        m += 1
        back_substitute(L, y, m, s)
        while m > fixed and s[fixed:m].min() <= 0.0:  # a multiplier of an inequality
            m = retreat(A, h, L, V, y, w, support, old, u, s, fixed, m, barred)
            back_substitute(L, y, m, s)
        for j in range(m):
            u[j] = s[j]
    return 0


@subroutine(fastmath=REORDERED)
def append(
    A: Array, h: Array, L: Array, V: Array, y: Array, w: Array, support: Integers, m: int, k: int
) -> bool:
    """Grow L L^T = A_PP, L V = A_P and L y = h_P by row k, and w = h - V^T y with it.

    False (and no change) if k is dependent. The column k of V is the new row of L.
    """
    row, right = V[m], h[k]
    for i in range(len(h)):
        row[i] = A[k, i]
    for j in range(m):
        x = V[j, k]
        L[m, j] = x
        right -= x * y[j]
        for i in range(len(h)):
            row[i] -= x * V[j, i]
    if row[k] <= DEPENDENT_PIVOT * A[k, k]:
        return False
    root = np.sqrt(row[k])
    L[m, m], y[m], support[m] = root, right / root, k
    for i in range(len(h)):
        row[i] /= root
        w[i] -= y[m] * row[i]
    return True


@subroutine(fastmath=REORDERED)
def back_substitute(L: Array, y: Array, m: int, s: Array) -> None:
    """Solve L^T s = y."""
    for i in range(m):
        s[i] = y[i]
    for i in range(m - 1, -1, -1):
        s[i] /= L[i, i]
        for j in range(i):
            s[j] -= L[i, j] * s[i]


@subroutine(fastmath=REORDERED)
def retreat(
    A: Array,
    h: Array,
    L: Array,
    V: Array,
    y: Array,
    w: Array,
    support: Integers,
    old: Integers,
    u: Array,
    s: Array,
    fixed: int,
    m: int,
    barred: NDArray[np.bool_],
) -> int:
    """Move u towards s until a multiplier vanishes, drop those that do; return the new size."""
    step, leaving = 1.0, -1
    for j in range(fixed, m):
        if s[j] <= 0.0:
            t = u[j] / (u[j] - s[j]) if u[j] > s[j] else 0.0
            if leaving < 0 or t < step:
                step, leaving = t, j
    for j in range(m):
        u[j] += step * (s[j] - u[j])
        old[j] = support[j]
    for j in range(leaving, m):
        for i in range(len(h)):
            w[i] += y[j] * V[j, i]
    u[leaving] = 0.0
    size, m = m, leaving
    for j in range(leaving, size):
        keep = j < fixed or u[j] > 0.0
        if keep and append(A, h, L, V, y, w, support, m, old[j]):
            u[m] = u[j]
            m += 1
        else:
            barred[old[j]] = False
    return m


@subroutine(fastmath=REORDERED)
def solve_on_support(
    K: Array,
    h: Array,
    kind: NDArray[np.int8],
    L: Array,
    y: Array,
    u: Array,
    s: Array,
    margins: Array,
    support: Integers,
    m: int,
    a: Array,
) -> bool:
    """Set a from K_PP a_P = h_P, refined once; return whether its bracket is tight.

    With A = K + h h^T, A u = h and A x = r,  K^{-1} r = x + u h^T x / (1 - h^T u).
    """
    N, rest = len(h), 1.0
    margins[:] = 0.0
    for i in range(m):
        rest -= h[support[i]] * u[i]
    if rest <= 0.0:
        return False
    for _ in range(2):
        share = 0.0
        for i in range(m):
            y[i] = h[support[i]] - margins[support[i]]
            for j in range(i):
                y[i] -= L[i, j] * y[j]
            y[i] /= L[i, i]
        back_substitute(L, y, m, s)
        for i in range(m):
            share += h[support[i]] * s[i] / rest
        for i in range(m):
            row, s_i = K[support[i]], s[i] + share * u[i]
            a[support[i]] += s_i
            for k in range(N):
                margins[k] += s_i * row[k]
    value = squared = reach = 0.0
    for i in range(m):
        if kind[support[i]] == 1 and a[support[i]] < 0.0:
            return False
        reach += abs(a[support[i]])
        value += h[support[i]] * a[support[i]]
        squared += a[support[i]] * margins[support[i]]
    least = 1.0
    for k in range(N):
        if kind[k] == 1 and h[k] > 0.0:
            least = min(least, margins[k] / h[k])
        elif kind[k] != 0:
            missed = h[k] - margins[k] if kind[k] == 1 else abs(margins[k] - h[k])
            if missed > TIGHT * np.sqrt(squared):
                return False
    if EPS * reach > TIGHT * np.sqrt(squared):
        return False  # M(a) cancels
    tight = squared <= (1 + TIGHT) * least * value
    return bool(tight and 0.0 < squared < MAX_GRAM_NORM**2)
