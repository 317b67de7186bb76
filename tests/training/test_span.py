"""A problem in the span of its vectors against the problem itself."""

import dataclasses

import numpy as np
import pytest
import torch

import attnsvm
from attnsvm.config import ConfigError
from attnsvm.training.span import in_span, span_basis
from tests.quick import quick_rows

pytestmark = pytest.mark.processors

SHAPE = {"n": 2, "T": 3, "trials": 4}
KINDS = [1.0, 1e-3, 1e-6, "self-attention", "zero", "sum"]
"""Sines of vectors to the span of the others; or which vectors are in it."""


def instances(kind, d=17, head="linear"):
    """Return instances whose vectors are nearly, or some of them exactly, dependent."""
    batch = attnsvm.sample("sphere", head=head, **SHAPE, d=400 if isinstance(kind, float) else d)
    X, Z = batch.X.clone(), batch.Z.clone()
    if isinstance(kind, float):
        common = torch.eye(400, dtype=torch.float64)[0]
        X, Z = common + kind * X, common + kind * Z
    elif kind == "self-attention":
        Z = X[:, :, 0].contiguous()
    elif kind == "zero":
        X[0, 0, 1] = 0
        Z[1, 0] = 0
    elif kind == "sum":
        X[2:, 1, 0] = X[2:, 0].sum(1)
    return dataclasses.replace(batch, X=X, Z=Z)


def vectors(batch):
    return torch.cat([batch.X.flatten(1, 2), batch.Z], 1)


def inner_products(batch):
    """Return all inner products, beyond double precision."""
    V = vectors(batch).numpy().astype(np.longdouble)
    return V @ V.swapaxes(1, 2)


CASES = quick_rows(
    ("as drawn", 1.0, 5, "relu"),
    ("as drawn", 1.0, 17, "quadratic"),
    ("as drawn", 1.0, 8, "linear"),
    *((kind, scale, 17, "linear") for kind in KINDS for scale in (1e-160, 1.0, 1e160)),
)


@pytest.mark.parametrize(("kind", "scale", "d", "head"), CASES)
def test_it_is_an_isometric_copy_to_rounding(kind, scale, d, head):
    drawn = instances(kind, d, head)
    batch = dataclasses.replace(drawn, X=scale * drawn.X, Z=scale * drawn.Z)
    inside, basis = in_span(batch), span_basis(batch)
    assert inside.d == min(batch.d, 2 * (3 + 1))
    exact, ours = inner_products(batch), inner_products(inside)
    lengths = np.sqrt(np.einsum("bii->bi", exact))
    assert (abs(ours - exact) <= 1e-14 * lengths[:, :, None] * lengths[:, None, :]).all()
    errors = (inside.scores() - batch.scores()).abs().numpy()
    assert (errors <= 1e-13 * lengths[:, :-2].reshape(4, 2, 3)).all()
    unit = torch.eye(inside.d, dtype=torch.float64)
    assert (basis.mT @ basis - unit).abs().max() <= 1e-12
    errors = (vectors(inside) @ basis.mT - vectors(batch)).abs().amax(2).numpy()
    assert (errors <= 1e-14 * lengths).all()


def test_a_head_without_projections_is_refused():
    with pytest.raises(ConfigError, match=r"head=.*must be a head of projections"):
        in_span(instances("as drawn", head="mlp"))
