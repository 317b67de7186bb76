r"""Lawson and Hanson's active-set method on the Gram matrix, compiled, for whole batches.

The dual of least distance,  max_a h^T a - a^T K a / 2,  a_k >= 0 on inequalities,  with
K_kl = <g_k, g_l> = (d_k^T d_l)(z_k^T z_l), is solved as the non-negative least-squares problem of
the package by its normal equations (K + h h^T) u = h: fast, and accurate enough where the
conditioning is ordinary. An instance whose bracket is not tight is solved again from its rows,
which is slower.
"""

import numpy as np
from numpy.typing import NDArray

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.svm.tolerances import MAX_GRAM_NORM, TIGHT

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

DEPENDENT_PIVOT = 1e-11  # relative pivot below which a row counts as dependent on the support
REORDERED = {"reassoc", "contract"}  # sums may be reordered, so that they use vector instructions


@compiled(fastmath=REORDERED, nogil=True)
def solve_each(K: Array, h: Array, kind: NDArray[np.int8]) -> tuple[Array, NDArray[np.bool_]]:
    """Return multipliers (B, N) and whether they are optimal (B,).

    K (B, N, N) are Gram matrices of rows of unit norm, h (B, N) their right-hand sides, and kind
    (B, N) is that of `SvmProblem`.
    """
    B, N = h.shape
    a = np.zeros((B, N))
    optimal = np.zeros(B, np.bool_)
    A, L = np.empty((N, N)), np.empty((N, N))
    y, u, s, w = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
    support, old, barred = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.bool_)
    for b in range(B):
        for k in range(N):
            barred[k] = kind[b, k] != 1
            for j in range(N):
                A[k, j] = K[b, k, j] + h[b, k] * h[b, j]
        size = active_set(A, h[b], kind[b], L, y, u, s, w, support, old, barred)
        if size > 0:
            optimal[b] = solve_on_support(K[b], h[b], kind[b], L, y, s, w, support, size, a[b])
    return a, optimal


@subroutine(fastmath=REORDERED)
def active_set(
    A: Array, h: Array, kind: NDArray[np.int8], L: Array, y: Array, u: Array, s: Array, w: Array,
    support: Integers, old: Integers, barred: NDArray[np.bool_],
) -> int:  # fmt: skip
    """Write the support of the solution of A u = h; return its size, 0 if the method fails.

    All others but `kind` are work arrays; `barred` says which rows must not enter at first.
    """
    N = len(h)
    m = 0
    for k in range(N):
        if kind[k] == 2:
            if not append(A, h, L, y, support, m, k):
                return 0  # dependent equalities: to be solved from the rows
            m += 1
    fixed = m
    back_substitute(L, y, m, u)
    for _ in range(4 * N + 10):
        for k in range(N):
            w[k] = h[k]
        for j in range(m):
            row, u_j = A[support[j]], u[j]
            for k in range(N):
                w[k] -= u_j * row[k]
        entering, most = -1, 1e-13
        for k in range(N):
            if not barred[k] and w[k] > most:
                entering, most = k, w[k]
        if entering < 0:
            return m
        barred[entering] = True
        if not append(A, h, L, y, support, m, entering):
            continue  # linearly dependent on the support
        u[m] = 0.0
        m += 1
        back_substitute(L, y, m, s)
        while _least(s, fixed, m) <= 0.0:  # of the multipliers of the inequalities
            m = retreat(A, h, L, y, support, old, u, s, fixed, m, barred)
            back_substitute(L, y, m, s)
        for j in range(m):
            u[j] = s[j]
    return 0


@subroutine(fastmath=REORDERED)
def append(A: Array, h: Array, L: Array, y: Array, support: Integers, m: int, k: int) -> bool:
    """Grow L L^T = A_PP and L y = h_P by row k; False (and no change) if k is dependent."""
    pivot, right = A[k, k], h[k]
    for i in range(m):
        x = A[k, support[i]]
        for j in range(i):
            x -= L[i, j] * L[m, j]
        x /= L[i, i]
        L[m, i] = x
        pivot -= x * x
        right -= x * y[i]
    if pivot <= DEPENDENT_PIVOT * A[k, k]:
        return False
    L[m, m] = np.sqrt(pivot)
    y[m] = right / L[m, m]
    support[m] = k
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


@subroutine
def _least(s: Array, first: int, end: int) -> float:
    """Return the least entry of s[first:end], infinity if there is none."""
    least = np.inf
    for j in range(first, end):
        least = min(least, s[j])
    return least


@subroutine(fastmath=REORDERED)
def retreat(
    A: Array, h: Array, L: Array, y: Array, support: Integers, old: Integers, u: Array, s: Array,
    fixed: int, m: int, barred: NDArray[np.bool_],
) -> int:  # fmt: skip
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
    u[leaving] = 0.0
    size, m = m, leaving
    for j in range(leaving, size):
        keep = j < fixed or u[j] > 0.0
        if keep and append(A, h, L, y, support, m, old[j]):
            u[m] = u[j]
            m += 1
        else:
            barred[old[j]] = False
    return m


@subroutine(fastmath=REORDERED)
def solve_on_support(
    K: Array, h: Array, kind: NDArray[np.int8], L: Array, y: Array, s: Array, margins: Array,
    support: Integers, m: int, a: Array,
) -> bool:  # fmt: skip
    """Set a from K_PP a_P = h_P, refined once; return whether its bracket is tight."""
    N = len(h)
    for k in range(N):
        margins[k] = 0.0
    for i in range(m):
        if not append(K, h, L, y, support, i, support[i]):
            return False
    for refined in range(2):
        if refined:
            for i in range(m):
                y[i] = h[support[i]] - margins[support[i]]
                for j in range(i):
                    y[i] -= L[i, j] * y[j]
                y[i] /= L[i, i]
        back_substitute(L, y, m, s)
        for i in range(m):
            row, s_i = K[support[i]], s[i]
            a[support[i]] += s_i
            for k in range(N):
                margins[k] += s_i * row[k]
    value = squared = 0.0
    for i in range(m):
        if kind[support[i]] == 1 and a[support[i]] < 0.0:
            return False
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
    tight = squared <= (1 + TIGHT) * least * value
    return bool(tight and 0.0 < squared < MAX_GRAM_NORM**2)
