"""A problem in the span of its vectors against the problem itself."""

import dataclasses

import numpy as np
import pytest
import torch

import attnsvm
from attnsvm.config import ConfigError
from attnsvm.training.span import in_span, span_basis

pytestmark = pytest.mark.processors

MANY_DIMENSIONS = {"n": 2, "T": 3, "d": 17, "trials": 4}
KINDS = [1.0, 0.2, 0.12, 0.08, 1e-3, 1e-6, "self-attention", "copied", "zero", "sum"]
"""Sines of vectors to the span of the others, APART among them; or which vectors are in it."""


def instances(kind):
    """Return instances whose vectors are nearly, or some of them exactly, dependent."""
    d = 400 if isinstance(kind, float) else 17
    batch = attnsvm.sample("sphere", **MANY_DIMENSIONS | {"d": d})
    X, Z = batch.X.clone(), batch.Z.clone()
    if isinstance(kind, float):
        common = torch.eye(d, dtype=torch.float64)[0]
        X, Z = common + kind * X, common + kind * Z
    elif kind == "self-attention":
        Z = X[:, :, 0].contiguous()
    elif kind == "copied":
        X[1:3, 0, 1] = X[1:3, 1, 2]
    elif kind == "zero":
        X[0, 0, 1] = 0
        Z[1, 0] = 0
    else:
        X[2:, 1, 0] = X[2:, 0].sum(1)
    return dataclasses.replace(batch, X=X, Z=Z)


def vectors(batch):
    return torch.cat([batch.X.flatten(1, 2), batch.Z], 1)


def inner_products(batch):
    """Return all inner products, beyond double precision."""
    V = vectors(batch).numpy().astype(np.longdouble)
    return V @ V.swapaxes(1, 2)


@pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
@pytest.mark.parametrize("d", [17, 8, 5])
def test_it_is_an_isometric_copy(head, d):
    batch = attnsvm.sample(head=head, **MANY_DIMENSIONS | {"d": d})
    inside, basis = in_span(batch), span_basis(batch)
    assert inside.d == min(d, 2 * (3 + 1))
    torch.testing.assert_close(basis.mT @ basis, torch.eye(inside.d).double().expand(4, -1, -1))
    torch.testing.assert_close(torch.einsum("bdr,bntr->bntd", basis, inside.X), batch.X)
    torch.testing.assert_close(torch.einsum("bdr,bnr->bnd", basis, inside.Z), batch.Z)
    torch.testing.assert_close(inside.scores(), batch.scores())


@pytest.mark.full
@pytest.mark.parametrize("scale", [1e-160, 1.0, 1e160])
@pytest.mark.parametrize("kind", KINDS)
def test_inner_products_are_kept_to_rounding(kind, scale):
    drawn = instances(kind)
    batch = dataclasses.replace(drawn, X=scale * drawn.X, Z=scale * drawn.Z)
    inside, basis = in_span(batch), span_basis(batch)
    exact, ours = inner_products(batch), inner_products(inside)
    lengths = np.sqrt(np.einsum("bii->bi", exact))
    assert (abs(ours - exact) <= 1e-14 * lengths[:, :, None] * lengths[:, None, :]).all()
    heads = inside.head_parameters["v"], batch.head_parameters["v"]
    there, here = (
        torch.einsum("bkd,bd->bk", vectors(b), v)
        for b, v in zip((inside, batch), heads, strict=True)
    )
    assert ((there - here).abs().numpy() <= 1e-14 * lengths).all()
    unit = torch.eye(inside.d, dtype=torch.float64)
    assert (basis.mT @ basis - unit).abs().max() <= 1e-12
    errors = (vectors(inside) @ basis.mT - vectors(batch)).abs().amax(2).numpy()
    assert (errors <= 1e-14 * lengths).all()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS[2:5] + KINDS[6:])
def test_training_and_selection_are_those_of_many_dimensions(kind):
    batch = instances(kind)
    inside, basis = in_span(batch), span_basis(batch)
    small, path = (attnsvm.train(b, init="zero", steps=300) for b in (inside, batch))
    torch.testing.assert_close(basis @ small.W @ basis.mT, path.W, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(small.loss, path.loss, rtol=1e-12, atol=0)
    selected = attnsvm.select_tokens(batch, path).selected
    assert selected.equal(attnsvm.select_tokens(inside, small).selected)


def test_a_head_without_projections_is_refused():
    with pytest.raises(ConfigError, match=r"head=.*must be a head of projections"):
        in_span(attnsvm.sample(head="mlp", **MANY_DIMENSIONS))
