"""Assumption B.1 at given tokens: some W in the cone of the d_k z_k^T has every margin equal to 1.

If it holds, that W is the Frobenius-norm solution, so a proved one with another margin refutes it.
With unit rows and their Gram matrix G it asks for G lam = b, lam >= 0, to a relative residual of
1e-9: the solution of a regular G decides, else non-negative least squares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.instances import Instance

RESIDUAL = 1e-9
REGULAR = 1e12
"""Condition number up to which G counts as regular."""

UNCLEAR = (0.5, 2.0)
"""Multiples of RESIDUAL between which rounding may decide."""


def assumption_b1(instance: Instance, tokens: NDArray[np.int64]) -> bool | None:
    """Return whether B.1 holds at `tokens` (n,); None if rounding decides, or no method ends."""
    sample, token = np.nonzero(instance.mask)
    others = token != tokens[sample]
    sample, token = sample[others], token[others]
    D = instance.X[sample, tokens[sample]] - instance.X[sample, token]
    Q = instance.Z[sample]
    sizes = [np.linalg.norm(part, axis=1) for part in (D, Q)]
    if not sample.size:
        return True
    if any((size == 0).any() for size in sizes):
        return False  # a zero row has margin 0
    D, Q = (part / size[:, None] for part, size in zip((D, Q), sizes, strict=True))
    b = np.prod([size.max() / size for size in sizes], axis=0)
    G = (D @ D.T) * (Q @ Q.T)
    if (least := _least_multiplier(G, b)) is not None:
        lam, inverse_size, error = least
        if lam >= error:
            return True
        if -(lam + error) / inverse_size > UNCLEAR[1] * RESIDUAL * np.linalg.norm(b):
            return False
    from scipy.optimize import nnls  # its import is slow, and few instances need it

    try:
        _, residual = nnls(G, b)
    except RuntimeError:
        return None
    ratio = residual / (RESIDUAL * np.linalg.norm(b))
    return None if UNCLEAR[0] < ratio < UNCLEAR[1] else bool(ratio <= 1)


def _least_multiplier(G: Array, b: Array) -> tuple[float, float, float] | None:
    """Return min_k lam_k of G lam = b, ||G^-1||_F, and the error of lam; None if G is singular."""
    try:
        np.linalg.cholesky(G)
        inverse = np.linalg.inv(G)
    except np.linalg.LinAlgError:
        return None
    size = float(np.linalg.norm(inverse))
    if size * np.linalg.norm(G) > REGULAR:
        return None
    lam = inverse @ b
    missed = np.linalg.norm(b - G @ lam) + len(G) * EPS * np.linalg.norm(G) * np.linalg.norm(lam)
    return float(lam.min()), size, float(2 * size * missed)
