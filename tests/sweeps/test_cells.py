"""Which fields tell the cells of a sweep apart, what they are called, and what is in them."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from attnsvm.config import GROUPS, SelectionConfig, SvmConfig
from attnsvm.sweeps import cells
from tests.config.test_config import composed

OTHER = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v + 0.1}
OPTIONS = [
    *((group, *option) for group, options in GROUPS.items() for option in options.items()),
    ("selection", "", SelectionConfig),
    ("svm", "", SvmConfig),
]
"""Every group with every option and its schema."""


@cache
def fields(overrides=""):
    return cells.fields_of(composed(overrides))


@pytest.mark.parametrize(("group", "option", "schema"), OPTIONS)
def test_every_field_of_the_schema_makes_a_cell(group, option, schema):
    plain = vars(schema())
    chosen = {group: option} if option else {}
    recorded = cells.recorded_fields({group: plain}, chosen)
    for name, value in plain.items():
        change = OTHER.get(type(value), lambda v: f"{v} and more")
        other = cells.recorded_fields({group: {**plain, name: change(value)}}, chosen)
        differing = cells.differing([recorded, other])
        assert differing == ([] if name == "_target_" else [f"{group}.{name}"])
        assert set(differing) <= set(cells.SCHEMA)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("trials=7", ["trials"]),
        ("keep_path=true", ["keep_path"]),
        ("extensions=[numpy]", ["extensions"]),
        ("svm.norms=[nuclear]", ["svm.norms"]),
        ("parameterization=kq", ["parameterization"]),  # that has m, W has not
        ("seed=1", []),  # another instance of the same cell
        ("device=cpu", []),  # without effect
        ("dry_run=true", []),
    ],
)
def test_what_makes_a_cell(change, expected):
    assert cells.differing([fields(), fields(change)]) == expected


def test_a_field_of_one_option_and_the_fields_of_a_plug_in_make_cells():
    runs = [fields("parameterization=w")]
    runs += [fields(f"parameterization=kq parameterization.m={m}") for m in (1, 2)]
    assert cells.differing(runs) == ["parameterization", "parameterization.m"]
    table = cells.table_of(runs, ["parameterization.m"])
    assert table["parameterization.m"].isna().tolist() == [True, False, False]
    run = {"head": "mine.Head", "head.sharpness": 1.0}
    assert cells.differing([run, run | {"head.sharpness": 2.0}]) == ["head.sharpness"]
    assert cells.differing([run, run | {"head.shape": "[1,2]"}]) == ["head.shape"]


def test_labels_differ_where_values_do():
    axes = cells.CellAxes.of(pd.DataFrame({"lr": [0.1, 0.10001], "ridge": [0.0, 2.0**-52]}))
    assert axes.label({"lr": 0.1, "ridge": 2.0**-52}) == "lr=0.1, ridge=2.22e-16"
    assert axes.label({"lr": 0.10001}) == "lr=0.10001"
    near = cells.CellAxes.of(pd.DataFrame({"lr": [0.1, np.nextafter(0.1, 1)]}))
    assert near.label({"lr": 0.1}) != near.label({"lr": np.nextafter(0.1, 1)})


def test_missing_values_are_cells_of_their_own():
    frame = pd.DataFrame({"m": [1.0, np.nan, np.nan], "x": [1, 2, 3]})
    parts = cells.groups(frame, ["m"])
    assert [part["x"].tolist() for _, part in parts] == [[1], [2, 3]]
    assert cells.rows_of(frame, {"m": np.nan})["x"].tolist() == [2, 3]


RUNS = [("a", 4, 0), ("b", 4, 1), ("c", 5, 0), ("d", 4, 0)]


def trials(*runs, data="sphere"):
    """Return rows of runs: name, d and seeds."""
    rows = [(run, d, seed, 10.0 * d + seed) for run, d, seeds in runs for seed in seeds]
    return pd.DataFrame(rows, columns=["run", "data.d", "seed", "x"]).assign(data=data, status="ok")


@pytest.mark.parametrize(("data", "again"), [("sphere", [3, 4, 9, 10, 11]), ("file", [9, 10, 11])])
def test_a_seed_is_one_instance_of_its_cell_and_other_results_of_it_are_counted(data, again):
    """In a file the distance from the first seed tells the tokens: run b has others than run a."""
    runs = pd.DataFrame(RUNS, columns=["run", "data.d", "seed"])
    rows = trials(*((run, d, range(seed, seed + 3)) for run, d, seed in RUNS), data=data)
    held, others = cells.repeated(rows, runs, ["data.d"])
    assert (rows.index[held].tolist(), others) == (again, 0)
    rows.loc[[10, 11], "x"] = -1.0
    rows.loc[[0, 9], "x"] = np.nan  # missing in both
    assert cells.repeated(rows, runs, ["data.d"])[1] == 2


@pytest.mark.parametrize(
    ("data", "runs", "expected"),
    [
        ("sphere", [("failed", 5, 0, 7), ("missing", 6, 0, 2)], {"failed": 7, "missing": 2}),
        ("sphere", [("failed", 4, 1, 3)], {"failed": 1}),  # seeds 1, 2 are on record
        ("sphere", [("failed", 4, 5, 3), ("missing", 4, 6, 3)], {"failed": 3, "missing": 1}),
        ("sphere", [("failed", 4, 6, 1), ("missing", 4, 5, 3)], {"failed": 1, "missing": 2}),
        ("sphere", [("failed", 4, 0, 2)], {}),
        ("sphere", [("failed", 4, 0, 10**15)], {"failed": 10**15 - 3}),
        ("sphere", [("corrupt", np.nan, None, np.nan)], {}),  # of which nothing is known
        ("file", [("failed", 4, 1, 2)], {"failed": 2}),  # a seed does not name an instance
        ("my_package.MyData", [("failed", 4, 1, 2)], {"failed": 2}),
    ],
)
def test_an_instance_without_a_record_counts_once_with_the_state_of_its_run(data, runs, expected):
    """Beside a run of the cell d=4 that holds seeds 0, 1, 2."""
    lost = pd.DataFrame([("done", 4, 0, 3), *runs], columns=["state", "data.d", "seed", "trials"])
    lost = lost.assign(run=list("abc")[: len(lost)], data=data)
    counted = cells.unrecorded(lost, trials(("a", 4, range(3)), data=data), ["data.d"])
    assert {state: n for state, n in counted.items() if n} == expected


def test_rows_without_a_record_are_counted_where_they_are_known():
    columns = ["run", "state", "trials", "model", "model.layers", "model.heads"]
    runs = [("a", "done", 3, "sequence", None, None), ("b", "failed", 7, "sequence", None, None)]
    runs += [("c", "failed", 2, "transformer", 3, 2), ("d", "missing", 2, "sequence", None, None)]
    runs += [("e", "corrupt", np.nan, "sequence", None, None), ("f", "corrupt", 1e300, "", 1, 1)]
    lost = pd.DataFrame(runs, columns=columns).assign(data="sphere", seed=0)
    assert cells.unrecorded(lost, pd.DataFrame(), ["run"]) == {"failed": 19, "missing": 2}
