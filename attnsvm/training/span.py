"""The same problem in as many dimensions as its vectors span: cost independent of d.

The tokens and queries of an instance are the rows of V = L E^T, E with orthonormal columns.
Training needs only the coordinates L and the head in them. L is the Cholesky factor of the inner
products V V^T: one pass over the vectors, while Householder reflections take many. Cholesky squares
the condition number, so reflections are used for instances with (nearly) dependent vectors.
"""

import dataclasses

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.linalg import orthonormal, own_settings, times
from attnsvm.problem import ProblemBatch

APART = 0.1
"""Cholesky is used if every vector has at least this sine to the span of the other vectors.

Its distance from that span then has a relative error of about eps / APART^2 = 2e-14.
"""

SQUARES = (1e-200, 1e200)
"""Range of squared lengths for which inner products neither overflow nor lose digits."""


@own_settings()
def in_span(batch: ProblemBatch) -> ProblemBatch:
    """Return the batch in the span of its vectors, of dimension r = min(d, n (T + 1)).

    With x = E x' and z = E z' for all tokens and queries, every logit x^T W z is x'^T (E^T W E) z',
    and every gradient in W is E (.) E^T. Gradient descent from W0 = E W0' E^T, zero for example, is
    therefore W = E W' E^T at every step: same softmax, risk and norms, and the same SVM solutions
    W_mm = E W_mm' E^T in the Frobenius and the nuclear norm (lemma 1 of arXiv 2308.16898). Random
    initial weights (init=uniform) are drawn in r dimensions. Optimizers that act on each entry,
    such as adam, sign_gd and mirror_descent, depend on the basis E, `span_basis(batch)`.

    Parameters
    ----------
    batch : ProblemBatch
        B instances in d dimensions.

    Returns
    -------
    ProblemBatch
        The same instances in r dimensions.

    Raises
    ------
    ConfigError
        If the head is not made of projections, so that it is not defined in another basis.
    """
    if batch.weights is not None:
        raise ConfigError("weights: must be none: those of data=pretrained are in a span already")
    first = batch.take(slice(1))
    if batch.head.features(first.X, first.head_parameters) is None:
        name = type(batch.head).__name__.removesuffix("Head").lower()
        raise ConfigError(f"head={name}: must be a head of projections, such as linear or relu")
    L, inverse, near = _cholesky(batch)
    flat = {name: p.reshape(batch.B, batch.d, -1) for name, p in batch.head_parameters.items()}
    inside = {name: times(inverse, _products(batch, p)) for name, p in flat.items()}
    if near.any():
        basis, R = orthonormal(_vectors(batch.take(near)).mT)
        L[near] = R.mT
        for name, p in flat.items():
            inside[name][near] = times(basis.mT, p[near])
    return dataclasses.replace(
        batch,
        X=L[:, : -batch.n].contiguous().view(batch.B, batch.n, batch.T, -1),
        Z=L[:, -batch.n :].contiguous(),
        head_parameters={
            name: inside[name].reshape(batch.B, -1, *p.shape[2:])
            for name, p in batch.head_parameters.items()
        },
    )


@own_settings()
def span_basis(batch: ProblemBatch) -> Tensor:
    """Return E of `in_span`, orthonormal columns, shape (B, d, r): W = E W' E^T and K = E K'.

    It is as large as the batch. For a few instances use `span_basis(batch.take(...))`.
    """
    _, inverse, near = _cholesky(batch)
    E = times(inverse, _vectors(batch)).mT
    if near.any():
        E[near] = orthonormal(_vectors(batch.take(near)).mT)[0]
    return E


def _cholesky(batch: ProblemBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return L with V V^T = L L^T, its inverse, and which instances have nearly dependent vectors.

    Shapes (B, n (T + 1), r), (B, r, n (T + 1)) and (B,); where `near` the inverse is zero.
    """
    count = batch.n * (batch.T + 1)
    if batch.d < count:
        L = batch.X.new_zeros(batch.B, count, batch.d)
        return L, L.mT, torch.ones(batch.B, dtype=torch.bool, device=L.device)
    gram = batch.X.new_zeros(batch.B, count, count)  # only the lower half is used
    gram[:, :, : -batch.n] = _products(batch, batch.X.flatten(1, 2).mT)
    gram[:, -batch.n :, -batch.n :] = times(batch.Z, batch.Z.mT)
    L, failed = torch.linalg.cholesky_ex(gram)
    unit = torch.eye(count, dtype=L.dtype, device=L.device)
    inverse = torch.linalg.solve_triangular(L, unit, upper=False)
    squares = gram.diagonal(dim1=1, dim2=2)
    distances = 1 / torch.linalg.vector_norm(inverse, dim=1)
    apart = (squares > SQUARES[0]) & (squares < SQUARES[1]) & (distances >= APART * squares.sqrt())
    near = (failed != 0) | ~apart.all(1)
    return L, inverse.masked_fill_(near[:, None, None], 0), near


def _vectors(batch: ProblemBatch) -> Tensor:
    """Return V, shape (B, n (T + 1), d)."""
    return torch.cat([batch.X.flatten(1, 2), batch.Z], 1)


def _products(batch: ProblemBatch, columns: Tensor) -> Tensor:
    """Return V P, shape (B, n (T + 1), k), of columns P, shape (B, d, k), without a copy of V."""
    tokens = batch.X.flatten(1, 2)
    return torch.cat([times(tokens, columns), times(batch.Z, columns)], 1)
