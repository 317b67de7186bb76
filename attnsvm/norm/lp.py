"""The l_p norms of vectors, 1 <= p <= inf: sizes, steepest directions and proximal maps.

Of the entries of a matrix they are its entry-wise norms, of its singular values the Schatten norms.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.norm import name_of
from attnsvm.norm.base import Array, Norm

HALVINGS = 200

FACTOR = 1.75
"""Largest ratio of successive exponents of a path, or of their conjugates below 2."""


def exponent(p: Any) -> float:
    """Return p as a float; ConfigError unless it is a number >= 1, inf allowed."""
    if not isinstance(p, Real) or not float(p) >= 1:
        raise ConfigError(f"p={p!r}: must be a number >= 1, inf allowed")
    return float(p)


class Lp(Norm):
    """The l_p norm of the numbers of a matrix, its entries or singular values, 1 <= p <= inf."""

    FAMILY: ClassVar[str]

    def __init__(self, p: float) -> None:
        self.p = exponent(p)
        self.name, self.is_hilbert = name_of(self.FAMILY, self.p), self.p == 2

    @property
    def _family(self) -> type["Lp"]:
        """The class of the norms of the entries, or of the singular values, for any p."""
        return next(kind for kind in type(self).__mro__ if Lp in kind.__bases__)

    @property
    def dual(self) -> "Lp":
        """The norm of the same kind with q = p / (p - 1)."""
        return self._family(conjugate(self.p))

    def path(self) -> Sequence[Norm]:
        """Return the norms whose exponents lead from 2 to p; none of a subclass, another norm."""
        return [type(self)(p) for p in path(self.p)] if type(self) is self._family else []


def conjugate(p: float) -> float:
    """Return q with 1/p + 1/q = 1."""
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def is_linear(p: float) -> bool:
    """Whether the norm is piecewise linear in the entries, or singular values: p = 1 or inf."""
    return p in (1, math.inf)


def path(p: float) -> list[float]:
    """Return exponents that lead from 2 to p: each solution is the start of the next."""
    if p == 2 or is_linear(p):
        return [p] if p != 2 else []
    larger = max(p, conjugate(p))
    count = math.ceil(math.log(larger / 2) / math.log(FACTOR))
    between = [2 * (larger / 2) ** (k / count) for k in range(1, count)]
    return [*(between if p > 2 else map(conjugate, between)), p]


def size(x: Tensor, p: float) -> Tensor:
    """Return (sum |x|^p)^(1/p) over the last axis, without overflow or underflow of the powers."""
    if p == 1:
        return x.abs().sum(-1)
    if p == math.inf:
        return x.abs().amax(-1)
    largest = x.abs().amax(-1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    return torch.linalg.vector_norm(x / unit, ord=p, dim=-1) * unit[..., 0]


def steepest(x: Tensor, p: float) -> Tensor:
    """Return v with ||v||_p = 1 and <x, v> = ||x||_q over the last axis; zero where x is."""
    if p == math.inf:
        return x.sign()
    largest = x.abs().amax(-1, keepdim=True)
    if p == 1:
        first = torch.zeros_like(x).scatter(-1, x.abs().argmax(-1, keepdim=True), 1.0)
        return first * x.sign()
    unit = x / torch.where(largest > 0, largest, 1.0)
    v: Tensor = unit.sign() * unit.abs() ** (conjugate(p) - 1)
    length = size(v, p).unsqueeze(-1)
    return v / torch.where(length > 0, length, 1.0)


def prox(x: Array, tau: float, p: float) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the proximal map at absolute values x (k,), its slopes, and which are at the bound.

    It minimises tau ||v||_p + ||v - x||^2 / 2 for p = 1 and inf, else tau sum v^p / p + the same.
    Only for p = inf there is a bound; the slope of those at it is zero but along (1, ..., 1), where
    it is one.
    """
    nowhere = np.zeros(len(x), dtype=bool)
    if p == 1:
        return np.maximum(x - tau, 0.0), (x > tau).astype(float), nowhere
    if p == math.inf:
        ordered = np.sort(x)[::-1]
        levels = (np.cumsum(ordered) - tau) / np.arange(1, len(x) + 1)
        t = max(float(levels[np.flatnonzero(ordered >= levels)[-1]]), 0.0)
        bound = x > t
        return np.minimum(x, t), (~bound).astype(float), bound
    low, high = np.zeros(len(x)), x.copy()
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = middle + tau * middle ** (p - 1) > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    steepness = tau * (p - 1) * np.maximum(high, 1e-200) ** (p - 2)
    return high, 1 / (1 + steepness), nowhere
