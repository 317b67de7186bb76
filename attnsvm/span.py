"""The same problem in as many dimensions as its vectors span: cost independent of d."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.problem import ProblemBatch


def in_span(batch: ProblemBatch) -> tuple[ProblemBatch, Tensor]:
    """Return the batch in the span of its vectors, of dimension r = min(d, n (T + 1)).

    With x = E x' and z = E z' for all tokens and queries, every logit x^T W z is x'^T (E^T W E) z',
    and every gradient in W is E (.) E^T. Gradient descent from W0 = E W0' E^T, zero for example, is
    therefore W = E W' E^T at every step: same softmax, risk and norms, and the same SVM solutions
    W_mm = E W_mm' E^T in the Frobenius and the nuclear norm (lemma 1 of arXiv 2308.16898). What
    is drawn (init=uniform) is drawn in r dimensions. Optimizers that act entry by entry, such as
    adam, sign_gd and mirror_descent, depend on the basis.

    Parameters
    ----------
    batch : ProblemBatch
        B instances in d dimensions.

    Returns
    -------
    inside : ProblemBatch
        The same instances in r dimensions.
    basis : Tensor
        E, orthonormal columns, shape (B, d, r).

    Raises
    ------
    ConfigError
        If the head is not made of projections, so that it has no meaning in another basis.
    """
    one = batch.take(slice(1))
    if batch.head.features(one.X, one.head_parameters) is None:
        name = type(batch.head).__name__.lower()
        raise ConfigError(f"head={name}: allowed are heads of projections, as linear or relu")
    flat = batch.X.flatten(1, 2)
    basis, coordinates = torch.linalg.qr(torch.cat([flat, batch.Z], 1).mT)
    tokens, queries = coordinates.mT.split([flat.shape[1], batch.n], 1)
    parameters = {
        name: torch.einsum("bdr,bd...->br...", basis, p)
        for name, p in batch.head_parameters.items()
    }
    inside = dataclasses.replace(
        batch,
        X=tokens.unflatten(1, (batch.n, batch.T)).contiguous(),
        Z=queries.contiguous(),
        head_parameters=parameters,
    )
    return inside, basis
