"""No figure, table or count pools cells: every axis of a folder separates, for every experiment."""

import dataclasses

import pandas as pd
import pytest

from attnsvm import record
from attnsvm.config.identity import run_name
from attnsvm.sweeps import figures, notation
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.cells import fields_of, number
from attnsvm.sweeps.figures import figure_module
from tests.config.test_config import composed
from tests.sweeps import synthetic
from tests.sweeps.synthetic import drawn, phase_frames, trained_frames
from tests.sweeps.test_optimizer_geometry import frames as geometry_frames

pytestmark = pytest.mark.full

FRAMES = {
    "rank_vs_d": lambda: synthetic.rank_frames(cells=[(5, 5), (5, 10)], ds=(2, 4), trials=8),
    "correlation_vs_d": lambda: synthetic.correlation_frames(ds=(4, 6), trials=10),
    "phase_transition": lambda: phase_frames([(2, 2), (2, 4)], (1, 2)),
    "optimizer_geometry": geometry_frames,
    **dict.fromkeys(
        (
            *("convergence_types", "convergence_types_m", "gradient_floor", "local_convergence"),
            *("real_tokens", "regularization_path", "ridge_vs_path", "sequence"),
            *("token_count_vs_lambda", "rates", "rank_of_weights", ""),
        ),
        trained_frames,
    ),
}


def twice(frames, key, values):
    """Return a sweep over one more key: the same runs, and again with half of the instances."""
    whole, half = ({key: value} for value in values)
    fewer = frames.trials[frames.trials["seed"] % 2 == 0]
    trials = pd.concat(
        [frames.trials.assign(**whole), fewer.assign(**half, run="h" + fewer["run"].astype(str))],
        ignore_index=True,
    )
    history = frames.history
    if len(history):
        again = history.assign(**half, run="h" + history["run"].astype(str))
        history = pd.concat([history.assign(**whole), again], ignore_index=True)
    return synthetic.with_rows(frames, trials, history=history)


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("key", ["lr", "m"])
def test_a_further_axis_leaves_the_numbers_of_a_cell_as_they_are(name, key):
    frames = dataclasses.replace(FRAMES[name](), name=name)
    frames = synthetic.with_rows(frames, frames.trials.assign(**{key: frames.trials[key].iloc[0]}))
    values = {"lr": (0.1, 0.3), "m": (2.0, float("nan"))}[key]
    both = twice(frames, key, values)
    assert key in both.axes.names
    alone = figure_module(name).tables(frames)
    joint, _, words = drawn(both)
    for table, expected in alone.items():
        assert key in joint[table], table
        part = joint[table][joint[table][key] == values[0]]
        by = [column for column in expected if column not in (key, "cell")]  # a cell names the key
        pd.testing.assert_frame_equal(
            part[by].sort_values(by, ignore_index=True),
            expected[by].sort_values(by, ignore_index=True),
            check_dtype=False,
        )
    for value in values:
        on_axis = name == "convergence_types_m" and key == "m"
        cell = {key: value}
        names = {both.axes.label(cell), notation.label(both.axes, cell)}
        assert any(n in " ".join(words) for n in ({number(value)} if on_axis else names))


def test_more_combinations_than_are_drawn_are_counted_and_tabled():
    frames = synthetic.rank_frames(cells=[(5, 5)], ds=(2, 4), trials=4)
    rates = [round(0.1 * k, 1) for k in range(1, 31)]
    trials = pd.concat([frames.trials.assign(lr=rate) for rate in rates], ignore_index=True)
    tables, drawings, words = drawn(synthetic.with_rows(frames, trials))
    assert tables["rank_vs_d"]["lr"].nunique() == 30
    assert len(drawings) == 2 * figures.FIGURES  # ranks; infeasible
    assert "6 further combinations of lr are in the tables only" in words[0]
    assert [d.name for d in drawings[:2]] == ["rank_vs_d", "rank_vs_d_1"]


def test_a_figure_of_m_keeps_its_name_if_d_varies_too():
    _, drawings, _ = drawn(twice(trained_frames("convergence_types_m"), "m", (2.0, 4.0)))
    assert [d.name for d in drawings] == ["convergence_types_m"]


def test_a_cell_of_a_partial_sweep_keeps_its_label(tmp_path):
    grid = [("gd", 0.1), ("gd", 0.2), ("adam", 0.1)]
    configs = [
        composed(f"optimizer={name}", f"optimizer.lr={lr}", "optimizer.steps=9", "data.n=2")
        for name, lr in grid
    ]
    fields = {run_name(config): fields_of(config) for config in configs}
    record.write_plan(tmp_path, {name: [] for name in fields}, fields)
    frames = load(tmp_path)
    assert frames.axes.names == ("optimizer", "lr")
    cells = frames.runs[["optimizer", "lr", "beta2"]].astype(object).fillna("-")
    expected = [("adam", 0.1, 0.999), ("gd", 0.1, "-"), ("gd", 0.2, "-")]
    assert sorted(cells.itertuples(index=False, name=None)) == expected
    assert frames.statuses == {"missing": 300}
