"""Nasty instances of Att-SVM with exact truth.

Every token is a dyadic number drawn without any transcendental function, so an instance is the same
on every machine. The truth, feasible or not and the exact least squared norm, comes from Lawson and
Hanson's method in rational arithmetic (`truth`) and is kept in benchmarks/nasty:

    python -m benchmarks.nasty        writes that data set again (needs python-flint)
"""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Instance:
    """Tokens X (n, T, d), queries Z (n, d), mask (n, T); token 0 of each sample is selected."""

    family: str
    index: int
    X: Array
    Z: Array
    mask: NDArray[np.bool_]


class Draw:
    """Seeded draws of dyadic numbers: bit for bit the same everywhere."""

    def __init__(self, family: str, index: int) -> None:
        self.state = np.random.RandomState([zlib.crc32(family.encode()), index])
        self.index = index

    def real(self, *shape: int) -> Array:
        """Uniform in (-1, 1), a multiple of 2^-52."""
        return 2.0 * self.state.random_sample(shape) - 1.0

    def integer(self, low: int, high: int) -> int:
        """Uniform in low..high, both included."""
        return int(self.state.randint(low, high + 1))

    def shape(self) -> tuple[int, int, int]:
        """An ordinary n, T, d that is mostly feasible."""
        n, T = self.integer(1, 5), self.integer(2, 5)
        return n, T, max(n, T - 1) + self.integer(-1, 2) or 1

    def delta(self) -> float:
        """2^-3 ... 2^-33, that is 1e-1 ... 1e-10, one after the other."""
        return 2.0 ** -(3 + (10 * self.index // 3) % 31)

    def sign(self) -> float:
        """Both signs in turn."""
        return 1.0 if self.index % 2 else -1.0


Arrays = tuple[Array, Array]


def ordinary(draw: Draw) -> Arrays:
    """Uniform tokens and queries."""
    n, T, d = draw.shape()
    return draw.real(n, T, d), draw.real(n, d)


def small_d(draw: Draw) -> Arrays:
    """Too few dimensions to be sure of a solution."""
    n, T, d = draw.integer(2, 6), draw.integer(2, 5), draw.integer(1, 3)
    return draw.real(n, T, d), draw.real(n, d)


def global_scale(draw: Draw) -> Arrays:
    """All tokens times 2^-20 ... 2^20."""
    X, Z = ordinary(draw)
    return X * 2.0 ** draw.integer(-20, 20), Z * 2.0 ** draw.integer(-20, 20)


def mixed_scale(draw: Draw) -> Arrays:
    """Every sample at its own scale."""
    X, Z = ordinary(draw)
    powers = np.array([draw.integer(-20, 20) for _ in Z])
    return X * np.exp2(powers)[:, None, None], Z * np.exp2(np.roll(powers, 1))[:, None]


def duplicated(draw: Draw) -> Arrays:
    """Every constraint several times, and two samples equal."""
    X, Z = ordinary(draw)
    X = np.concatenate([X, X[:, 1:], X[:, 1:2]], axis=1)
    return np.concatenate([X, X[:1]]), np.concatenate([Z, Z[:1]])


def zero_rows(draw: Draw) -> Arrays:
    """A token equal to the selected one, or a zero query: infeasible."""
    X, Z = ordinary(draw)
    if draw.index % 2:
        X[-1, -1] = X[-1, 0]
    else:
        Z[0] = 0.0
    return X, Z


def near_ties(draw: Draw) -> Arrays:
    """A token at distance 1e-1 ... 1e-10 from the selected one."""
    X, Z = ordinary(draw)
    X[0, -1] = X[0, 0] + draw.delta() * draw.real(X.shape[2])
    return X, Z


def near_copies(draw: Draw) -> Arrays:
    """Two almost equal constraints."""
    X, Z = ordinary(draw)
    X = np.concatenate([X, X[:, -1:] + draw.delta() * draw.real(len(X), 1, X.shape[2])], axis=1)
    return X, Z


def nearly_opposing(draw: Draw) -> Arrays:
    """d_2 = -d_1 up to delta in the same sample: nearly infeasible."""
    X, Z = ordinary(draw)
    opposite = 2 * X[:, :1] - X[:, 1:2]
    return np.concatenate([X, opposite + draw.delta() * draw.real(*opposite.shape)], axis=1), Z


def opposing_queries(draw: Draw) -> Arrays:
    """Two samples with equal tokens and z_2 = -z_1 up to delta: nearly infeasible."""
    X, Z = ordinary(draw)
    return np.concatenate([X, X[:1]]), np.concatenate(
        [Z, -Z[:1] + draw.delta() * draw.real(*Z[:1].shape)]
    )


def hull(draw: Draw) -> Arrays:
    """The selected token at +-delta from a facet of the hull of the others: feasible outside only.

    The others are the corners of a box around zero and one more point; the facet is x_1 = 1.
    """
    d = draw.integer(1, 3)
    corners = np.array([[1.0 - 2.0 * (k >> j & 1) for j in range(d)] for k in range(2**d)])
    inside = draw.real(d) / 2
    inside[0] = 1.0 + draw.sign() * draw.delta()
    X = np.concatenate([inside[None], corners, draw.real(1, d) / 2])
    Z = draw.real(1, d)
    return X[None], Z


def tilted_hull(draw: Draw) -> Arrays:
    """The selected token at +-delta from a point inside a random simplex's facet, d = T - 2."""
    d = draw.integer(2, 4)
    simplex = draw.real(d + 1, d)
    weights = np.array([draw.integer(1, 8) for _ in range(d)]) / 64.0
    weights[0] = 1.0 - weights[1:].sum()
    facet = (weights[:, None] * simplex[:d]).sum(0)  # a BLAS would round as its machine does
    selected = facet + draw.sign() * draw.delta() * (simplex[d] - facet)
    return np.concatenate([selected[None], simplex])[None], draw.real(1, d)


def opposing(draw: Draw) -> Arrays:
    """The selected token is exactly the midpoint of two others: infeasible."""
    X, Z = ordinary(draw)
    X = np.round(X * 2.0**30) / 2.0**30
    return np.concatenate([X, 2 * X[:, :1] - X[:, 1:2]], axis=1), Z


def low_rank(draw: Draw) -> Arrays:
    """Tokens in a small subspace, queries in a smaller one, all dyadic of few bits."""
    n, T, d = draw.integer(2, 5), draw.integer(2, 5), draw.integer(3, 6)
    basis, spread = draw.real(2, d), draw.real(n, T, 2)
    X = _coarse(spread) @ _coarse(basis)
    Z = _coarse(draw.real(n, 1)) @ _coarse(draw.real(1, d))
    return X, np.abs(Z) if draw.index % 3 == 0 else Z


def tiny(draw: Draw) -> Arrays:
    """T = 1, d = 1 or n = 1 in turn."""
    n, T, d = draw.integer(1, 3), draw.integer(2, 4), draw.integer(1, 4)
    n, T, d = ((n, 1, d), (n, T, 1), (1, T, d))[draw.index % 3]
    return draw.real(n, T, d), draw.real(n, d)


def integers(draw: Draw) -> Arrays:
    """Tokens on a small integer grid: ties, degenerate vertices, exact contradictions."""
    n, T, d = draw.integer(1, 5), draw.integer(2, 6), draw.integer(2, 5)
    return np.round(2 * draw.real(n, T, d)), np.round(2 * draw.real(n, d))


def _coarse(x: Array) -> Array:
    return np.asarray(np.round(x * 64) / 64)


FAMILIES: dict[str, tuple[Callable[[Draw], Arrays], int]] = {
    f.__name__: (f, count)
    for f, count in (
        (ordinary, 80),
        (small_d, 80),
        (global_scale, 80),
        (mixed_scale, 80),
        (duplicated, 60),
        (zero_rows, 40),
        (near_ties, 93),
        (near_copies, 93),
        (nearly_opposing, 93),
        (opposing_queries, 93),
        (hull, 93),
        (tilted_hull, 93),
        (opposing, 60),
        (low_rank, 80),
        (tiny, 60),
        (integers, 80),
    )
}


def instances() -> Iterator[Instance]:
    """All instances, family by family; every fifth masks its last token where T > 2."""
    for family, (make, count) in FAMILIES.items():
        for index in range(count):
            X, Z = make(Draw(family, index))
            mask = np.ones(X.shape[:2], dtype=bool)
            mask[:, -1] = index % 5 != 4 or X.shape[1] <= 2
            yield Instance(family, index, X, Z, mask)


def truth(instance: Instance) -> tuple[float, float]:
    """Return least Frobenius norm and kappa, NaN if no W exists; in rational arithmetic.

    Lawson and Hanson's active-set method for  min_{u >= 0} ||[G^T; 1^T] u - e_last||  on its Gram
    matrix A = G G^T + 1 1^T. The residual vanishes exactly when the instance is infeasible;
    otherwise its last entry is -1 / (1 + ||W||^2).
    """
    import flint

    D, Q = _rows(instance)
    N = len(D)
    if N == 0:
        return 0.0, 0.0
    dot = lambda x, y: sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))  # noqa: E731
    A = [[dot(D[k], D[l]) * dot(Q[k], Q[l]) + 1 for l in range(N)] for k in range(N)]
    u, support = [Fraction(0)] * N, []
    while True:
        w = [1 - sum((A[k][l] * u[l] for l in support), Fraction(0)) for k in range(N)]
        entering = max((k for k in range(N) if k not in support), key=lambda k: w[k], default=None)
        if entering is None or w[entering] <= 0:
            break
        support.append(entering)
        while True:
            v = _solve(flint, A, support)
            if all(x > 0 for x in v):
                break
            step = min(u[k] / (u[k] - x) for k, x in zip(support, v, strict=True) if x <= 0)
            for k, x in zip(support, v, strict=True):
                u[k] += step * (x - u[k])
            support = [k for k in support if u[k] > 0]
        u = [Fraction(0)] * N
        for k, x in zip(support, v, strict=True):
            u[k] = x
    rest = 1 - sum(u, Fraction(0))  # 1 / (1 + ||W||^2)
    if rest == 0:
        return math.nan, math.nan
    squared = (1 - rest) / rest
    longest = max(dot(x, x) * dot(z, z) for x, z in zip(D, Q, strict=True))
    return _sqrt(squared), _sqrt(squared * longest)


def _rows(instance: Instance) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    X = [[[Fraction(float(x)) for x in token] for token in sample] for sample in instance.X]
    Z = [[Fraction(float(z)) for z in query] for query in instance.Z]
    pairs = [(i, t) for i in range(len(X)) for t in range(1, len(X[i])) if instance.mask[i, t]]
    D = [[a - b for a, b in zip(X[i][0], X[i][t], strict=True)] for i, t in pairs]
    return D, [Z[i] for i, _ in pairs]


def _solve(flint: object, A: list[list[Fraction]], support: list[int]) -> list[Fraction]:
    """Return A_PP^{-1} 1."""
    rational = lambda x: flint.fmpq(x.numerator, x.denominator)  # type: ignore[attr-defined] # noqa: E731
    P = flint.fmpq_mat([[rational(A[k][l]) for l in support] for k in support])  # type: ignore[attr-defined]
    ones = flint.fmpq_mat([[rational(Fraction(1))] for _ in support])  # type: ignore[attr-defined]
    return [Fraction(int(x.p), int(x.q)) for x in P.solve(ones).entries()]


def _sqrt(x: Fraction) -> float:
    """The square root to float64: exact integer root of x scaled by 4^600."""
    return float(Fraction(math.isqrt(int(x * 4**600)), 2**600))
