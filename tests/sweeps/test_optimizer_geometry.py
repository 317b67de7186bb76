"""The map of optimizers against norms: its numbers, its labels, and its empty cases."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.cells import CellAxes
from attnsvm.sweeps.figures import Drawing, optimizer_geometry
from tests.sweeps import synthetic
from tests.sweeps.test_figures import text_of

HERE = Path("sweep")
GAPS = {"frobenius": 0.3, "nuclear": 0.5, "max": 0.4, "spectral": 0.2}
CELLS = (
    {"optimizer": "steepest", "norm": "max", "lr": 0.1},
    {"optimizer": "steepest", "norm": "spectral", "lr": 1.0},
    {"optimizer": "muon", "norm": np.nan, "lr": 0.02},
    {"optimizer": "mirror_descent", "norm": np.nan, "lr": 0.1},
)
OWN = ("max", "spectral", "spectral", "")


def frames(trials: int = 7) -> SweepFrames:
    """Each optimizer has a tenth of the gap in its own norm, and one instance is undecided."""
    runs, rows, history = [], [], []
    for k, (given, own) in enumerate(zip(CELLS, OWN, strict=True)):
        cell, run = synthetic.cell_keys(**given), f"run{k}"
        runs.append(synthetic.run_row(run, cell, trials))
        for seed in range(trials):
            status = "undecided" if seed == trials - 1 else "ok"
            gaps = {name: gap * (0.1 if name == own else 1.0) for name, gap in GAPS.items()}
            gaps = {f"{name}_margin_gap": gap + 1e-3 * seed for name, gap in gaps.items()}
            rows.append(cell | {"run": run, "seed": seed, "status": status, "reason": ""} | gaps)
            for step in (0, 1, 10):
                for name, gap in gaps.items():
                    quantity = f"margin_gap_{name.removesuffix('_margin_gap')}"
                    at = {"step": step, "quantity": quantity, "value": gap + 1 / (1 + step)}
                    history.append({"run": run, "seed": seed} | cell | at)
    tables = (pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(history))
    typed = {"lr": "optimizer.lr", "norm": "optimizer.norm"}
    axes = CellAxes.of(tables[0][["optimizer", "lr", "norm"]], typed)
    return SweepFrames("optimizer_geometry", HERE, *tables, axes=axes)


def drawn(made: SweepFrames) -> tuple[dict[str, pd.DataFrame], list[Drawing], list[str]]:
    with style.paper():
        tables = optimizer_geometry.tables(made)
        drawings = optimizer_geometry.draw(tables, made.axes, ["a remark"])
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
        return tables, drawings, [text_of(drawing) for drawing in drawings]


def test_medians_are_those_of_the_certified_instances_in_every_norm():
    table = drawn(frames())[0]["optimizer_geometry"]
    assert len(table) == len(CELLS) * len(GAPS)
    assert (table["used"] == 6).all()
    at = table[(table["optimizer"] == "muon")].set_index("margin_in")
    assert at.loc["spectral", "median"] == pytest.approx(0.02 + 2.5e-3)
    assert at.loc["max", "median"] == pytest.approx(0.4 + 2.5e-3)


def test_the_own_norm_is_that_of_the_steps_or_of_the_theory():
    table = drawn(frames())[0]["optimizer_geometry"]
    keys = table[["optimizer", "norm", "own"]].drop_duplicates().fillna("")
    assert {tuple(row) for row in keys.to_numpy()} == {
        ("steepest", "max", "max"),
        ("steepest", "spectral", "spectral"),
        ("muon", "", "spectral"),
        ("mirror_descent", "", ""),
    }


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
    made = frames()
    trials = made.trials.assign(parameterization="kq")
    table = drawn(dataclasses.replace(made, trials=trials))[0]["optimizer_geometry"]
    keys = table[["optimizer", "norm", "own"]].drop_duplicates().fillna("")
    assert {tuple(row) for row in keys.to_numpy()} == {
        ("steepest", "max", ""),
        ("steepest", "spectral", "spectral"),
        ("muon", "", "spectral"),
        ("mirror_descent", "", ""),
    }


def test_curves_are_those_of_the_own_norm():
    table = drawn(frames())[0]["optimizer_geometry_steps"]
    assert set(table["optimizer"]) == {"steepest", "muon"}  # that of mirror descent is not known
    last = table[(table["step"] == 10) & (table["norm"] == "max")]
    assert last["median"].tolist() == pytest.approx([0.04 + 2.5e-3 + 1 / 11])


def test_labels_have_the_fields_that_an_optimizer_has_and_counts_are_told():
    _, drawings, words = drawn(frames())
    kinds = ("", "_steps", "_tokens")
    assert [d.name for d in drawings] == [f"optimizer_geometry{kind}" for kind in kinds]
    assert "muon, lr=0.02" in words[0]
    assert "norm=-" not in words[0]
    assert "0.04" in words[0]
    assert "(6)" in words[0]
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
