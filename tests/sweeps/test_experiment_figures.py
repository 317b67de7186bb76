"""The figures beyond the main job: their numbers, and their empty and ugly cases."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.cells import CellAxes
from attnsvm.sweeps.figures import (
    _curves,
    figure_module,
    outcomes,
    status_counts,
    trajectories,
)
from tests.sweeps import synthetic

HERE = Path("sweep")
STEPPED = ("local_convergence", "gradient_floor", "sequence", "real_tokens", "regularization_path")


def trained_frames(ds: tuple[int, ...] = (4, 8), trials: int = 12) -> SweepFrames:
    """A sweep of trained instances with every outcome, and a history of all quantities."""
    rng = np.random.default_rng(3)
    kinds = ["global", "local", "not_local", "unsaturated", "infeasible", "undecided", ""]
    runs, rows, history = [], [], []
    for parameterization in ("w", "kq"):
        for d in ds:
            cell = synthetic.cell_keys(
                d=d, parameterization=parameterization, tokens="top", lam=0.1
            )
            run = f"{parameterization}{d}"
            runs.append(synthetic.run_row(run, cell, trials))
            for seed in range(trials):
                kind = kinds[seed % len(kinds)]
                bad = kind in ("unsaturated", "infeasible", "undecided")
                status = kind if bad else "diverged" if kind == "" else "ok"
                rows.append(
                    cell
                    | {"run": run, "seed": seed, "status": status, "reason": synthetic.HOSTILE}
                    | {"convergence": kind, "assumption_b1": seed % 2 == 0}
                    | {"frobenius_status": "infeasible" if kind == "infeasible" else "solved"}
                    | {"attended_tokens": 2.0, "one_minus_corr_frobenius": rng.random()}
                    | {"max_masked_softmax": 1e-9}
                )
                for step in (0, 10, 100):
                    for quantity in ("one_minus_corr_frobenius", "W_norm", "max_softmax"):
                        value = np.nan if status == "diverged" else rng.random()
                        entry = {"seed": seed, "step": step, "quantity": quantity, "value": value}
                        history.append(cell | {"run": run} | entry)
    frames = (pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(history))
    return synthetic.framed("local_convergence", HERE, *frames)


def draw(name: str, frames: SweepFrames) -> dict[str, pd.DataFrame]:
    module = figure_module(name)
    with style.paper():
        tables = module.tables(frames)
        for drawing in module.draw(tables, frames.axes, ["a remark"]):
            drawing.figure.draw_without_rendering()
    return tables


@pytest.mark.parametrize(
    "name", [STEPPED[0], *(pytest.param(name, marks=pytest.mark.full) for name in STEPPED[1:])]
)
def test_curves_use_certified_instances_for_correlations_and_count_the_rest(name: str):
    frames = trained_frames()
    tables = draw(name, frames)
    table = tables[name]
    correlations = table[table["quantity"].str.startswith("one_minus")]
    ok = frames.trials.query("status == 'ok' and parameterization == 'w' and d == 4")
    assert (correlations["used"] == len(ok)).all()
    assert tables[f"{name}_counts"]["count"].sum() == len(frames.trials)


@pytest.mark.parametrize("name", [*STEPPED, "ridge_vs_path", "token_count_vs_lambda"])
@pytest.mark.full
def test_nothing_certified_is_drawn_as_such(name: str):
    frames = trained_frames()
    lost = frames.trials.assign(status="failed", one_minus_corr_frobenius=np.nan)
    draw(name, dataclasses.replace(frames, trials=lost))


def test_softmax_and_norms_are_those_of_all_trained_instances():
    frames = trained_frames()
    table = _curves.over_steps(frames, ("W_norm", "one_minus_corr_frobenius"))
    cell = table.query("parameterization == 'w' and d == 4 and step == 100").set_index("quantity")
    trials = frames.trials.query("parameterization == 'w' and d == 4")
    assert cell.loc["W_norm", "used"] == (trials["status"] != "diverged").sum()
    assert cell.loc["one_minus_corr_frobenius", "used"] == (trials["status"] == "ok").sum()


def test_status_counts_say_also_what_did_not_happen():
    frames = trained_frames()
    told = status_counts(outcomes(frames.trials, frames.axes), frames.axes)
    assert f"Instances: {len(frames.trials)}" in told
    for word in ("0 rejected", "0 failed", "ok", "undecided", "infeasible"):
        assert word in told


def test_instances_drawn_although_training_stalled_are_counted_by_their_arithmetic():
    trials = trained_frames().trials
    half = trials["seed"] % 2 == 0
    trials = trials.assign(
        gradient=np.where(half, "direct", "log_domain"),
        training=np.where(half & (trials["status"] == "ok"), "stalled", "saturated"),
    )
    ok = trials[trials["status"] == "ok"]
    direct = (ok["gradient"] == "direct").sum()
    axes = synthetic.axes_of(trials)
    told = status_counts(outcomes(trials, axes), axes)
    assert f"{direct} of {direct} gradient=direct (published arithmetic)" in told
    assert f"0 of {len(ok) - direct} gradient=log_domain (exact)" in told
    lost = trials.assign(status=trials["status"].where(trials["training"] != "stalled", "stalled"))
    told = status_counts(outcomes(lost, axes), axes)
    assert f"{direct} stalled" in told  # not drawn: a status like the others
    assert "although" not in told


def test_a_stalled_instance_has_no_type_of_convergence_and_no_point():
    frames = trained_frames()
    global_ = frames.trials["convergence"] == "global"
    lost = frames.trials.assign(status=frames.trials["status"].mask(global_, "stalled"))
    table = draw("convergence_types", dataclasses.replace(frames, trials=lost))["convergence_types"]
    count = table.groupby("kind")["count"].sum()
    assert count["global"] == 0
    assert count["stalled"] == global_.sum()
    steps = _curves.over_steps(dataclasses.replace(frames, trials=lost), ("W_norm",))
    drawn = ~lost["status"].isin(("stalled", "diverged"))
    assert steps.query("step == 0")["used"].sum() == drawn.sum()


def test_the_share_of_paths_at_the_optimal_tokens_counts_verdicts_only():
    frames = trained_frames()
    tables = draw("regularization_path", frames)
    shares = tables["regularization_path_optimal"]
    kinds = frames.trials["convergence"].value_counts()
    assert shares["count"].sum() == kinds["global"]
    assert shares["used"].sum() == kinds[["global", "local", "not_local"]].sum()
    with style.paper():
        (drawing,) = figure_module("regularization_path").draw(tables, frames.axes)
    (small_print,) = (t.get_text() for t in drawing.figure.texts if "Instances:" in t.get_text())
    assert "The path selects the optimal tokens: 2 of 6 [10, 70 %]" in small_print


@pytest.mark.parametrize("status", ["tie", "failed"])
@pytest.mark.full
def test_what_did_not_converge_is_in_no_share(status: str):
    frames = phase_frames([(2, 2), (2, 4)], (1, 2, 3))
    lost = frames.trials.assign(status=status)
    table = draw("phase_transition", dataclasses.replace(frames, trials=lost))["phase_transition"]
    assert (table.query("share_of == 'global'")["used"] == 0).all()
    feasible = 0 if status == "tie" else INSTANCES - 1
    assert (table.query("share_of == 'feasible'")["used"] == feasible).all()
    frames = trained_frames()
    lost = frames.trials.assign(status=status)
    shares = draw("regularization_path", dataclasses.replace(frames, trials=lost))
    assert (shares["regularization_path_optimal"]["used"] == 0).all()


@pytest.mark.full
def test_the_published_rule_keeps_what_has_no_softmax_in_between():
    frames = trained_frames()
    softmax = np.where(frames.trials["seed"] % 2 == 0, 1e-7, 1e-4)
    frames = dataclasses.replace(frames, trials=frames.trials.assign(max_masked_softmax=softmax))
    kept = draw("token_count_vs_lambda", frames)["token_count_vs_lambda_kept"]
    ok = (frames.trials["status"] == "ok") & (softmax == 1e-7)
    assert kept["count"].sum() == ok.sum()
    assert kept["used"].sum() == len(frames.trials)


def test_convergence_types_of_a_cell_sum_to_all_instances():
    table = draw("convergence_types", trained_frames())["convergence_types"]
    kinds = table[table["kind"] != "assumption_b1"]
    total = kinds.groupby(["parameterization", "d"])
    np.testing.assert_allclose(total["share"].sum(), 1)
    assert (total["count"].sum() == 12).all()


INSTANCES = 12


def phase_frames(
    planes: list[tuple[int, int]], ds: tuple[int, ...], decided_on_d: int = INSTANCES
) -> SweepFrames:
    """Return twelve instances a cell; of the last nothing but B.1 is decided."""
    runs, rows = [], []
    last = INSTANCES - 1
    for n, T in planes:
        for d in ds:
            cell = synthetic.cell_keys(n=n, T=T, d=d, tokens="top")
            runs.append(synthetic.run_row(f"{n}{T}{d}", cell, INSTANCES))
            for seed in range(INSTANCES):
                feasible = d >= max(T - 1, n)
                status = "undecided" if seed == last else "ok" if feasible else "infeasible"
                rows.append(
                    cell
                    | {"run": f"{n}{T}{d}", "seed": seed, "reason": "", "status": status}
                    | {"optimum_feasible": pd.NA if seed == last else feasible}
                    | {"assumption_b1": pd.NA if seed == last - 1 else False}
                    | {"assumption_d": d > 1 if seed < min(decided_on_d, last) else pd.NA}
                    | {"frobenius_status": "solved" if status == "ok" else status}
                    | {"convergence": "global" if feasible else ""}
                )
    return synthetic.framed(
        "phase_transition", HERE, pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame()
    )


def test_phase_transition_counts_verdicts_only():
    frames = phase_frames([(2, 2), (2, 4), (3, 2)], (1, 2, 3))
    tables = draw("phase_transition", frames)
    table = tables["phase_transition"].set_index("share_of")
    feasible = table.loc["feasible"]
    assert (feasible["used"] == 11).all()  # the undecided one is not a verdict
    promised = feasible["d"] >= np.maximum(feasible["T"] - 1, feasible["n"])
    assert (feasible["share"] == promised.astype(float)).all()
    assert (table.loc["global", "used"] == 11).all()
    assert (table.loc["assumption_b1", "count"] == 0).all()
    seen = table.loc["assumption_d"]
    assert (seen["used"] == 11).all()
    assert (seen["share"] == (seen["d"] > 1)).all()
    halfway = tables["phase_transition_halfway"].set_index("share_of")["halfway"]
    assert halfway["assumption_d"].between(1, 2).all()
    assert halfway["assumption_b1"].isna().all()


@pytest.mark.full
def test_a_cell_with_many_undecided_instances_has_no_share():
    tables = draw("phase_transition", phase_frames([(2, 2), (2, 4)], (1, 2, 3), decided_on_d=10))
    table = tables["phase_transition"].set_index("share_of")
    assert (table.loc["assumption_d", "used"] == 10).all()  # counted, 2 of 12 have no verdict
    assert table.loc["assumption_d", ["share", "low", "high"]].isna().all(axis=None)
    assert table.loc["feasible", "share"].notna().all()
    halfway = tables["phase_transition_halfway"]
    assert "assumption_d" not in set(halfway.loc[halfway["halfway"].notna(), "share_of"])


@pytest.mark.full
def test_a_single_plane_and_a_single_cell_are_drawn():
    draw("phase_transition", phase_frames([(2, 2), (2, 3)], (1, 2)))
    draw("phase_transition", phase_frames([(2, 2)], (1,)))
    untrained = phase_frames([(2, 2), (2, 3)], (1, 2))
    trials = untrained.trials.assign(tokens="optimal", convergence="")
    table = draw("phase_transition", synthetic.with_rows(untrained, trials))["phase_transition"]
    assert (table.query("share_of == 'global'")["used"] == 0).all()
    assert (table.query("share_of == 'feasible'")["used"] == 11).all()


def scene() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    W = np.array([[2.0, 1.0], [0.5, 3.0]])
    return {
        "X": rng.normal(size=(2, 3, 2)),
        "Z": rng.normal(size=(2, 2)),
        "scores": rng.normal(size=(2, 3)),
        "selected": np.array([0, 2]),
        "steps": np.arange(5.0),
        "snapshots": W * np.arange(5)[:, None, None],
        "frobenius_W": W,
        "nuclear_W": np.full((2, 2), np.nan),
    }


def test_a_scene_is_what_attention_computes():
    given = scene()
    parts = trajectories._scene(given)
    paths = parts["paths"]
    np.testing.assert_allclose(paths.groupby(["step", "sample"])["softmax"].sum(), 1)
    last = paths[paths["step"] == 4].drop_duplicates("sample")
    np.testing.assert_allclose(last[["x", "y"]], given["Z"] @ given["snapshots"][-1].T)
    logits = given["X"][1] @ given["snapshots"][-1] @ given["Z"][1]
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    found = paths[(paths["step"] == 4) & (paths["sample"] == 1)].sort_values("token")["softmax"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    rays = parts["rays"]
    assert list(rays["norm"]) == ["frobenius"] * 2  # no ray of a matrix that does not exist
    chosen = given["X"][[0, 1], given["selected"]]
    np.testing.assert_allclose((chosen * rays[["x", "y"]]).sum(axis=1) - rays["offset"], 0.5)


def test_scenes_are_drawn_and_animated():
    parts = trajectories._scene(scene())
    cell = {"data": "paths_far", "parameterization": "w"}
    tables = {f"trajectories_{k}": v.assign(**cell) for k, v in parts.items()}
    tables["trajectories_counts"] = outcomes(trained_frames().trials, CellAxes())
    with style.paper():
        (drawing,) = trajectories.draw(tables, CellAxes())
        animation = style.gif(drawing.frames)
    assert animation.startswith(b"GIF89a")
    assert len(drawing.frames) == 5
    with Image.open(io.BytesIO(animation)) as image:
        assert image.n_frames >= 2


@pytest.mark.full
def test_a_path_that_ends_early_is_animated_to_its_end():
    whole, short = scene(), scene()
    short["snapshots"] = short["snapshots"].copy()
    short["snapshots"][3:] = np.inf
    tables: dict[str, list[pd.DataFrame]] = {}
    for arrays, parameterization in ((whole, "w"), (short, "kq")):
        for name, part in trajectories._scene(arrays).items():
            cell = {"data": "paths_far", "parameterization": parameterization}
            tables.setdefault(f"trajectories_{name}", []).append(part.assign(**cell))
    joined = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    assert joined["trajectories_paths"].groupby("parameterization")["step"].max().to_dict() == {
        "w": 4,
        "kq": 2,
    }
    joined["trajectories_counts"] = outcomes(trained_frames().trials, CellAxes())
    with style.paper():
        (drawing,) = trajectories.draw(joined, CellAxes(("parameterization",)))
        drawing.figure.draw_without_rendering()
        assert len(drawing.frames) == 5


def test_without_a_path_on_record_the_scene_says_so(tmp_path: Path):
    empty = {name: pd.DataFrame() for name in ("tokens", "paths", "rays")}
    tables = {f"trajectories_{k}": v for k, v in empty.items()}
    tables["trajectories_counts"] = outcomes(trained_frames().trials, CellAxes())
    with style.paper():
        (drawing,) = trajectories.draw(tables, CellAxes())
        drawing.figure.draw_without_rendering()
    assert drawing.frames == ()


def test_the_share_of_assumption_b1_is_not_drawn_on_the_bars():
    frames = dataclasses.replace(trained_frames(), name="convergence_types")
    frames = dataclasses.replace(frames, trials=frames.trials.assign(assumption_b1=False))
    module = figure_module("convergence_types")
    (drawing,) = module.draw(module.tables(frames), frames.axes)
    panels = drawing.figure.axes
    bars, strips = panels[: len(panels) // 2], panels[len(panels) // 2 :]
    assert all(ax.patches and not ax.get_lines() for ax in bars)
    for ax in strips:
        (line,) = ax.get_lines()
        assert set(line.get_ydata()) == {0.0}
        assert ax.get_ylim()[0] < -0.1  # the points at 0 % are whole
    unknown = dataclasses.replace(frames, trials=frames.trials.assign(assumption_b1=pd.NA))
    (drawing,) = module.draw(module.tables(unknown), frames.axes)
    words = [text.get_text() for ax in drawing.figure.axes for text in ax.texts]
    assert "unknown" in words
