"""Directions of matrices: their correlation, and one minus it to full relative accuracy."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnsvm.linalg import MATRIX, summed


def correlation(A: Any, B: Any) -> Any:
    """Return <A, B> / (||A||_F ||B||_F), one number per matrix.

    Parameters
    ----------
    A, B : (..., d, d)
        Tensors or arrays; leading axes broadcast.

    Returns
    -------
    (...)
        Array type as `A`; NaN where a matrix is zero or not finite.
    """
    return _over_units(lambda A, a, r, U: A / a / r * U, A, B)


def one_minus_correlation(A: Any, B: Any) -> Any:
    """Return 1 - correlation(A, B) as half the squared distance of the unit matrices.

    1 - <a, b> = ||a - b||^2 / 2 for ||a|| = ||b|| = 1. The right-hand side is accurate where the
    left one cancels: the left one loses half of its digits at 1e-8 and all of them at 1e-16.
    """
    return 0.5 * _over_units(lambda A, a, r, U: (A / a / r - U).square(), A, B)


def _over_units(term: Callable[..., Tensor], A: Any, B: Any) -> Any:
    """Return the sum of `term(A, a, r, U)` per matrix, A / a / r and U the units of A and B."""
    if not isinstance(A, Tensor):
        return _over_units(term, as_tensor(A), B).numpy()
    B = as_tensor(B, like=A)
    if A.shape[-2:] != B.shape[-2:]:
        raise ValueError(f"B: matrices of shape {tuple(B.shape[-2:])}; must be those of A, "
                         f"{tuple(A.shape[-2:])}")  # fmt: skip
    if any(a != b and 1 not in (a, b) for a, b in zip(A.shape[::-1], B.shape[::-1], strict=False)):
        raise ValueError(f"B: shape {tuple(B.shape)}; must be that of A, {tuple(A.shape)}, or "
                         "have 1 where it differs")  # fmt: skip
    return summed(term, A, *_size(A), unit(B))


def unit(A: Tensor) -> Tensor:
    """Return A / ||A||_F, (..., d, d); NaN where a matrix is zero or not finite."""
    a, r = _size(A)
    return (A / a).div_(r)


def _size(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = max |A_ij| and r = ||A / a||_F, (..., 1, 1): A / a / r has norm one."""
    largest = torch.maximum(A.amax(MATRIX, keepdim=True), -A.amin(MATRIX, keepdim=True))
    squares = summed(lambda A, a: (A / a).square(), A, largest)
    return largest, squares.sqrt()[..., None, None]


def as_tensor(A: Any, like: Tensor | None = None) -> Tensor:
    """Return A as a float64 tensor, on the device of `like` if that is given."""
    device = None if like is None else like.device
    return torch.as_tensor(A, dtype=torch.float64, device=device)
