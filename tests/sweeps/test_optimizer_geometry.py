"""The map of optimizers against norms: its numbers, its labels, and its empty cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.figures import optimizer_geometry
from tests.sweeps import synthetic
from tests.sweeps.synthetic import drawn

GEOMETRY = optimizer_geometry.SWEEPS["optimizer_geometry"]
GAPS = {"frobenius": 0.3, "nuclear": 0.5, "max": 0.4, "spectral": 0.2}
CELLS = (
    {"optimizer": "steepest", "norm": "max", "lr": 0.1},
    {"optimizer": "steepest", "norm": "spectral", "lr": 1.0},
    {"optimizer": "muon", "norm": np.nan, "lr": 0.02},
    {"optimizer": "mirror_descent", "norm": np.nan, "lr": 0.1},
)
OWN = ("max", "spectral", "spectral", "")


def frames(**given: object) -> SweepFrames:
    """Each optimizer has a tenth of the gap in its own norm, and one instance is undecided."""
    own = {f"run{k}": norm for k, norm in enumerate(OWN)}
    cells = {run: cell | given for run, cell in zip(own, CELLS, strict=True)}

    def gaps(row):
        for norm, gap in GAPS.items():
            yield norm, gap * (0.1 if norm == own[row["run"]] else 1.0) + 1e-3 * row["seed"]

    def history(row):
        for step in (0, 1, 10):
            yield from ((step, f"margin_gap_{n}", gap + 1 / (1 + step)) for n, gap in gaps(row))

    typed = {"optimizer": "optimizer", "lr": "optimizer.lr", "norm": "optimizer.norm"}
    made = synthetic.sweep(
        "optimizer_geometry", cells, lambda _, seed: {"status": "undecided"} if seed == 6 else {},
        history, trials=7, typed=typed,
    )  # fmt: skip
    rows = [{f"{norm}_margin_gap": gap for norm, gap in gaps(row)}
            for row in made.trials.to_dict("records")]  # fmt: skip
    return dataclasses.replace(made, trials=made.trials.join(pd.DataFrame(rows)), folders={})


def norms_of(made: SweepFrames) -> dict[tuple[str, str], str]:
    """Return the own norm of every optimizer."""
    table = GEOMETRY.tables(made)["optimizer_geometry"].fillna({"norm": ""})
    keys = table[["optimizer", "norm", "own"]].drop_duplicates().to_numpy()
    return {(optimizer, norm): own for optimizer, norm, own in keys}


def test_medians_are_those_of_the_certified_instances_in_every_norm():
    table = GEOMETRY.tables(frames())["optimizer_geometry"]
    assert len(table) == len(CELLS) * len(GAPS)
    assert (table["used"] == 6).all()
    at = table[(table["optimizer"] == "muon")].set_index("margin_in")
    assert at.loc["spectral", "median"] == pytest.approx(0.02 + 2.5e-3)
    assert at.loc["max", "median"] == pytest.approx(0.4 + 2.5e-3)


def test_the_own_norm_is_that_of_the_steps_or_of_the_theory():
    steepest = {("steepest", "max"): "max", ("steepest", "spectral"): "spectral"}
    others = {("muon", ""): "spectral", ("mirror_descent", ""): ""}
    assert norms_of(frames()) == steepest | others
    of_factors = {("steepest", "max"): "", ("steepest", "spectral"): "spectral"}
    assert norms_of(frames(parameterization="kq")) == of_factors | others


def test_the_own_norm_of_factors_is_the_one_that_their_steps_make_small_in_their_product():
    """min ||K||_Sp ||Q||_Sp over K Q^T = W is ||W||_Sp/2, attained at W = U S V^T by U S^(1/2)."""
    norms = {"frobenius": 2, "spectral": np.inf, "schatten4": 4}
    product = {"nuclear": 1, "spectral": np.inf, "frobenius": 2}
    U, sigma, Vh = np.linalg.svd(np.random.default_rng(0).standard_normal((4, 4)))
    K, Q = U * np.sqrt(sigma), Vh.T * np.sqrt(sigma)
    np.testing.assert_allclose(K @ Q.T, U * sigma @ Vh)
    assert set(optimizer_geometry.OF_FACTORS) == set(norms)
    for steps, own in optimizer_geometry.OF_FACTORS.items():
        sizes = [np.linalg.norm(np.linalg.svd(F, compute_uv=False), norms[steps]) for F in (K, Q)]
        assert np.prod(sizes) == pytest.approx(np.linalg.norm(sigma, product[own]))
        R = np.random.default_rng(1).standard_normal((4, 4))  # other factors of the same product
        sizes = [np.linalg.norm(np.linalg.svd(F, compute_uv=False), norms[steps])
                 for F in (K @ R, Q @ np.linalg.inv(R).T)]  # fmt: skip
        assert np.prod(sizes) > np.linalg.norm(sigma, product[own])


def test_curves_are_those_of_the_own_norm_and_labels_have_the_fields_that_an_optimizer_has():
    tables, drawings, words = drawn(frames())
    table = tables["optimizer_geometry_steps"]
    assert set(table["optimizer"]) == {"steepest", "muon"}  # that of mirror descent is not known
    last = table[(table["step"] == 10) & (table["norm"] == "max")]
    assert last["median"].tolist() == pytest.approx([0.04 + 2.5e-3 + 1 / 11])
    kinds = ("", "_steps", "_tokens")
    assert [d.name for d in drawings] == [f"optimizer_geometry{kind}" for kind in kinds]
    for said in ("muon, lr=0.02", "0.04", "(6)"):
        assert said in words[0]
    assert "norm=-" not in words[0]
    for text in words[:2]:
        assert "24 ok, 4 undecided" in text
        assert "a remark" in text
    assert "no selections on record" in words[2]  # these made-up runs have no files


@pytest.mark.full
def test_without_margin_gaps_the_figures_say_so():
    made = frames()
    lost = dataclasses.replace(made, trials=made.trials.assign(status="failed"))
    _, _, words = drawn(lost)
    assert "no certified instance" in words[0]
    assert "no margin gap over the steps on record" in words[1]
    no_curves = made.history[made.history["quantity"] == "none"]
    _, _, words = drawn(dataclasses.replace(made, history=no_curves))
    assert "0.04" in words[0]
    assert "no margin gap over the steps on record" in words[1]
