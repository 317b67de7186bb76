"""The law of joint training against independent computations, closed forms, and its limits."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, nnls

import attnsvm
from attnsvm import experiment
from attnsvm.config.instantiate import named
from attnsvm.head import Joint, Linear
from attnsvm.theory import joint, ratio_of_steps
from tests.config.test_config import composed
from tests.svm.instances import batch_of

RUN = (
    "head=joint head.v_rate=3 data.n=3 data.T=3 data.d=4 trials=6 optimizer.steps=400 "
    "optimizer.growth=0.05 svm.norms=[frobenius]"
)


def least_norm(A, b):
    """Return min ||w|| with A w >= b, and the multipliers (Lawson and Hanson 1974, chapter 23)."""
    E, f = np.vstack([A.T, b]), np.append(np.zeros(A.shape[1]), 1.0)
    u, _ = nnls(E, f)
    r = E @ u - f
    return -r[:-1] / r[-1], -u / r[-1]


def law_of(A, gamma, r):
    """Return W, multipliers and c of the law, with gamma of each row, by its definition."""
    low = r * gamma.min() + 1e-9
    high = r * gamma.max() + 1 / np.linalg.norm(least_norm(A, np.ones(len(A)))[0]) + 1e-9

    def excess(c):
        return float(np.linalg.norm(least_norm(A, np.maximum(0, c - r * gamma))[0]) - 1)

    c = brentq(excess, low, high, xtol=1e-14)
    return *least_norm(A, np.maximum(0, c - r * gamma)), c


def distance(W, w):
    w = w.reshape(W.shape)
    return 0.5 * np.square(W / np.linalg.norm(W) - w / np.linalg.norm(w)).sum()


def test_the_columns_are_those_of_an_independent_computation():
    record = experiment.run(composed(RUN))
    arrays = record.solutions
    for k, row in record.trials.iterrows():
        X, Z, Y, selected = (arrays[name][k] for name in ("X", "Z", "Y", "selected"))
        chosen = X[range(3), selected]
        v, push = least_norm(Y[:, None] * chosen, np.ones(3))
        gamma = Y * (chosen @ v) / np.linalg.norm(v)
        np.testing.assert_allclose(arrays["gamma"][k], gamma, rtol=1e-9)
        ends = [gamma.min(), gamma.max()]
        assert row[["gamma_least", "gamma_most"]].tolist() == pytest.approx(ends, rel=1e-9)
        pairs = [(i, t) for i in range(3) for t in range(3) if t != selected[i]]
        A = np.array([np.outer(chosen[i] - X[i, t], Z[i]).ravel() for i, t in pairs])
        of_rows, W = gamma[[i for i, _ in pairs]], arrays["trained_W"][k]
        r = np.linalg.norm(arrays["trained_v"][k]) / np.linalg.norm(W)
        w, _, c = law_of(A, of_rows, r)
        measured = row[["law_ratio", "one_minus_corr_law", "law_boundary"]].tolist()
        largest = c - r * gamma.min()
        expected = [r, distance(W, w), np.abs(c - r * gamma).min() / largest]
        np.testing.assert_allclose(measured, expected, rtol=1e-5, atol=1e-9)
        together = np.linalg.norm(push @ (Y[:, None] * chosen))
        steps = 3 * together / (push @ np.linalg.norm(chosen, axis=1))
        w, a, _ = law_of(A, of_rows, row["law_ratio_predicted"])
        image = steps * (a @ np.linalg.norm(A, axis=1)) / np.linalg.norm(a @ A)
        assert row["law_ratio_predicted"] == pytest.approx(image, rel=1e-5)
        assert row["one_minus_corr_law_predicted"] == pytest.approx(distance(W, w), abs=1e-8)
        relaxed = least_norm(A, (of_rows <= gamma.min() * (1 + 1e-9)).astype(float))[0]
        assert row["one_minus_corr_relaxed"] == pytest.approx(distance(W, relaxed), abs=1e-8)
        assert row["law_status"] == "solved"


GROWING = {"growth": 0.1}
RATIOS = [
    ("normalized_gd", {}, "w", 3.0),
    ("normalized_gd", GROWING | {"schedule": "decay"}, "w", 3.0),
    ("normalized_gd", GROWING, "w", None),
    ("normalized_gd", GROWING | {"schedule": "geometric"}, "w", math.nan),
    ("normalized_gd", {"schedule": "geometric"}, "w", 3.0),
    ("normalized_gd", {"ridge": 1e-9}, "w", math.nan),
    ("normalized_gd", GROWING, "kq", 0.0),
    ("gd", GROWING, "w", math.inf),
    ("gd", {}, "kq", math.nan),
    ("adam", {}, "w", math.nan),
]


@pytest.mark.parametrize(("name", "fields", "rule", "ratio"), RATIOS)
def test_the_ratio_follows_from_the_rule_of_the_steps(name, fields, rule, ratio):
    optimizer, rule = named("optimizer", name, **fields), named("parameterization", rule)
    assert ratio_of_steps(optimizer, rule, 3.0) == pytest.approx(ratio, nan_ok=True)


def test_a_growing_ratio_is_its_image_to_1e_6_or_not_known(monkeypatch):
    """Image (1 + e) r at every ratio r: with e of 5e-7 it is r, with 5e-6 there is none."""
    monkeypatch.setattr(joint, "alignment", lambda solution: solution.rho)
    e, unit = torch.tensor([5e-7, 5e-6, -5e-7, -5e-6]).double(), torch.ones(4).double()
    head = SimpleNamespace(objective=unit, rho=unit)
    ratio = joint.growing_ratio(head, 3.0, lambda r: SimpleNamespace(rho=3 / (r * (1 + e))))
    assert ratio.isnan().tolist() == [False, True, False, True]
    assert ratio[[0, 2]].tolist() == [3.0, 3.0]


def test_tokens_that_no_head_separates_have_no_law(tmp_path):
    """One token with both labels; with one label it has the law."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(2, 2, 2, 3)), rng.normal(size=(2, 2, 3))
    X[:, 1], Z[:, 1] = X[:, 0], Z[:, 0]
    Y, v = np.array([[1.0, -1.0], [1.0, 1.0]]), rng.normal(size=(2, 3))
    np.savez(tmp_path / "twins.npz", X=X, Z=Z, Y=Y, v=v)
    typed = f"data=file data.path={tmp_path}/twins.npz head=joint optimizer.steps=50 trials=2"
    trials = experiment.run(composed(typed)).trials
    assert list(trials["law_status"]) == ["infeasible", "solved"]
    for column in ("one_minus_corr_law", "gamma_least"):
        assert list(trials[column].isna()) == [True, False]


def test_the_head_moves_v_rate_times_as_far():
    """In one step, with the direction of one; in units of the optimizer's step."""
    batch = batch_of(3, 3, 4, 2, head=Linear(train=True))
    after = []
    for head in (Linear(train=True), Joint(v_rate=10.0)):
        path = attnsvm.train(dataclasses.replace(batch, head=head), steps=1, init="zero")
        after.append((path.W, path.head_parameters["v"] - batch.head_parameters["v"]))
    assert torch.equal(after[0][0], after[1][0])
    assert torch.allclose(10 * after[0][1], after[1][1], rtol=1e-12)
