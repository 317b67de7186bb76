"""Each probe against closed forms, its invariances, and what it does where it is not defined."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
import torch

import attnsvm
from attnsvm import probe as probes
from attnsvm.config import ConfigError
from attnsvm.head import Quadratic, Relu
from attnsvm.loss import Exponential, LinearLoss, Log, Logistic, Squared
from attnsvm.nn.risk import Risk
from attnsvm.norm import norm_of
from attnsvm.parameterization import W
from attnsvm.svm import SvmStatus
from tests.kkt import normal
from tests.test_gradient import exact_array, exact_head, exact_softmax
from tests.test_loss import exact


def snapshot(W, batch=None, **changed):
    W = torch.as_tensor(W, dtype=torch.float64)
    B, d = W.shape[0], W.shape[-1]
    batch = attnsvm.sample(n=2, T=3, d=d, trials=B) if batch is None else batch
    fields = {"K": None, "Q": None, "softmax": torch.full((B, 2, 3), 1 / 3).double()}
    fields |= {"selected": torch.zeros(B, 2, dtype=torch.int64), "loss": Logistic()}
    return probes.Snapshot(batch=batch, step=0, W=W, **{**fields, "solutions": {}, **changed})


def nan(*values):
    return pytest.approx([*values], nan_ok=True)


def test_ranks_in_closed_form():
    spectra = [[2.0, 2, 2], [4, 0, 0], [1, 0.5, 0.01], [0, 0, 0]]
    W = torch.linalg.qr(normal(3, 3)).Q @ torch.tensor(spectra).double().diag_embed()
    for scale, threshold, third in ((1, 0.1, 2), (1e200, 0.1, 2), (1e-200, 0.001, 3)):
        measured = probes.Rank(threshold).measure(snapshot(scale * W))
        assert measured["effective"].tolist() == nan(3, 1, third, math.nan)
        assert measured["stable"].tolist() == nan(3, 1, 1.2501, math.nan)


def test_entropy_in_closed_form():
    s = torch.tensor([[[1.0, 0, 0], [0.25, 0.5, 0.25]], [[1 / 3] * 3] * 2], dtype=torch.float64)
    measured = probes.Entropy().measure(snapshot(normal(2, 4, 4), softmax=s))
    for name, bits in (("mean", 0.75), ("max", 1.5)):
        assert measured[name].tolist() == pytest.approx([bits * math.log(2), math.log(3)])


@pytest.mark.parametrize("name", ["frobenius", "spectral", "max", "nuclear"])
def test_the_gap_in_a_ball_bounds_the_risk_above_that_of_every_point_in_it(name):
    """It is 0 at minimisers in Frobenius balls, and not in others; scaling W alone changes both."""
    batch = attnsvm.sample("classes", n=5, K=3, d=3, trials=4)
    options = {"init": "zero", "radii": [1.0, 10.0]}
    path = attnsvm.train(batch, "w", "regularization_path", "log", **options)
    risk, norm = Risk(batch, W(), Log()), norm_of(name)
    for V in (path.W, path.W + normal(4, 3, 3)):
        state = snapshot(V, batch, softmax=path.softmax[:, -1], loss=Log())
        measured = probes.Constrained().measure(state)
        assert measured[f"size_{name}"].equal(norm.value(V))
        assert (measured[name] < 1e-6).all() == (name == "frobenius" and V is path.W)
        forward, size = risk.forward((V,)), norm.value(V)
        gradient = risk.gradient((V,), forward)
        steepness = norm.dual.value(gradient.parts[0]) * gradient.log_scales[0].exp()
        least = risk.value(forward) - measured[name] * steepness * size - 1e-12
        for other in normal(20, 4, 3, 3):
            inside = other * (size / norm.value(other))[:, None, None]
            assert (risk.value(risk.forward((inside,))) >= least).all()
    assert probes.Constrained().measure(snapshot(0 * V, batch, loss=Log()))[name].isnan().all()


def test_attention_to_components_in_closed_form():
    """All tokens are in the component of the label, or the label alone."""
    batch = attnsvm.sample("token_graph", n=1, T=2, K=3, d=3, trials=30)
    s = torch.tensor([0.25, 0.75]).double().expand(30, 1, 2)
    measured = probes.TokenGraph().measure(snapshot(normal(30, 3, 3), batch, softmax=s))
    equal = (batch.X[:, 0, 0] == batch.X[:, 0, 1]).all(1)
    assert 0 < equal.sum() < 30
    label = s[:, 0].gather(1, batch.scores()[:, 0].argmax(1, keepdim=True))[:, 0]
    expected = {"components": 2.0 - equal.double(), "edges": 1.0 - equal.double(), "largest": 1.0}
    for name, value in (expected | {"attention": label.masked_fill(equal, 1.0)}).items():
        assert (measured[name] == value).all()


def test_distance_in_closed_form(tmp_path):
    np.save(tmp_path / "M.npy", np.diag([1.0, 0.0]))
    rows = [[3.0, 0, 0, 0], [0, 0, 0, 5], [-1, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]
    probe = probes.Distance(str(tmp_path / "M.npy"))
    measured = probe.measure(snapshot(torch.tensor(rows).reshape(5, 2, 2)))["direction"]
    expected = nan(0, math.sqrt(2), 2, math.sqrt(2 - math.sqrt(2)), math.nan)
    assert measured.tolist() == expected


MATRICES = [np.full((2, 2), np.nan), np.zeros((2, 2)), np.ones(3), np.array([["a"]]), np.eye(3)]


@pytest.mark.parametrize("M", MATRICES, ids=["nan", "zero", "vector", "words", "of other d"])
def test_files_that_hold_no_matrix_are_refused(M, tmp_path):
    """Files that cannot be read safely are those of `tests/record`."""
    np.save(tmp_path / "M.npy", M)
    for name in ("M.npy", "missing.npy"):
        with pytest.raises(ConfigError, match=r"probe\.distance\.path=.*must be"):
            probes.Distance(str(tmp_path / name)).check(2)


def test_balance_in_closed_form():
    K = normal(3, 4, 2)
    Q = torch.linalg.qr(normal(4, 4, seed=1)).Q @ K  # Q^T Q = K^T K
    Q[1] *= 2  # ||K^T K - 4 K^T K|| / (2 ||K||^2)
    K[2] = 0
    size = float((K[1].T @ K[1]).norm() / K[1].norm() ** 2)
    for scale in (1, 1e120):
        state = snapshot(K @ Q.mT, K=scale * K, Q=scale * Q)
        assert probes.Balance().measure(state)["gap"].tolist() == nan(0, 1.5 * size, math.nan)


def exact_log_excess(batch, W, selected, loss):
    """log(L - L*) of the first instance with many digits; None where L <= L*."""
    total, W = mpmath.mpf(0), exact_array(W)
    samples = zip(*map(exact_array, (batch.X, batch.Z, batch.Y)), selected[0].tolist(), strict=True)
    for x, z, y, t in samples:
        u, at_selected = (y * exact_head(batch, o)[0] for o in (exact_softmax(x @ W @ z) @ x, x[t]))
        total += exact(loss, u) - exact(loss, at_selected)
    return mpmath.log(total / batch.n) if total > 0 else None


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), LinearLoss(), Squared(2.0)])
def test_the_excess_risk_is_exact_far_below_the_rounding_of_the_risk(loss):
    """Against mpmath, from W = 0 to attention of e^-10000, at optimal and at other tokens."""
    batch = attnsvm.sample(n=3, T=4, d=5, trials=1)
    best, _ = attnsvm.optimal_tokens(batch)
    known = []
    for selected in (best, (best + 1) % 4):
        W = attnsvm.solve_svm(batch.X, batch.Z, selected).W
        W = W / W.flatten(1).norm(dim=1)[:, None, None]
        for size in (0.0, 1.0, 30.0, 1e4):
            fields = {"selected": selected, "loss": loss}
            excess = probes.ExcessRisk().measure(snapshot(size * W, batch, **fields))["log"].item()
            with mpmath.workprec(20000 if size > 100 else 300):
                value = exact_log_excess(batch, size * W, selected, loss)
            known.append(value is not None)
            assert excess == pytest.approx(
                math.nan if value is None else float(value), rel=1e-11, abs=1e-10, nan_ok=True
            )
    assert any(known)
    assert not all(known)  # there are risks below that of tokens which are not optimal


def test_the_slope_of_a_head_is_zero_where_all_its_rectifiers_are_off():
    relu = attnsvm.sample(head=Relu(), n=2, T=3, d=4, trials=3)
    V = relu.head_parameters["V"].abs()
    on = dataclasses.replace(relu, X=relu.X.abs(), head_parameters={"V": V})
    off = dataclasses.replace(on, X=on.X * torch.tensor([1.0, -1.0])[:, None, None])
    all_on = V.sum(-1).norm(dim=-1)
    for batch, known in ((on, all_on), (off, 0 * all_on)):
        measured = probes.Slope().measure(snapshot(normal(3, 4, 4), batch))["least"]
        torch.testing.assert_close(measured, known)


def test_a_quantity_that_is_not_measured_is_nan_and_another_one_an_error():
    state = snapshot(normal(3, 4, 4), attnsvm.sample(n=2, T=3, d=4, head=Quadratic(0.3), trials=3))
    assert probes.measured(probes.ExcessRisk(), ["log"], state)["log"].isnan().all()
    single = attnsvm.sample(n=2, T=1, d=4, trials=3)
    assert probes.ExcessRisk().measure(snapshot(normal(3, 4, 4), single))["log"].isnan().all()
    for value in ({"sum": torch.zeros(3).double()}, {"mean": torch.zeros(3)}):
        wrong = type("Wrong", (probes.Probe,), {"measure": lambda *_, value=value: value})
        with pytest.raises(ValueError, match=r"must be one of \['mean'\], \(3,\) torch.float64"):
            probes.measured(wrong(), ["mean"], state)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_shares_of_locally_optimal_tokens_are_those_of_samples_by_definition(norm):
    """By chance: 1 / (1 + k), as a token and its k neighbours have their scores in any order."""
    batch = attnsvm.sample(n=5, T=4, d=2, trials=12)
    gamma, selected = batch.scores(), normal(12, 5, 4).argmax(-1)
    solution = attnsvm.solve_svm(batch.X, batch.Z, selected, norm)
    state = snapshot(solution.W, batch, selected=selected, solutions={norm: solution})
    shares = probes.Optimality().measure(state)
    chosen, solved = selected[..., None], solution.having(SvmStatus.solved)
    assert 0 < solved.sum() < 12
    logits = torch.einsum("bntd,bde,bne->bnt", batch.X, solution.W, batch.Z)
    near = (logits.gather(2, chosen) - logits < 1 + 1e-5).scatter(2, chosen, False)
    local = (gamma.gather(2, chosen) > gamma.masked_fill(~near, -torch.inf)).all(2)
    known = torch.where(solved, 1.0, torch.nan).double()[:, None]
    for name, expected in {
        "best": gamma.argmax(2) == selected,
        "best_chance": torch.full((12, 5), 1 / 4),
        norm: known * local,
        f"{norm}_chance": known / (1 + near.sum(2)),
    }.items():
        mean = expected.double().mean(1)
        torch.testing.assert_close(shares[name], mean, rtol=0, atol=1e-12, equal_nan=True)
    several = torch.tensor([True, True, False, False]).expand(12, 5, 4)
    _, margins = attnsvm.solve_gen_svm(batch.X, batch.Z, several, 0 * gamma, norm)
    state = snapshot(margins.W, batch, selected=selected, solutions={norm: margins})
    assert probes.Optimality().measure(state)[norm].isnan().all()
