"""The figures beyond the main job: their numbers, and their empty and ugly cases."""

import dataclasses
import io
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnsvm.record.stored import StoredRun
from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.cells import CellAxes, rows_of
from attnsvm.sweeps.figures import phase_transition, trajectories
from attnsvm.sweeps.figures._curves import Curves, StepNorm
from attnsvm.sweeps.figures._numbers import outcomes, status_counts
from tests.sweeps import synthetic
from tests.sweeps.synthetic import RECORDS, drawn

X = phase_transition.X
COMPARED = ("one_minus_corr_nuclear", "margin_gap_nuclear", "balance_gap")


def test_status_counts_say_what_did_not_happen_and_what_is_drawn_although_training_stalled():
    frames = read_sweep(RECORDS / "local_convergence")
    direct = frames.rows["optimizer.gradient"] == "direct"
    ended = np.where(direct, "stalled", "saturated")
    parts = "6 of 6 gradient=direct (published arithmetic), 0 of 3 gradient=log_domain (exact)"
    none = "0 infeasible, 0 undecided, 0 rejected, "
    for status, words in (
        ("ok", f"(9 ok, {none}0 stalled, 0 failed). Drawn although training stalled: {parts}."),
        (np.where(direct, "stalled", "ok"), f"(6 stalled, 3 ok, {none}0 failed)."),  # not drawn
    ):
        rows = frames.rows.assign(training=ended, status=status)
        counts = outcomes(dataclasses.replace(frames, rows=rows))
        assert status_counts(counts, frames.cells) == f"Instances: 9 {words}"


def test_a_stalled_instance_has_no_type_of_convergence_and_no_point():
    frames = read_sweep(RECORDS / "convergence_types")  # five global ones, one local
    ends = ["stalled", "diverged", "unsaturated", "infeasible", "undecided", "ok"]
    frames = dataclasses.replace(frames, rows=frames.rows.assign(status=ends))
    count = drawn(frames)[0]["convergence_types"].groupby("kind")["count"].sum()
    kinds = {"stalled": 1, "diverged": 1, "global": 3, "local": 1}
    assert count[count > 0].drop("assumption_b1", errors="ignore").to_dict() == kinds
    steps = Curves("a", ["W_norm"]).tables(frames)["a"].query("step == 0")
    assert steps["used"].sum() == 4


def test_phase_transition_counts_verdicts_only_and_a_cell_with_many_undecided_has_no_share():
    """Of twelve instances a cell, one is undecided, and with n = 3 D.1 is decided of ten only."""
    sizes = pd.DataFrame(product((2, 3), (2, 4), (1, 2, 3), range(12)), columns=[*X, "seed"])
    n, T, d, seed = sizes.to_numpy().T
    feasible = d >= np.maximum(T - 1, n)
    rows = sizes.assign(
        status=np.where(seed == 11, "undecided", np.where(feasible, "ok", "infeasible")),
        optimum_feasible=pd.Series(feasible, dtype="boolean").mask(seed == 11),
        assumption_b1=pd.Series(False, sizes.index, dtype="boolean").mask(seed == 10),
        assumption_d=pd.Series(d > 1, dtype="boolean").mask(seed >= 13 - n),
        convergence=np.where(feasible, "global", ""),
        **{"selection.tokens": "top", "reason": ""},
    )
    frames = SimpleNamespace(rows=rows, cells=CellAxes.of(sizes[[*X]]))
    tables = phase_transition.tables(frames)
    table = tables["phase_transition"].set_index("share_of")
    feasible = table.loc["feasible"]
    assert (feasible["used"] == 11).all()  # the undecided one is not a verdict
    promised = feasible["data.d"] >= np.maximum(feasible["data.T"] - 1, feasible["data.n"])
    assert (feasible["share"] == promised.astype(float)).all()
    assert (table.loc["global", "used"] == 11).all()
    assert (table.loc["assumption_b1", "count"] == 0).all()
    known, unknown = (part for _, part in table.loc["assumption_d"].groupby("data.n"))
    assert (known["share"] == (known["data.d"] > 1)).all()
    assert (unknown["used"] == 10).all()  # counted; 2 of 12 have no verdict
    assert unknown[["share", "low", "high"]].isna().all(axis=None)
    halfway = tables["phase_transition_halfway"].set_index(["share_of", "data.n"])["halfway"]
    assert halfway["assumption_d", 2].between(1, 2).all()
    assert halfway["assumption_b1"].isna().all()


def test_scenes_show_what_attention_computes_and_are_animated_also_where_a_path_ends_early(
    stored, monkeypatch
):
    """Of (K, Q), which diverges, there are no later weights, and no SVM of least nuclear norm."""
    monkeypatch.setattr(trajectories, "FRAMES", 3)
    frames = read_sweep(RECORDS / "trajectories")
    for folder in frames.folders.values():
        stored[str(folder)] = StoredRun(folder).arrays()
    kq = {name: array[2] for name, array in next(iter(stored.values())).items()}  # as published
    kq["snapshots"][2:], kq["nuclear_W"][:] = np.inf, np.nan
    tables, (drawing,), _ = drawn(frames)
    paths, rays = (tables[f"trajectories_{name}"] for name in ("paths", "rays"))
    ends = paths.groupby("parameterization")["step"].max()
    assert ends.to_dict() == {"w": 2000, "kq": kq["steps"][1]}
    last = rows_of(paths, {"parameterization": "kq", "step": kq["steps"][1]})
    np.testing.assert_allclose(last["softmax"], kq["softmax"][1].ravel(), rtol=1e-12)
    np.testing.assert_allclose(last[["x", "y"]][::5], kq["Z"] @ kq["snapshots"][1].T)
    ray = rows_of(rays, {"parameterization": "kq"})
    assert list(ray["svm_norm"]) == ["frobenius"] * 2
    np.testing.assert_allclose(ray[["x", "y"]], kq["Z"] @ kq["frobenius_W"].T)
    with style.paper():
        animation = style.gif(drawing.frames)
    assert len(drawing.frames) == 3
    with Image.open(io.BytesIO(animation)) as image:
        assert image.n_frames >= 2


def test_a_fall_and_a_plateau_are_told_apart():
    """With the smaller step size curves fall like 1 / k, with the larger one for 10 steps."""

    def history(row):
        for step in (0.0, 1.0, 10.0, 100.0, 1000.0):
            k = np.clip(step, 1, 1000 if row["optimizer.lr"] == 0.01 else 10)
            for quantity in COMPARED:
                yield step, quantity, (1 + row["seed"]) / k

    cells = {f"run{lr}": {"optimizer.lr": lr, "parameterization": "kq"} for lr in (0.01, 0.1)}
    tables, _, words = drawn(
        synthetic.sweep(
            "kq_plateau",
            cells,
            lambda cell, seed: {"status": "ok" if seed else "stalled"},
            history,
            trials=9,
        )
    )
    falls = tables["kq_plateau_fall"].set_index(["optimizer.lr", "quantity"])
    expected = {(lr, of): fall for lr, fall in ((0.01, 0.1), (0.1, 1.0)) for of in COMPARED[:2]}
    assert falls["median"].to_dict() == pytest.approx(expected, rel=1e-12)
    assert (falls["used"] == 8).all()  # the stalled one is only counted
    assert set(tables["kq_plateau"]["quantity"]) == set(COMPARED)
    assert all("2 stalled" in text for text in words)


def test_the_own_gap_is_that_of_the_norm_of_the_steps_and_missing_without_its_svm():
    rows = pd.DataFrame({"optimizer.norm": ["max", "l1", "frobenius"]})
    rows = rows.assign(frobenius_margin_gap=[0.1, 0.2, 0.3], max_margin_gap=[0.4, 0.5, 0.6])
    trials = StepNorm("mini_batches", ["own_margin_gap"]).trials(SimpleNamespace(rows=rows))
    np.testing.assert_array_equal(trials["own_margin_gap"], [0.4, np.nan, 0.3])
