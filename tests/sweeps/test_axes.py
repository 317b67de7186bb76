"""What holds of the tables and figures of every experiment, on the records of the documentation."""

import dataclasses
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

from attnsvm import record
from attnsvm.cli.help import experiments
from attnsvm.config.identity import run_name
from attnsvm.sweeps import figures, notation
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.cells import CellAxes, fields_of, row_key, rows_of
from attnsvm.sweeps.figures import figure_module
from attnsvm.sweeps.figures._curves import OF_SVM, Curves
from tests.config.test_config import composed
from tests.sweeps.synthetic import RECORDS, drawn
from tests.verify.kinds import some_quick

CURVES = [
    name
    for name in experiments()
    if type(module := figure_module(name)) is Curves and module.x == "step"
]
EXPERIMENTS = some_quick(experiments(), ("rank_vs_d", "depth"))


@cache
def recorded(name):
    return read_sweep(RECORDS / name)


drawn_record = cache(lambda name: drawn(recorded(name)))


def with_rows(frames, rows):
    """Return a sweep with other rows, one line for each of its runs, and the axes of these."""
    runs = rows.drop_duplicates("run").assign(state="done", reason="")
    fields = runs[[name for name in frames.fields if runs[name].nunique(dropna=False) > 1]]
    axes = CellAxes.of(fields).with_rows(rows)
    return dataclasses.replace(frames, rows=rows, runs=runs, cells=axes)


def twice(frames, key, values):
    """Return a sweep over one more key: the same runs, and again with half of the instances."""
    parts = []
    for value, other in zip(values, ("", "h"), strict=True):
        rows, curves = (
            table.assign(run=other + table["run"].astype(str))
            for table in (frames.rows, frames.curves)
        )
        rows = rows.assign(**{key: value})
        parts.append((rows[rows["seed"] % 2 == 0] if other else rows, curves))
    rows, curves = (pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True))
    folders = {other + run: place for run, place in frames.folders.items() for other in ("", "h")}
    return dataclasses.replace(with_rows(frames, rows), curves=curves, folders=folders)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_instance_is_counted_once(name):
    tables, _, words = drawn_record(name)
    counts = [table["count"] for key, table in tables.items() if key.endswith("_counts")]
    assert {column.sum() for column in counts} <= {len(recorded(name).rows)}
    assert all("a remark" in text for text in words)


@pytest.mark.parametrize("name", some_quick(CURVES, ("local_convergence",)))
def test_the_statistics_of_curves_are_those_of_the_numbers_on_record(name):
    """Of each quantity at the last step: which instances are used, and their mean or median."""
    frames, table = recorded(name), drawn_record(name)[0][name]
    key = row_key(frames.rows)
    of_rows = frames.rows[[*dict.fromkeys([*key, "status", *frames.axes])]]
    history = frames.curves.merge(of_rows, on=key)
    for row in table.sample(8, random_state=0).to_dict("records"):
        names = [key for key in (*frames.axes, "quantity", "step") if key in table]
        values = rows_of(history, {key: row[key] for key in names})
        trained = ("ok", "unsaturated", "infeasible", "undecided")
        statuses = ("ok",) if row["quantity"].startswith(OF_SVM) else trained
        used = values.loc[values["status"].isin(statuses), "value"]
        used = used[np.isfinite(used)]
        assert row["used"] == len(used)
        assert row["mean"] == pytest.approx(used.mean(), nan_ok=True)
        assert row["median"] == pytest.approx(used.median(), nan_ok=True)


@pytest.mark.parametrize("name", some_quick(experiments(), ("rank_vs_d",)))
def test_what_is_not_certified_or_not_there_is_said_and_not_drawn(name):
    frames = recorded(name)
    lost = dataclasses.replace(frames, rows=frames.rows.assign(status="failed", convergence=""))
    *_, words = drawn(lost)
    empty = re.compile(
        "no (certified )?instance|no head with a lean|no run (in|on)|[1-9]\\d* failed"
    )
    assert empty.search(words[0])
    without = dataclasses.replace(frames, curves=frames.curves.iloc[:0], folders={})
    drawn(without)
    first = frames.rows["run"].iloc[0]
    drawn(with_rows(frames, frames.rows[frames.rows["run"] == first]))  # a single cell


FURTHER = [(name, 2.0, np.nan) for name in experiments() if "atlas" not in name]


@pytest.mark.full
@pytest.mark.parametrize(("name", *"ab"), [("rank_vs_d", 0.1, 0.3), *FURTHER])
def test_a_further_axis_leaves_the_numbers_of_a_cell_as_they_are(name, a, b):
    key, frames = "svm.gap", recorded(name)
    rows = frames.rows.assign(run=frames.rows["run"].astype(str), **{key: a})
    frames = with_rows(frames, rows)
    both = twice(frames, key, (a, b))
    assert key in both.axes
    alone = figure_module(name).tables(frames)
    joint, _, words = drawn(both)
    for table, expected in alone.items():
        if expected.empty:
            continue
        assert key in joint[table], table
        part = joint[table][joint[table][key] == a]
        by = [column for column in expected if column not in (key, "cell")]  # a cell names the key
        pd.testing.assert_frame_equal(
            part[by].sort_values(by, ignore_index=True),
            expected[by].sort_values(by, ignore_index=True),
            check_dtype=False,
        )
    for value in (a, b):
        names = {both.cells.label({key: value}), notation.label(both.cells, {key: value})}
        assert any(word in " ".join(words) for word in names)


def test_more_combinations_than_are_drawn_are_counted_and_tabled(monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", 2)
    frames = recorded("rank_vs_d")
    rates = (0.1, 0.2, 0.3, 0.4)
    rows = [
        frames.rows.assign(**{"optimizer.lr": rate}, run=frames.rows["run"].astype(str) + str(rate))
        for rate in rates
    ]
    tables, drawings, words = drawn(with_rows(frames, pd.concat(rows, ignore_index=True)))
    assert tables["rank_vs_d"]["optimizer.lr"].nunique() == 4
    assert "2 further combinations of optimizer.lr are in the tables only" in words[0]
    pages = ["rank_vs_d", "rank_vs_d_1", "rank_vs_d_infeasible", "rank_vs_d_infeasible_1"]
    assert [drawing.name for drawing in drawings] == pages


def test_a_cell_of_a_partial_sweep_keeps_its_label(tmp_path):
    grid = [("adam", 0.1), ("gd", 0.1), ("gd", 0.2)]
    configs = [
        composed(f"optimizer={name}", f"optimizer.lr={lr}", "optimizer.steps=9")
        for name, lr in grid
    ]
    fields = {run_name(config): fields_of(config) for config in configs}
    record.write_plan(tmp_path, {name: [] for name in fields}, fields)
    frames = read_sweep(tmp_path)
    assert frames.axes == ("optimizer", "optimizer.lr")
    cells = frames.runs[[*frames.axes]].itertuples(index=False, name=None)
    assert sorted(cells) == grid
    assert frames.runs["optimizer.beta2"].notna().sum() == 1
    assert frames.statuses == {"missing": 300}
