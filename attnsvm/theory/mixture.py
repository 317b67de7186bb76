"""The mixture of a sample's tokens that scores best, and the part of W that it determines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.head import Linear, Quadratic, Relu
from attnsvm.problem import ProblemBatch

Array = NDArray[np.float64]

CLEAR = 1e-6
"""Least attention of an attended token, and slack of another, that decide which are attended; and
least log-ratio that is not rounding."""

INDEPENDENT = 1e-6
"""Least relative singular value of vectors that count as independent, and least eigenvalue of the
Gram matrix of equations, relative to its trace."""


def optimal_mixture(batch: ProblemBatch) -> Tensor:
    """Return the attention of least risk, s_i = argmax over the simplex of Y_i h(X_i^T s).

    By a loss that decreases no attention has a smaller one. Where Y_i h is convex, it is on the
    best token: a linear head, a relu head with Y_i = +1, a quadratic head with Y_i = -1. A
    quadratic head with Y_i = +1 scores const - lambda ||o - v / (2 lambda)||^2, so that o is the
    point of the tokens' convex hull nearest to v / (2 lambda).

    Returns
    -------
    Tensor
        (B, n, T), sums to one; NaN in an instance where it is not unique or not known: two tokens
        tie, rounding would decide which are attended, the head is another one or is trained.
    """
    head = batch.head
    if type(head) not in (Linear, Relu, Quadratic) or head.train:
        return torch.full_like(batch.X[..., 0], torch.nan)
    gamma = batch.scores()
    best, at = gamma.max(-1, keepdim=True)
    second = gamma.scatter(2, at, -torch.inf).amax(-1, keepdim=True)
    apart = best - second > CLEAR
    mixture = torch.zeros_like(gamma).scatter(2, at, 1.0).where(apart, torch.nan)
    concave = batch.Y < 0 if type(head) is Relu else batch.Y > 0
    if type(head) is Relu:
        mixture[concave] = torch.nan
    elif isinstance(head, Quadratic) and head.lam > 0:
        given = batch.X.cpu().numpy(), batch.mask.cpu().numpy()
        centres = batch.head_parameters["v"].cpu().numpy() / (2 * head.lam)
        for b, i in concave.nonzero().tolist():
            nearest = _nearest_mixture(given[0][b, i] - centres[b], given[1][b, i])
            mixture[b, i] = torch.from_numpy(nearest).to(mixture)
    unknown = mixture.isnan().flatten(1).any(1)
    return torch.where(unknown[:, None, None], torch.nan, mixture)


def _nearest_mixture(A: Array, admissible: NDArray[np.bool_]) -> Array:
    """Return the s of the simplex of least ||A^T s||, (T,), for points A (T, d); NaN if unclear.

    The u >= 0 of least ||A^T u||^2 + (1^T u - 1)^2 is a multiple of s (Lawson and Hanson, chapter
    23). With o = A^T s it is the only one if the points with A_t^T o = ||o||^2 are affinely
    independent.
    """
    from scipy.optimize import nnls  # its import is slow, and few heads need it

    s = np.zeros(len(A))
    rows = np.vstack([A[admissible].T, np.ones(admissible.sum())])
    u, _ = nnls(rows, np.append(np.zeros(A.shape[1]), 1.0))
    s[admissible] = u / u.sum()
    o = s @ A
    slack = np.where(admissible, A @ o - o @ o, np.inf)
    size = float(np.square(A[admissible]).sum(1).max())
    attended = s >= CLEAR
    sure = (attended | ((s == 0) & (slack >= CLEAR * size))).all()
    sure &= bool((np.abs(slack[attended]) <= 1e-12 * size).all())
    return s if sure and _independent(A[attended] - A[attended][0]) else np.full(len(A), np.nan)


def _independent(D: Array) -> bool:
    """Return whether the rows after the first, which is zero, are independent."""
    sigma = np.linalg.svd(D[1:], compute_uv=False)
    return len(D) == 1 or (len(sigma) == len(D) - 1 and sigma[-1] > INDEPENDENT * sigma[0])


@dataclass(frozen=True)
class PredictedPart:
    """W_fin of an instance: least Frobenius norm with the log-ratios of given mixtures.

    W_fin = argmin ||W||_F  s.t.  (x_it - x_iu)^T W z_i = log(s_it / s_iu)  for t, u attended. It is
    the projection of every W that meets these equations on the span of their rows.

    Attributes
    ----------
    D, Z : Array
        Token differences and queries of the equations, (r, d).
    ratios : Array
        Log-ratios, (r,).
    gram : Array
        (D D^T) o (Z Z^T), (r, r).
    """

    D: Array
    Z: Array
    ratios: Array
    gram: Array

    @classmethod
    def of(cls, X: Array, Z: Array, mixture: Array) -> PredictedPart | None:
        """Return that of tokens X (n, T, d), queries Z (n, d) and mixture (n, T).

        None if the mixture is not known, all log-ratios are below 1e-6, or the equations are not
        independent.
        """
        if np.isnan(mixture).any():
            return None
        first = mixture.argmax(1)
        sample, token = np.nonzero(mixture)
        others = token != first[sample]
        sample, token = sample[others], token[others]
        D, queries = X[sample, first[sample]] - X[sample, token], Z[sample]
        ratios = np.log(mixture[sample, first[sample]] / mixture[sample, token])
        gram = (D @ D.T) * (queries @ queries.T)
        equal = np.abs(ratios).max(initial=0.0) < CLEAR
        if equal or np.linalg.eigvalsh(gram)[0] <= INDEPENDENT * np.trace(gram):
            return None
        return cls(D, queries, ratios, gram)

    def apart(self, W: Array) -> float:
        """Return ||P W - W_fin||_F / ||W_fin||_F, P the projection on the span of the rows."""
        missed = np.einsum("rd,de,re->r", self.D, W, self.Z) - self.ratios
        squares = (r @ np.linalg.solve(self.gram, r) for r in (missed, self.ratios))
        moved, size = (math.sqrt(max(float(square), 0.0)) for square in squares)
        return moved / size
