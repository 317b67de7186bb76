"""A problem in the span of its vectors against the problem itself."""

from __future__ import annotations

import pytest
import torch

import attnsvm
from attnsvm.config import ConfigError
from attnsvm.span import in_span

MANY_DIMENSIONS = {"n": 2, "T": 3, "d": 17, "trials": 4}
HEADS = pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])


def lifted(W, basis):
    return basis @ W @ basis.mT


@HEADS
@pytest.mark.parametrize("d", [17, 5])
def test_it_is_an_isometric_copy(head, d):
    batch = attnsvm.sample(head=head, **MANY_DIMENSIONS | {"d": d})
    inside, basis = in_span(batch)
    assert inside.d == min(d, 2 * (3 + 1))
    torch.testing.assert_close(basis.mT @ basis, torch.eye(inside.d).double().expand(4, -1, -1))
    torch.testing.assert_close(torch.einsum("bdr,bntr->bntd", basis, inside.X), batch.X)
    torch.testing.assert_close(torch.einsum("bdr,bnr->bnd", basis, inside.Z), batch.Z)
    torch.testing.assert_close(inside.scores(), batch.scores())


@HEADS
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("fused", [True, False])
def test_training_from_zero_is_training(head, ridge, fused):
    batch = attnsvm.sample(head=head, **MANY_DIMENSIONS)
    inside, basis = in_span(batch)
    options = {"init": "zero", "steps": 40, "record_every": 20, "ridge": ridge, "fused": fused}
    path, small = attnsvm.train(batch, **options), attnsvm.train(inside, **options)
    torch.testing.assert_close(lifted(small.W, basis), path.W, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(small.loss, path.loss)
    torch.testing.assert_close(small.softmax, path.softmax)


def test_training_of_factors_from_a_start_in_the_span_is_training():
    batch = attnsvm.sample(**MANY_DIMENSIONS)
    inside, basis = in_span(batch)
    draws = torch.Generator().manual_seed(5)
    K, Q = (torch.randn(4, inside.d, 2, generator=draws, dtype=torch.float64) for _ in range(2))
    small = attnsvm.train(inside, "kq", m=2, init=(K, Q), steps=40)
    path = attnsvm.train(batch, "kq", m=2, init=(basis @ K, basis @ Q), steps=40)
    torch.testing.assert_close(lifted(small.W, basis), path.W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_its_svm_solution_is_the_svm_solution(norm):
    batch = attnsvm.sample(**MANY_DIMENSIONS)
    inside, basis = in_span(batch)
    selected = attnsvm.optimal_tokens(batch)[0]
    assert selected.equal(attnsvm.optimal_tokens(inside)[0])
    there, here = (attnsvm.solve_svm(b.X, b.Z, selected, norm=norm) for b in (inside, batch))
    assert [str(s) for s in here.status] == [str(s) for s in there.status] == ["solved"] * 4
    torch.testing.assert_close(
        torch.as_tensor(there.objective), torch.as_tensor(here.objective), rtol=1e-8, atol=0
    )
    if norm == "frobenius":
        torch.testing.assert_close(lifted(there.W, basis), here.W, rtol=1e-7, atol=1e-7)


def test_a_head_without_projections_is_refused():
    with pytest.raises(ConfigError, match=r"head=.*allowed are heads of projections"):
        in_span(attnsvm.sample(head="mlp", **MANY_DIMENSIONS))
