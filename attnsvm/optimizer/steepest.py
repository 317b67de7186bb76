"""Normalised steepest descent in a norm: `optimizer=steepest | sign_gd | muon`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config import optimizer as schema
from attnsvm.config.words import rows
from attnsvm.head import Head
from attnsvm.nn.risk import Risk
from attnsvm.norm import norm_of
from attnsvm.optimizer.base import TINY, FirstOrder, Step, broadcast, norm
from attnsvm.parameterization import Variables

Polynomial = tuple[float, float, float]
"""a, b and c of the odd polynomial a x + b x^3 + c x^5."""

PUBLISHED: dict[str, list[Polynomial]] = {"exact": []}
"""The polynomials of Muon's Newton-Schulz steps, by `polynomial`; the last one is repeated."""
for _row in rows(Path(__file__).with_name("polynomials.csv")):
    _one = float(_row["a"]), float(_row["b"]), float(_row["c"])
    PUBLISHED.setdefault(_row["name"], []).append(_one)


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
