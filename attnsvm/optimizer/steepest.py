"""Normalised steepest descent in a norm: `optimizer=steepest | sign_gd | muon`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config import optimizer as schema
from attnsvm.config.words import rows
from attnsvm.head import Head
from attnsvm.linalg import EPS
from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray, reshaped
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import inner, matmul, rescale
from attnsvm.linalg.simd.svd import svd_columns
from attnsvm.nn.risk import Risk
from attnsvm.norm import norm_of
from attnsvm.optimizer.base import (
    TINY,
    Direction,
    FirstOrder,
    Rule,
    Step,
    broadcast,
    norm,
)
from attnsvm.parameterization import Variables

Polynomial = tuple[float, float, float]
"""a, b and c of the odd polynomial a x + b x^3 + c x^5."""

PUBLISHED: dict[str, list[Polynomial]] = {"exact": []}
"""The polynomials of Muon's Newton-Schulz steps, by `polynomial`; the last one is repeated."""
for _row in rows(Path(__file__).with_name("polynomials.csv")):
    _polynomial = float(_row["a"]), float(_row["b"]), float(_row["c"])
    PUBLISHED.setdefault(_row["name"], []).append(_polynomial)


MAX, L1, SPECTRAL, NUCLEAR, MUON, HYBRID = range(1, 7)
"""Codes of the directions in compiled code."""

CODES = {"max": MAX, "l1": L1, "spectral": SPECTRAL, "nuclear": NUCLEAR, "spectral+max": HYBRID}
"""Code of the steps in each norm; spectral+max is of W alone."""


class Steepest(FirstOrder, options=schema.SteepestConfig):
    """V <- V - eta S, S = argmax <S, M> over norm(S) <= 1, M <- beta M + grad.

    Each variable makes its own steps, of the size eta in the norm: the gradient over its norm
    (frobenius), its signs (max), its polar factor U V^T (spectral), its largest entry alone (l1),
    its leading singular vectors u v^T (nuclear). For linear models the margin in this norm becomes
    the largest one (arXiv 2502.04664). The size of M does not matter, so beta M + (1 - beta) grad
    makes the same steps. With `nesterov` they are along grad + beta M instead of M.
    """

    norm: str
    beta: float
    nesterov: bool

    @property
    def implicit_bias(self) -> str | None:
        """The norm of the steps (arXiv 2502.04664, for linear models)."""
        return norm_of(self.norm).name

    def rule(self, risk: Risk) -> Rule | None:
        """Return steps in the norm, None for norms of which compiled code has none."""
        norm = norm_of(self.norm)
        code = CODES.get(norm.name)
        if code is None and not norm.is_hilbert:
            return None
        direction = None if code is None else Direction(code, norm.rotation_invariant)
        return Rule(direction is None, self.beta, self.nesterov, direction)

    def direction(self, M: Tensor) -> Tensor:
        """Return the step of size one along M; a vector counts as a matrix with one column."""
        if M.ndim == 2:
            return norm_of(self.norm).steepest(M.unsqueeze(-1)).squeeze(-1)
        return norm_of(self.norm).steepest(M)

    def update(self, step: Step) -> Variables:
        """Return the variables after a step; unchanged where M is zero."""
        for (V, M, part, _), factor in zip(
            step.momenta(self.beta), self.factors(step.risk), strict=False
        ):
            along = part + self.beta * M if self.nesterov else M
            V.sub_(self.direction(along), alpha=step.eta * factor)
        return step.variables

    def factors(self, risk: Risk) -> Iterator[float]:
        """Return the size in the norm of a step of length one, of each variable."""
        return repeat(1.0)


class SignGD(Steepest, options=schema.SignGDConfig):
    """V <- V - eta sign(grad): steepest descent in the entry-wise maximum norm."""

    norm: str = field(default="max", init=False)
    beta: float = field(default=0.0, init=False)
    nesterov: bool = field(default=False, init=False)


class Muon(Steepest, options=schema.MuonConfig):
    """Steps along U f(sigma) V^T of the Nesterov momentum, f(sigma) near one (K. Jordan 2024).

    M <- beta M + (1 - beta) grad,  D = (1 - beta) grad + beta M,  X = D / ||D||_F, then
    `newton_schulz_steps` times X <- a X + (b A + c A^2) X, A = X X^T; V <- V - eta X, times the
    root of rows / columns where V has more rows: adjust_lr_fn="original" of torch.optim.Muon, with
    W, K and Q of the shapes (d, d), (d, m) and (d, m). In a linear classifier of K classes on
    points in d dimensions they are (K, d), (K, m) and (d, m), without the zeros that pad them, and
    d ends with the last entry that some point has. It is the published rule but for its precision:
    float64 instead of bfloat16, without factors for the latter, and exact where the gradient
    underflows. In five steps of Jordan's polynomial singular values of X above 0.002 come to
    between 0.68 and 1.21; smaller ones do not. With polynomial=exact all become one, or stay zero.
    """

    norm: str = field(default="spectral", init=False)
    newton_schulz_steps: int
    polynomial: str

    @property
    def implicit_bias(self) -> str | None:
        """Not known unless exact: the singular values of a step are near one, not one."""
        return "spectral" if self.polynomial == "exact" else None

    @property
    def polynomials(self) -> list[Polynomial]:
        """The polynomial of each step; none if the polar factor is exact."""
        published, steps = PUBLISHED[self.polynomial], self.newton_schulz_steps
        return [*published, *published[-1:] * steps][:steps]

    def check_head(self, head: Head) -> None:
        """Raise ConfigError if the head is trained: its parameters need not be matrices."""
        if head.train:
            raise ConfigError("optimizer=muon: head.train must be false: its steps are of matrices")

    def rule(self, risk: Risk) -> Rule:
        """Return steps along X, times their factors."""
        code = SPECTRAL if self.polynomial == "exact" else MUON
        factors = (1.0, *self.factors(risk))
        polynomials = np.array(self.polynomials).reshape(-1, 3)
        direction = Direction(code, True, polynomials, (factors[-2], factors[-1]))
        return Rule(False, self.beta, self.nesterov, direction)

    def direction(self, M: Tensor) -> Tensor:
        """Return X of the momentum M."""
        exact = self.polynomial == "exact"
        return super().direction(M) if exact else newton_schulz(M, self.polynomials)

    def factors(self, risk: Risk) -> Iterator[float]:
        """Return the root of rows / columns of each variable where that is above one, else one."""
        d, widths = risk.batch.d, risk.batch.widths
        shapes = risk.rule.shapes(d)
        if widths != (d, d):
            pairs = zip(widths, shapes, strict=False)
            shapes = (widths,) if len(shapes) == 1 else tuple((p, m) for p, (_, m) in pairs)
        return (math.sqrt(max(1.0, p / q)) for p, q in shapes)


def newton_schulz(M: Tensor, polynomials: Sequence[Polynomial]) -> Tensor:
    """Return U f(sigma / ||sigma||) V^T of M = U diag(sigma) V^T, (B, p, q); zero where M is.

    f are the `polynomials`, one after the other.
    """
    X = M / broadcast(norm(M) + TINY, M)
    if tall := X.shape[-2] > X.shape[-1]:
        X = X.mT
    for a, b, c in polynomials:
        A = torch.bmm(X, X.mT)
        X = a * X + torch.bmm(b * A + c * torch.bmm(A, A), X)
    return X.mT if tall else X


# --- the same directions in compiled code ---------------------------------------------------------


@subroutine
def steepest(G: LaneArray, direction: Direction, work: Workspace) -> None:
    """Overwrite G by its steepest direction, or by `newton_schulz` with polynomials.

    Of a hybrid norm the last row of G = W^T, the bias, is overwritten by its signs. The work arrays
    `copy`, `right` and `sigma` are as long as G, its right singular vectors and singular values.
    """
    code = direction.code
    if code == MAX:
        g = G.flat
        for j in range(len(g)):
            g[j] = _sign(g[j])
    elif code == L1:  # the first one of several largest entries
        g, largest, place = G.flat, fill(0.0), fill(-1.0)
        for j in range(len(g)):
            size = abs(g[j])
            place = where(size > largest, j, place)
            largest = maximum(size, largest)
        for j in range(len(g)):
            g[j] = where(place == j, _sign(g[j]), 0)
    else:
        if code == HYBRID:
            last = G.shape[0] - 1
            for j in range(G.shape[1]):
                G[last, j] = _sign(G[last, j])
            G = G[:last]
        tall = G.T.T if G.shape[0] >= G.shape[1] else G.T  # of the same type; (p, q) with p >= q
        p, q = tall.shape
        square = reshaped(work.right, (q, q))
        if code == MUON:
            _newton_schulz(tall, direction.polynomials, work.copy, square)
        else:
            _singular(tall, code == NUCLEAR, reshaped(work.copy, (q, p)), square, work.sigma[:q])


@njit(inline="always")
def _sign(x: Any) -> Any:
    """Return 1, -1, 0 or NaN."""
    return where(x > 0, 1, where(x < 0, -1, x - x))


@njit(inline="always")
def _singular(G: LaneArray, leading: bool, U: LaneArray, V: LaneArray, sigma: LaneArray) -> None:
    """Overwrite G by U V^T on its range, or by its `leading` u v^T alone."""
    p, q = G.shape
    U[:] = G.T
    svd_columns(U, V, sigma)
    for j in range(1, q):
        rescale(U[j], where(sigma[j] > sigma[0] * (p * EPS), 1, 0))
    rank = 1 if leading else q
    matmul(G, U[:rank].T, V[:rank])


@njit(inline="always")
def _newton_schulz(G: LaneArray, polynomials: Any, rest: LaneArray, A: LaneArray) -> None:
    """Overwrite G by `newton_schulz` of it."""
    p, q = G.shape
    square, product = reshaped(rest, (q, q)), reshaped(rest, (p, q))
    norm = fill(0.0)
    for i in range(p):
        norm += inner(G[i], G[i])
    inverse = 1 / (sqrt(norm) + TINY)
    for i in range(p):
        rescale(G[i], inverse)
    for k in range(len(polynomials)):
        a, b, c = polynomials[k, 0], polynomials[k, 1], polynomials[k, 2]
        matmul(A, G.T, G)
        matmul(square, A, A)
        for i in range(q):
            for j in range(q):
                A[i, j] = b * A[i, j] + c * square[i, j]
        matmul(product, G, A)
        for i in range(p):
            for j in range(q):
                G[i, j] = a * G[i, j] + product[i, j]
