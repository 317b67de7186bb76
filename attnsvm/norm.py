"""The norms whose attention SVM is solved: values, duals and steepest directions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.norm import NormName, families_of, name_of
from attnsvm.linalg.simd.svd import svd

SMALL = 32
"""Largest dimension where eight decompositions at a time are faster than LAPACK's."""


class Norm(ABC):
    """A norm of matrices.

    Attributes
    ----------
    name : str
        As a user types it.
    """

    name: str

    @abstractmethod
    def value(self, W: Tensor) -> Tensor:
        """Return norm(W), one number for each matrix (..., d, d)."""

    @property
    @abstractmethod
    def dual(self) -> Norm:
        """The dual norm, dual(M) = max <M, V> over norm(V) <= 1."""

    @abstractmethod
    def steepest(self, M: Tensor) -> Tensor:
        """Return a V with norm(V) = 1 and <M, V> = dual(M); zero where M is zero.

        It is a subgradient of the dual norm at M, and the direction of steepest ascent.
        """

    @abstractmethod
    def spread(self, d: int) -> float:
        """Return the largest norm(W) / ||W||_F of d x d matrices."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Entrywise(Norm):
    """The l_p norm of the entries, (sum_ij |w_ij|^p)^(1/p), 1 <= p <= inf."""

    def __init__(self, p: float) -> None:
        self.p = exponent(p)
        self.name = name_of("l", self.p)

    def value(self, W: Tensor) -> Tensor:
        """Return the l_p norm of the entries."""
        return _power_norm(W.flatten(-2), self.p)

    @property
    def dual(self) -> Entrywise:
        """The l_q norm."""
        return Entrywise(conjugate(self.p))

    def steepest(self, M: Tensor) -> Tensor:
        """Return sign(m_ij) (|m_ij| / ||M||_q)^(q - 1); with p = 1 a single entry is not zero."""
        return _steepest(M.flatten(-2), self.p).reshape(M.shape)

    def spread(self, d: int) -> float:
        """Return d^(2/p - 1), at least one."""
        return math.pow(d, max(0.0, 2 / self.p - 1))


class Schatten(Norm):
    """The l_p norm of the singular values: nuclear (1), Frobenius (2), spectral (inf)."""

    def __init__(self, p: float) -> None:
        self.p = exponent(p)
        self.name = name_of("schatten", self.p)

    def value(self, W: Tensor) -> Tensor:
        """Return the l_p norm of the singular values."""
        return self.of_spectrum(singular_values(W))

    def of_spectrum(self, sigma: Tensor) -> Tensor:
        """Return the norm of matrices with singular values `sigma` (..., d)."""
        return _power_norm(sigma, self.p)

    @property
    def dual(self) -> Schatten:
        """The Schatten norm with q = p / (p - 1)."""
        return Schatten(conjugate(self.p))

    def steepest(self, M: Tensor) -> Tensor:
        """Return U diag(v) V^T of M = U diag(s) V^T, v that of the entry-wise norm at s.

        With p = inf, on the range of M: singular values that are rounding errors count as zero.
        """
        U, sigma, V = thin_svd(M)
        floor = sigma[..., :1] * max(M.shape[-2:]) * torch.finfo(M.dtype).eps
        v = _steepest(torch.where(sigma > floor, sigma, 0.0), self.p)
        return (U * v.unsqueeze(-2)) @ V.mT

    def spread(self, d: int) -> float:
        """Return d^(1/p - 1/2), at least one."""
        return math.pow(d, max(0.0, 1 / self.p - 0.5))


class Hybrid(Norm):
    """max(A(W_1), B(w_2)), w_2 the last column of W, as a bias, and W_1 all others.

    Its dual is the sum A*(W_1) + B*(w_2), and the steepest direction that of each block, as where
    Muon trains the weights and signs the bias (arXiv 2602.16340). A single column is w_2.
    """

    def __init__(self, weights: Norm, bias: Norm, total: bool = False) -> None:
        self.weights, self.bias, self.total = weights, bias, total
        self.name = f"{weights.name}+{bias.name}" + " as a sum" * total

    def blocks(self, W: Any) -> list[tuple[Norm, Any]]:
        """Return A with W_1, unless that has no column, and B with w_2."""
        blocks = [(self.weights, W[..., :-1]), (self.bias, W[..., -1:])]
        return blocks[W.shape[-1] == 1 :]

    def value(self, W: Tensor) -> Tensor:
        """Return the larger norm of a block, of the dual the sum."""
        sizes = torch.stack([norm.value(block) for norm, block in self.blocks(W)], -1)
        return sizes.sum(-1) if self.total else sizes.amax(-1)

    @property
    def dual(self) -> Hybrid:
        """The sum of the dual norms; of that the maximum."""
        return Hybrid(self.weights.dual, self.bias.dual, not self.total)

    def steepest(self, M: Tensor) -> Tensor:
        """Return the direction of each block; of the sum that of the one with the largest dual."""
        steps = [norm.steepest(block) for norm, block in self.blocks(M)]
        if self.total and len(steps) > 1:
            first, last = (norm.dual.value(block) for norm, block in self.blocks(M))
            keep = (first >= last).to(M)[..., None, None]
            steps = [keep * steps[0], (1 - keep) * steps[1]]
        return torch.cat(steps, -1)

    def spread(self, d: int) -> float:
        """Return a bound of it: of the sum the root of the sum of squares."""
        sizes = self.weights.spread(d), self.bias.spread(d)
        return math.hypot(*sizes) if self.total else max(sizes)


def norm_of(name: str | Norm) -> Norm:
    """Return the norm itself, or the one of that name.

    Names are frobenius, nuclear, spectral, max, l1, l<p> and schatten<p>, p > 1, and A+B of two.

    Raises
    ------
    ConfigError
        If there is no norm of that name.
    """
    if isinstance(name, Norm):
        return name
    families = families_of(name) if isinstance(name, str) else None
    if families is None:
        typed = name if isinstance(name, str) else repr(name)
        raise ConfigError(f"norm={typed}: {NormName().meant(name)}must be {NormName()}")
    first, *second = ((Entrywise if family == "l" else Schatten)(p) for family, p in families)
    return Hybrid(first, second[0]) if second else first


def exponent(p: Any) -> float:
    """Return p as a float; ConfigError unless it is a number >= 1, inf allowed."""
    if not isinstance(p, Real) or not float(p) >= 1:
        raise ConfigError(f"p={p!r}: must be a number >= 1, inf allowed")
    return float(p)


def conjugate(p: float) -> float:
    """Return q with 1/p + 1/q = 1."""
    if p == 1:
        return math.inf
    return 1.0 if p == math.inf else p / (p - 1)


def _power_norm(x: Tensor, p: float) -> Tensor:
    """Return (sum |x|^p)^(1/p) over the last axis, without overflow or underflow of the powers."""
    if p in (1, math.inf):
        return x.abs().sum(-1) if p == 1 else x.abs().amax(-1)
    largest = x.abs().amax(-1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    return torch.linalg.vector_norm(x / unit, ord=p, dim=-1) * unit[..., 0]


def _steepest(x: Tensor, p: float) -> Tensor:
    """Return v with ||v||_p = 1 and <x, v> = ||x||_q over the last axis; zero where x is."""
    if p == math.inf:
        return x.sign()
    largest = x.abs().amax(-1, keepdim=True)
    if p == 1:
        first = torch.zeros_like(x).scatter(-1, x.abs().argmax(-1, keepdim=True), 1.0)
        return first * x.sign()
    unit = x / torch.where(largest > 0, largest, 1.0)
    v: Tensor = unit.sign() * unit.abs() ** (conjugate(p) - 1)
    size = _power_norm(v, p).unsqueeze(-1)
    return v / torch.where(size > 0, size, 1.0)


def thin_svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (..., p, r), sigma (..., r), V (..., q, r); small matrices eight at a time.

    Sigma is NaN where A is not finite; columns may be zero where sigma is.
    """
    if _in_lanes(A):
        U, sigma, V = svd(A.reshape(-1, *A.shape[-2:]))
        shape = A.shape[:-2]
        return U.view(*shape, *U.shape[1:]), sigma.view(*shape, -1), V.view(*shape, *V.shape[1:])
    finite = A.isfinite().all()
    U, sigma, Vh = torch.linalg.svd(A if finite else torch.zeros_like(A), full_matrices=False)
    return U, (sigma if finite else sigma * torch.nan), Vh.mT


def singular_values(A: Tensor) -> Tensor:
    """Return the singular values (..., r), as `thin_svd` does."""
    if _in_lanes(A):
        return thin_svd(A)[1]
    finite = A.isfinite().all()
    sigma: Tensor = torch.linalg.svdvals(A if finite else torch.zeros_like(A))
    return sigma if finite else sigma * torch.nan


def _in_lanes(A: Tensor) -> bool:
    small = A.is_cpu and A.dtype == torch.float64 and min(A.shape[-2:]) <= SMALL
    return small and not A.requires_grad
