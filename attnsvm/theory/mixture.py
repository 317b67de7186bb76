"""The mixture of a sample's tokens that scores best, and the part of W that it determines."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Linear, Quadratic, Relu
from attnsvm.linalg import own_settings
from attnsvm.svm import finite_part
from attnsvm.svm.equalities import restoring

Array = NDArray[np.float64]

CLEAR = 1e-6
"""Least attention of an attended token, and slack of another relative to the largest inner product
of a token with v - 2 lambda o, that decide which are attended; least difference of the best scores,
relative to the largest; and least log-ratio that is not rounding."""

INDEPENDENT = 1e-6
"""Least relative singular value of vectors that count as independent, and least eigenvalue of the
Gram matrix of equations, relative to its trace."""


@own_settings()
def optimal_mixture(batch: ProblemBatch) -> Tensor:
    """Return the attention of least risk, s_i = argmax over the simplex of Y_i h(X_i^T s).

    By a loss that decreases no attention has a smaller one. Where Y_i h is convex, it is on the
    best token: a linear head, a relu head with Y_i = +1, a quadratic head with Y_i = -1. A
    quadratic head with Y_i = +1 scores const - lambda ||o - v / (2 lambda)||^2, so that o is the
    point of the tokens' convex hull nearest to v / (2 lambda).

    It is (B, n, T), and sums to one; NaN in an instance where it is not unique or not known: two
    tokens tie, rounding would decide which are attended, the head is another one or is trained.
    """
    head = batch.head
    if type(head) not in (Linear, Relu, Quadratic) or head.train:
        return torch.full_like(batch.X[..., 0], torch.nan)
    gamma = batch.scores()
    highest, at = gamma.max(-1, keepdim=True)
    second = gamma.scatter(2, at, -torch.inf).amax(-1, keepdim=True)
    size = torch.where(batch.mask, gamma.abs(), 0.0).amax(-1, keepdim=True)
    apart = highest - second > CLEAR * size
    mixture = torch.zeros_like(gamma).scatter(2, at, 1.0).where(apart, torch.nan)
    concave = batch.Y < 0 if type(head) is Relu else batch.Y > 0
    if type(head) is Relu:
        mixture[concave] = torch.nan
    elif isinstance(head, Quadratic) and head.lam > 0:
        arrays = batch.X.cpu().numpy(), batch.mask.cpu().numpy()
        v = batch.head_parameters["v"].cpu().numpy()
        for b, i in concave.nonzero().tolist():
            best = _best_mixture(arrays[0][b, i], v[b], head.lam, arrays[1][b, i])
            mixture[b, i] = torch.from_numpy(best).to(mixture)
    unknown = mixture.isnan().flatten(1).any(1)
    return torch.where(unknown[:, None, None], torch.nan, mixture)


def _best_mixture(X: Array, v: Array, lam: float, admissible: NDArray[np.bool_]) -> Array:
    """Return the s of the simplex of largest v^T o - lam ||o||^2, o = X^T s; NaN if unclear.

    X is (T, d), s (T,). It is best if g_t = x_t^T (v - 2 lam o) is the largest one, s^T g, of every
    token that it attends, and less of all others; it is the only one if the attended tokens are
    affinely independent. For small lam it is one token. Else, with A_t = 2 lam x_t - v, it is a
    multiple of the u >= 0 of least ||A^T u||^2 + (1^T u - 1)^2 (Lawson and Hanson, chapter 23),
    which says which tokens are attended: s on these follows more accurately from D s = const.
    """
    from scipy.optimize import nnls  # its import is slow, and few heads need it

    size = float(np.linalg.norm(X[admissible], axis=1).max())
    unit = size * (float(np.linalg.norm(v)) + 2 * lam * size)

    def slack(s: Array) -> Array:
        g = X @ (v - 2 * lam * (s @ X))
        return np.where(admissible, (s @ g - g) / unit, np.inf)

    scores = np.where(admissible, X @ v - lam * np.square(X).sum(1), -np.inf)
    single = np.zeros(len(X))
    single[scores.argmax()] = 1.0
    if (slack(single)[single == 0] >= CLEAR).all():
        return single
    A = 2 * lam * X[admissible] - v
    A = A / (np.abs(A).max() or 1.0)
    u, _ = nnls(np.vstack([A.T, np.ones(len(A))]), np.append(np.zeros(A.shape[1]), 1.0))
    on = np.flatnonzero(admissible)[u > 0]
    s = np.zeros(len(X))
    D = X[on[1:]] - X[on[0]]
    s[on[1:]] = np.linalg.lstsq(D @ D.T, D @ v / (2 * lam) - D @ X[on[0]], rcond=None)[0]
    s[on[0]] = 1 - s.sum()
    attended, left = s >= CLEAR, slack(s)
    sure = (attended | ((s == 0) & (left >= CLEAR))).all()
    sure &= bool((np.abs(left[attended]) <= 1e-12).all())
    D = X[attended] - X[attended][:1]
    sure = sure and np.linalg.matrix_rank(D, INDEPENDENT * np.linalg.norm(D, 2)) == len(D) - 1
    return s if sure else np.full(len(X), np.nan)


@own_settings()
def finite_part_distance(batch: ProblemBatch, mixture: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the map of W (B, d, d) to ||P W - W_fin||_F / ||W_fin||_F, (B,), of given mixtures.

    W_fin = argmin ||W||_F  s.t.  (x_it - x_iu)^T W z_i = log(s_it / s_iu)  for t, u attended. It is
    the projection P of every W that meets these equations on the span of their rows, so that
    P W - W_fin is the step from the nearest point where they hold to W.

    The distance is NaN where the mixture s, (B, n, T), is, where all log-ratios are below 1e-6, and
    where the equations are not independent.
    """
    known = ~mixture.isnan().flatten(1).any(1)
    single = torch.zeros_like(mixture).scatter(2, batch.mask.to(mixture).argmax(2, True), 1.0)
    s = torch.where(known[:, None, None], mixture, single)
    problem = finite_part(batch.X, batch.Z, s > 0, s.log(), batch.mask)
    rows, restored = problem.equality, restoring(problem)
    D, Q = (torch.where(rows[..., None], V, 0.0) for V in (problem.D, problem.queries))
    gram = (D @ D.mT) * (Q @ Q.mT)
    trace = gram.diagonal(dim1=1, dim2=2).sum(1)
    padded = gram + torch.diag_embed(torch.where(rows, 0.0, trace[:, None]))
    independent = torch.linalg.eigvalsh(padded).amin(1) > INDEPENDENT * trace
    defined = known & (problem.h.abs().amax(1) >= CLEAR) & independent

    def missed(W: Tensor) -> Tensor:
        return (restored(W) - W).flatten(1).norm(dim=1)

    size = missed(batch.X.new_zeros(batch.B, batch.d, batch.d))
    return lambda W: torch.where(defined, missed(W) / size, torch.nan)
