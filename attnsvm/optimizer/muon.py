"""`optimizer=muon`: momentum, made nearly orthogonal by Newton-Schulz steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.head import Head
from attnsvm.optimizer.base import broadcast, norm
from attnsvm.optimizer.first_order import TINY
from attnsvm.optimizer.steepest import Steepest

COEFFICIENTS = 3.4445, -4.7750, 2.0315


@dataclass(kw_only=True, eq=False)
class Muon(Steepest):
    """Steps along U f(sigma) V^T of the Nesterov momentum, f(sigma) near one (K. Jordan 2024).

    M <- beta M + (1 - beta) grad,  D = (1 - beta) grad + beta M,  X = D / ||D||_F, then
    `newton_schulz_steps` times X <- a X + (b A + c A^2) X, A = X X^T; V <- V - eta X, times the
    root of rows / columns where V has more rows. It is the published rule but for its precision:
    float64 instead of bfloat16, and exact where the gradient underflows. Singular values of X above
    0.002 come to between 0.68 and 1.21 in five steps; smaller ones do not.

    Parameters
    ----------
    newton_schulz_steps : int
        Number of Newton-Schulz steps.
    """

    norm: str = field(default="spectral", init=False)
    newton_schulz_steps: int

    implicit_bias = None
    """Not known: the singular values of a step are near one, not one."""

    def check_head(self, head: Head) -> None:
        """Raise ConfigError if the head is trained: its parameters need not be matrices."""
        if head.train:
            raise ConfigError("optimizer=muon: head.train must be false: its steps are of matrices")

    def direction(self, M: Tensor) -> Tensor:
        """Return X of the momentum M, times the root of rows / columns where that is above one."""
        return self.stretch(*M.shape[-2:]) * newton_schulz(M, self.newton_schulz_steps)

    def stretch(self, rows: int, columns: int) -> float:
        """Return the root of rows / columns where that is above one, else one."""
        return math.sqrt(max(1.0, rows / columns))


def newton_schulz(M: Tensor, steps: int) -> Tensor:
    """Return U f(sigma / ||sigma||) V^T of M = U diag(sigma) V^T, (B, p, q); zero where M is.

    f is the odd polynomial a x + b x^3 + c x^5, `steps` times.
    """
    a, b, c = COEFFICIENTS
    X = M / broadcast(norm(M) + TINY, M)
    if tall := X.shape[-2] > X.shape[-1]:
        X = X.mT
    for _ in range(steps):
        A = torch.bmm(X, X.mT)
        X = a * X + torch.bmm(b * A + c * torch.bmm(A, A), X)
    return X.mT if tall else X
