"""The same problem in as many dimensions as its vectors span: cost independent of d."""

import dataclasses

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import orthonormal, own_settings, times


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
    basis, R = _in_basis(batch)
    inside = R.mT.contiguous()
    flat = {name: p.reshape(batch.B, batch.d, -1) for name, p in batch.head_parameters.items()}
    return dataclasses.replace(
        batch,
        X=inside[:, : -batch.n].reshape(batch.B, batch.n, batch.T, -1),
        Z=inside[:, -batch.n :],
        head_parameters={
            name: times(basis.mT, flat[name]).reshape(batch.B, -1, *p.shape[2:])
            for name, p in batch.head_parameters.items()
        },
    )


@own_settings()
def span_basis(batch: ProblemBatch) -> Tensor:
    """Return E of `in_span`, orthonormal columns, shape (B, d, r): W = E W' E^T and K = E K'.

    It is as large as the batch. For a few instances use `span_basis(batch.take(...))`.
    """
    return _in_basis(batch)[0]


def _in_basis(batch: ProblemBatch) -> tuple[Tensor, Tensor]:
    """Return E (B, d, r), and the tokens and queries in it as columns, (B, r, n (T + 1))."""
    return orthonormal(torch.cat([batch.X.flatten(1, 2), batch.Z], 1).mT)
