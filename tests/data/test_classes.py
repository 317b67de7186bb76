"""Linear classifiers as one layer of attention: their W, their SVM, the odds of soft labels."""

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from attnsvm import sample, solve_least_norm, solve_svm
from attnsvm.loss import Log
from attnsvm.sweeps.claims.arrays import odds_missed
from tests.kkt import assert_near
from tests.theory.test_token_graph import separated


@pytest.mark.parametrize(("K", "d"), [(2, 5), (5, 3)])
def test_the_svm_of_classes_is_the_multi_class_svm(K, d):
    """Its W is the smallest with (w_y - w_c)^T x >= 1 for every point and every c != y."""
    batch = sample("classes", n=12, K=K, d=d, trials=2)
    same = sample("classes", model="linear", n=12, K=K, d=d, trials=2)
    assert all(getattr(same, name).equal(getattr(batch, name)) for name in "XZY")
    labels = batch.scores().argmax(-1)
    objectives = solve_svm(batch.X, batch.Z, labels).objective
    for x, y, objective in zip(batch.Z[:, :, :d], labels, objectives, strict=True):
        points, others = [*zip(*[(i, c) for i in range(12) for c in range(K) if c != y[i]])]  # noqa: B905
        points, basis = list(points), torch.eye(K, dtype=torch.float64)
        factors = basis[y[points]] - basis[list(others)], x[points]
        svm = solve_least_norm(factors, torch.ones(len(points)), "frobenius")
        assert objective.item() == pytest.approx(svm.objective.item(), rel=1e-9)


@pytest.mark.parametrize(("d", "compatible"), [(8, True), (3, False)])
def test_the_finite_part_has_the_log_odds_of_the_labels_where_some_weights_do(d, compatible):
    batch = sample("contexts", n=60, K=4, d=d, contexts=6, support=3, trials=4)
    work = separated(batch, Log())
    arrays = work.findings.arrays | {"Z": batch.Z, "scores": batch.scores()}
    missed = odds_missed({name: np.asarray(array) for name, array in arrays.items()})
    for Z, scores, W, b in zip(batch.Z, batch.scores(), arrays["frobenius_fin_W"], missed):  # noqa: B905
        odds = [(W @ z)[:4] - scores[(z == Z).all(-1), :4].sum(0).log() for z in Z]
        assert b == pytest.approx(
            max(np.ptp(logs[logs.isfinite()].numpy()) for logs in odds), abs=1e-6
        )
    assert ((missed < 1e-6) if compatible else (missed > 1e-2)).all()


def test_points_are_of_the_kind_that_is_asked_for_and_separable():
    """Entries of one size in each sample; a covariance whose spectrum is a geometric series."""
    signs = sample("classes", n=12, K=3, d=5, points="rademacher", margin=0.0, trials=3)
    size = signs.Z.abs() * 5**0.5
    assert_near(size, size[..., :1].expand_as(size), rtol=1e-15)
    assert 0.5 <= size.min() < 0.6 < 1.4 < size.max() <= 1.5
    assert {*solve_svm(signs.X, signs.Z, signs.scores().argmax(-1)).status} == {"solved"}
    plain, long = (sample("classes", n=9, d=8, margin=0.0, condition=c).Z for c in (1.0, 1e4))
    spectrum = torch.logspace(0, -2, 8, dtype=torch.float64)
    assert_near(long, plain * spectrum, rtol=1e-14)


@pytest.mark.parametrize(("K", "d"), [(3, 5), (6, 2)])
def test_a_bias_is_the_last_column_of_points_that_are_moved(K, d):
    """Points and labels are those without, moved, and still separable."""
    plain, moved = (sample("classes", n=9, K=K, d=d, trials=4, bias=b) for b in (False, True))
    shift = (moved.Z[..., :d] - plain.Z[..., :d])[:, :1]
    assert shift.norm(dim=2).numpy() == pytest.approx(1, rel=1e-6)  # drawn in float32
    expected = pad(plain.Z[..., :d] + shift, (0, max(K, d + 1) - d))
    expected[..., -1] = d**-0.5
    assert_near(moved.Z, expected, atol=1e-15)
    assert {*solve_svm(moved.X, moved.Z, plain.scores().argmax(-1)).status} == {"solved"}
