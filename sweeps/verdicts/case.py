"""An instance with its initial weights as plain numbers, and simpler ones made of it."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROTATIONS = 8
"""Number of orthonormal bases in which a coordinate is left out, the given one included."""

CHOICES = 64
"""Largest number of choices of one token a sample that are tried, and of roundings."""

DENOMINATORS = (1, 2, 4, 8)

START = ("W0", "K0", "Q0")
"""Names of initial weights."""


@dataclass(frozen=True)
class Case:
    """An instance and where its training begins.

    `arrays` has tokens X (n, T, d), queries Z (n, d), labels Y (n,), the head's v (d,) or V (d, d),
    and the initial weights W0 (d, d), or K0 and Q0 (d, m), unless they follow from the instance.
    """

    arrays: Mapping[str, Array]

    @property
    def size(self) -> tuple[int, int, int]:
        """Number of samples, of tokens, and dimension."""
        n, T, d = self.arrays["X"].shape
        return n, T, d

    def replaced(self, **arrays: Array) -> Self:
        """Return the case with other arrays of these names."""
        return replace(self, arrays={**self.arrays, **arrays})

    def mapped(self, change: Callable[[str, Array], Array]) -> Self:
        """Return the case with every array but the labels changed by `change(name, array)`."""
        changed = {k: V if k == "Y" else change(k, V) for k, V in self.arrays.items()}
        return replace(self, arrays=changed)

    @property
    def degenerate(self) -> bool:
        """Whether two tokens of a sample are equal, or a query is zero: no W tells them apart."""
        X, Z = self.arrays["X"], self.arrays["Z"]
        equal = (X[:, :, None] == X[:, None]).all(-1) & ~np.eye(X.shape[1], dtype=bool)
        return bool(equal.any() or (Z == 0).all(-1).any())

    def numbers(self) -> Iterator[tuple[str, tuple[int, ...], float]]:
        """Yield name, place and value of every number besides labels that is not 0."""
        for name, V in self.arrays.items():
            if name != "Y":
                yield from ((name, at, float(value)) for at, value in np.ndenumerate(V) if value)

    @property
    def weight(self) -> float:
        """Sum of the sizes of all numbers besides labels."""
        return sum(abs(value) for *_, value in self.numbers())

    def denominator(self) -> int:
        """Return the least q such that every number is a whole multiple of 1 / q."""
        return max((Fraction(value).denominator for *_, value in self.numbers()), default=1)

    def words(self) -> list[str]:
        """Return a line for each array, its numbers as fractions."""
        return [f"{name} = {_fractions(V)}" for name, V in self.arrays.items()]


def _fractions(V: Array) -> str:
    if V.ndim == 0:
        return str(Fraction(float(V)))
    return "[" + ", ".join(_fractions(part) for part in V) + "]"


# --- simpler cases; those of a list have one shape ------------------------------------------------


def smaller(case: Case, rng: np.random.Generator) -> Iterator[list[Case]]:
    """Yield cases with one sample, one token of each sample, or one dimension less."""
    n, T, d = case.size
    X = case.arrays["X"]
    if n > 1:
        without = [{V: np.delete(case.arrays[V], i, axis=0) for V in "XZY"} for i in range(n)]
        yield [case.replaced(**arrays) for arrays in without]
    if T > 2:
        every = itertools.product(range(T), repeat=n)
        few = every if T**n <= CHOICES else rng.integers(0, T, (CHOICES, n))
        kept = [np.arange(T) != np.reshape(tokens, (n, 1)) for tokens in few]
        yield [case.replaced(X=X[at].reshape(n, T - 1, d)) for at in kept]
    if d > 1:
        turns = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(ROTATIONS - 1)]
        bases = itertools.product((np.eye(d), *turns), range(d))
        yield [case.mapped(partial(_without, R, j)) for R, j in bases]


def _without(R: Array, j: int, name: str, V: Array) -> Array:
    """Return an array in the orthonormal basis R, its rows, without coordinate j."""
    if name in ("X", "Z"):
        return np.delete(V @ R.T, j, axis=-1)
    V = np.delete(R @ V @ R.T if name == "W0" else R @ V, j, axis=0)
    return np.delete(V, j, axis=1) if V.ndim == 2 and V.shape[1] == len(R) else V


def from_zero(case: Case) -> list[Case]:
    """Return the case with initial weights 0, if it has others."""
    start = {name: V for name, V in case.arrays.items() if name in START}
    zero = {name: np.zeros_like(V) for name, V in start.items()}
    return [case.replaced(**zero)] if any(V.any() for V in start.values()) else []


def rounded(case: Case, rng: np.random.Generator) -> Iterator[list[Case]]:
    """Yield cases whose numbers are multiples of 1, of 1/2, of 1/4, of 1/8.

    Every array is rescaled by a number from 1/2 to 8, and its numbers are rounded up or down at
    random, so that small ones need not become 0.
    """
    for q in DENOMINATORS:

        def change(name: str, V: Array, q: int = q) -> Array:
            scaled = V * 2.0 ** rng.uniform(-1, 3) * q
            return np.asarray(np.floor(scaled + rng.uniform(size=V.shape)) / q + 0.0)

        yield [case.mapped(change) for _ in range(CHOICES)]


def nearer_to_zero(case: Case) -> list[Case]:
    """Return cases in which one number is 0, or nearer to it by 1 / q, q the denominator.

    Numbers that could not be rounded become 0 only.
    """
    q = case.denominator()
    step = 1 / q if q <= max(DENOMINATORS) else np.inf
    found = []
    for name, at, value in case.numbers():
        for new in dict.fromkeys((0.0, value - np.sign(value) * min(step, abs(value)))):
            changed = case.arrays[name].copy()
            changed[at] = new
            found.append(case.replaced(**{name: changed}))
    return found
