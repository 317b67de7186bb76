"""The Frobenius norm, which is its own dual."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from attnsvm.norm import lp
from attnsvm.norm.base import CLARABEL, Norm


class Frobenius(Norm):
    """The root of the sum of squares, of the entries or of the singular values."""

    name = "frobenius"
    is_hilbert: ClassVar[bool] = True
    rotation_invariant: ClassVar[bool] = True
    programs = (CLARABEL,)

    def value(self, W: Tensor) -> Tensor:
        """Return ||W||_F."""
        return lp.size(W.flatten(-2), 2)

    def of_spectrum(self, sigma: Tensor) -> Tensor:
        """Return the Euclidean norm of the singular values."""
        return lp.size(sigma, 2)

    @property
    def dual(self) -> Frobenius:
        """The norm itself."""
        return self

    def steepest(self, M: Tensor) -> Tensor:
        """Return M / ||M||_F."""
        return lp.steepest(M.flatten(-2), 2).reshape(M.shape)

    def spread(self, d: int) -> float:
        """Return one."""
        return 1.0

    def expression(self, W: Any) -> Any:
        """Return ||W||_F."""
        import cvxpy as cp

        return cp.norm(W, "fro")
