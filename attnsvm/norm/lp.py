"""The l_p norms of vectors, 1 <= p <= inf: sizes, steepest directions and proximal maps.

Of the entries of a matrix they are its entry-wise norms, of its singular values the Schatten norms.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.norm import name_of
from attnsvm.norm.base import Norm

HALVINGS = 200

CLOSE = 1e-6
"""Relative distance of singular values that count as equal in a derivative."""

TINY = 1e-300

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
    AXES: ClassVar[int]
    """How many axes of a d x d matrix count the numbers: d^AXES of them."""

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

    def spread(self, d: int) -> float:
        """Return d^(AXES (1/p - 1/2)), at least one."""
        return math.pow(d, self.AXES * max(0.0, 1 / self.p - 0.5))

    def path(self) -> Sequence[Norm]:
        """Return the norms whose exponents lead from 2 to p; none of a subclass, another norm."""
        if type(self) is not self._family or self.p == 2:
            return []
        if is_linear(self.p):
            return [self]
        larger = max(self.p, conjugate(self.p))
        count = math.ceil(math.log(larger / 2) / math.log(FACTOR))
        between = [2 * (larger / 2) ** (k / count) for k in range(1, count)]
        between = between if self.p > 2 else [*map(conjugate, between)]
        return [*map(self._family, between), self]


def conjugate(p: float) -> float:
    """Return q with 1/p + 1/q = 1."""
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def is_linear(p: float) -> bool:
    """Whether the norm is piecewise linear in the entries, or singular values: p = 1 or inf."""
    return p in (1, math.inf)


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


def prox(x: Tensor, tau: float, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the proximal map at absolute values x (k,), its slopes, and the direction of a bound.

    It minimises tau ||v||_p + ||v - x||^2 / 2 for p = 1 and inf, else tau sum v^p / p + the same.
    Only for p = inf there is a bound: the slope of those at it is zero but along (1, ..., 1), where
    it is one. The direction, of length one, is zero on all others.
    """
    if p == 1:
        return (x - tau).clamp(min=0.0), (x > tau).to(x), torch.zeros_like(x)
    if p == math.inf:
        ordered = x.sort(descending=True).values
        levels = (ordered.cumsum(0) - tau) / torch.arange(1, len(x) + 1)
        t = levels[(ordered >= levels).nonzero()[-1, 0]].clamp(min=0.0)
        bound = (x > t).to(x)
        return x.clamp(max=t), 1 - bound, bound / bound.sum().clamp(min=1.0).sqrt()
    low, high = torch.zeros_like(x), x
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = middle + tau * middle ** (p - 1) > x
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    steepness = tau * (p - 1) * high.clamp(min=1e-200) ** (p - 2)
    return high, 1 / (1 + steepness), torch.zeros_like(x)


def along(direction: Tensor, Y: Tensor) -> Tensor:
    """Return <direction, Y> direction for matrices Y (..., p, q)."""
    return (direction * Y).sum((-2, -1), keepdim=True) * direction


def divided_differences(
    x: Tensor, f: Tensor, slope: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return the derivative of F(U diag(x) V^T) = U diag(f(x)) V^T in the bases U, V.

    (F' X)_ij = theta_ij X_ij + beta_ij X_ji, with theta (p, q) and beta (r, r): the parts (X_ij +-
    X_ji) / 2 are multiplied by (f_i -+ f_j) / (x_i -+ x_j), or by the slope where x_i = x_j, and
    the X_ij outside of the square by f_i / x_i (F. Andersson, M. Carlsson and K. Perfekt, Proc. AMS
    144, 2016). x >= 0, f and slope, f'(x), are columns (r, 1).
    """
    y, g, r = x.mT, f.mT, x.shape[1]
    plus = (f + g) / (x + y).clamp(min=TINY)
    apart = (x - y).abs() > CLOSE * torch.maximum(x, y)
    minus = torch.where(apart, (f - g) / (x - y), 0.5 * (slope + slope.mT))
    single = f / x.clamp(min=TINY)
    theta = x.new_empty(len(x), *shape)
    theta[:, :r, :r] = 0.5 * (minus + plus)
    theta[:, r:, :r], theta[:, :r, r:] = single.mT, single
    return theta, 0.5 * (minus - plus)
