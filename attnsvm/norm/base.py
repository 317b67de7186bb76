"""What a norm is: its value, dual and steepest direction, and what solvers need to know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from attnsvm.config import ConfigError

if TYPE_CHECKING:
    from attnsvm.norm.cone import Cone
    from attnsvm.norm.rows import Rows

Proximal: TypeAlias = tuple[Tensor, Callable[[Tensor], Tensor]]
"""V = prox(X) and the derivative at X, a linear map of matrices (..., p, q)."""

Options = Mapping[str, Any]
"""Options of CVXPY: a solver and its tolerances."""

CLARABEL: Options = {
    "solver": "CLARABEL",
    "tol_gap_abs": 1e-11,
    "tol_gap_rel": 1e-11,
    "tol_feas": 1e-11,
}

FIRST_ORDER: Options = {"solver": "SCS", "eps": 1e-12, "max_iters": 20000}
"""For a norm without a cone: slow, but it keeps digits where Clarabel loses them."""


class Norm(ABC):
    """A norm of matrices.

    A norm of one's own defines value, dual, steepest and spread, and `expression` for CVXPY, which
    then solves its SVMs. A norm with a cone and a proximal map is solved by our own method.

    Attributes
    ----------
    name : str
        As a user types it.
    is_hilbert : bool
        Whether it is the Frobenius norm, of which ||W||^2 is a quadratic form.
    rotation_invariant : bool
        Whether U W V^T has the same norm for all orthogonal U, V: then `of_spectrum` is defined.
    separable : bool
        Whether the proximal map acts on each entry alone.
    bounds_rank : bool
        Whether the dual solution bounds the rank of the primal one.
    programs : tuple of mappings
        Options with which CVXPY may narrow a bracket that the own method leaves open.
    """

    name: str
    is_hilbert: bool = False
    rotation_invariant: bool = False
    separable: bool = False
    bounds_rank: bool = False
    programs: tuple[Options, ...] = (CLARABEL, FIRST_ORDER)

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

    def of_spectrum(self, sigma: Tensor) -> Tensor:
        """Return the norm of matrices with singular values `sigma` (..., r)."""
        raise NotImplementedError(f"{self!r} is not a function of singular values")

    def path(self) -> Sequence[Norm]:
        """Return the norms whose solutions lead from the Frobenius one to this; none without cone.

        Each solution is the start of the next; the last norm is this one.
        """
        return ()

    def cone(self, rows: Rows) -> Cone[Any]:
        """Return the cone of the interior-point method on these rows."""
        raise NotImplementedError(f"{self!r} has no cone")

    def prox(self, X: Tensor, tau: float) -> Proximal:
        """Return the minimiser of tau norm(V) + ||V - X||_F^2 / 2, V (p, q), and its derivative."""
        raise NotImplementedError(f"{self!r} has no proximal map")

    def expression(self, W: Any) -> Any:
        """Return norm(W) as an expression of CVXPY."""
        raise ConfigError(f"norm={self.name}: CVXPY does not know it; must have `expression(W)`")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"
