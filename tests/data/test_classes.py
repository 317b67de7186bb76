"""Linear classifiers as one layer of attention: their W, their SVM, the odds of soft labels."""

import numpy as np
import pytest
import torch
from torch.func import grad
from torch.nn.functional import cross_entropy, pad

from attnsvm import sample, solve_least_norm, solve_svm, train
from attnsvm.config import ConfigError
from attnsvm.experiment import run
from attnsvm.experiment.results import OK, marked
from attnsvm.loss import Log
from attnsvm.sweeps.claims.arrays import odds_missed
from tests.config.test_config import composed
from tests.theory.test_token_graph import separated

SOURCES = [("classes", {"K": 2, "d": 5}), ("classes", {"K": 5, "d": 3}), ("contexts", {"d": 9})]


@pytest.mark.parametrize(("data", "size"), SOURCES)
def test_training_is_that_of_a_linear_layer_with_cross_entropy(data, size):
    """Beyond K and d nothing moves."""
    batch, K, d = sample(data, n=12, trials=2, **size), size.get("K", 6), size["d"]
    same = sample(data, model="linear", n=12, trials=2, **size)
    assert all(getattr(same, name).equal(getattr(batch, name)) for name in "XZY")
    path = train(same, optimizer="gd", loss="cross_entropy", lr=0.5, steps=200, init="zero")
    labels = batch.scores().argmax(-1)
    for W, x, y in zip(path.W, batch.Z[:, :, :d], labels, strict=True):
        expected = torch.zeros_like(W)
        weight = expected[:K, :d]
        for _ in range(200):
            weight -= 0.5 * grad(lambda V: cross_entropy(x @ V.mT, y))(weight)  # noqa: B023
        torch.testing.assert_close(W, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("K", "d"), [(2, 5), (5, 3)])
def test_the_svm_of_classes_is_the_multi_class_svm(K, d):
    """Its W is the smallest with (w_y - w_c)^T x >= 1 for every point and every c != y."""
    batch = sample("classes", n=12, K=K, d=d, trials=2)
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
    torch.testing.assert_close(size, size[..., :1].expand_as(size), rtol=1e-15, atol=0)
    assert 0.5 <= size.min() < 0.6 < 1.4 < size.max() <= 1.5
    assert {*solve_svm(signs.X, signs.Z, signs.scores().argmax(-1)).status} == {"solved"}
    plain, long = (sample("classes", n=9, d=8, margin=0.0, condition=c).Z for c in (1.0, 1e4))
    spectrum = torch.logspace(0, -2, 8, dtype=torch.float64)
    torch.testing.assert_close(long, plain * spectrum, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("K", "d"), [(3, 5), (6, 2)])
def test_a_bias_is_the_last_column_of_points_that_are_moved(K, d):
    """Points and labels are those without, moved, and still separable."""
    plain, moved = (sample("classes", n=9, K=K, d=d, trials=4, bias=b) for b in (False, True))
    shift = (moved.Z[..., :d] - plain.Z[..., :d])[:, :1]
    assert shift.norm(dim=2).numpy() == pytest.approx(1, rel=1e-6)  # drawn in float32
    expected = pad(plain.Z[..., :d] + shift, (0, max(K, d + 1) - d))
    expected[..., -1] = d**-0.5
    torch.testing.assert_close(moved.Z, expected, rtol=0, atol=1e-15)
    assert {*solve_svm(moved.X, moved.Z, plain.scores().argmax(-1)).status} == {"solved"}


XOR = {"X": np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]]) - 0.5, "y": np.array([0, 0, 1, 1])}
BAD = {
    r"y: shape \(3,\); must be \(4\)": XOR["y"][:3],
    "y: -1; must be whole": XOR["y"] - 1,
    "y: 1e.18; must be whole numbers >= 0 and < 1024": XOR["y"] * 10**18,
}


def test_points_of_a_file_are_infeasible_if_nothing_separates_them_and_named_if_bad(tmp_path):
    path = str(tmp_path / "points.npz")
    np.savez(path, **XOR)
    batch = sample("file", model="linear", path=path)
    assert batch.scores().argmax(-1).tolist() == [[0, 0, 1, 1]]
    words = f"model=linear loss=cross_entropy data=file data.path={path} trials=1"
    for selection, status in {"optimal": "infeasible", "top": "unsaturated"}.items():
        result = run(composed(words, f"selection={selection}", "optimizer.steps=20"))
        assert result.trials["status"].tolist() == [status]
    np.savez(path, X=np.zeros((4, 2)), y=XOR["y"])  # no W changes anything: no risk falls
    assert (
        marked([OK], separated(sample("file", path=path), Log()).exclusions)[0][0]
        == "unconstrained"
    )
    for message, y in BAD.items():
        np.savez(path, X=XOR["X"], y=y)
        with pytest.raises(ConfigError, match=message):
            sample("file", path=path)
