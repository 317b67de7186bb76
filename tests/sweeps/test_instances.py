"""An instance counts once, also if several runs of a cell hold it or have lost it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps.instances import disagreements, first_rows, unrecorded


def trials(*runs: tuple[str, int, range], data: str = "sphere") -> pd.DataFrame:
    """Return rows of runs: name, d and seeds."""
    return pd.DataFrame(
        [
            {"run": run, "d": d, "seed": seed, "data": data, "status": "ok", "x": 10.0 * d + seed}
            for run, d, seeds in runs
            for seed in seeds
        ]
    )


def test_a_seed_is_one_instance_of_its_cell():
    rows = trials(("a", 4, range(3)), ("b", 4, range(1, 4)), ("c", 5, range(3)))
    first = first_rows(rows, pd.DataFrame(), ["d"])
    assert (rows.index != first).tolist() == [False] * 3 + [True, True, False] + [False] * 3
    assert rows.loc[first[3], "seed"] == 1
    assert disagreements(rows, first) == 0
    alike = rows[rows["d"] == 4]
    assert (alike.index != first_rows(alike, pd.DataFrame(), [])).sum() == 2  # without axes


def test_other_results_of_the_same_instance_are_counted():
    rows = trials(("a", 4, range(3)), ("b", 4, range(3)), ("c", 4, range(3)))
    rows.loc[[4, 7], "x"] = -1.0  # seed 1 in run b, and the same in run c
    rows.loc[[2, 5, 8], "x"] = np.nan  # missing in all
    assert disagreements(rows, first_rows(rows, pd.DataFrame(), ["d"])) == 2


def test_a_seed_of_a_file_is_told_by_its_distance_from_the_first():
    rows = trials(("a", 4, range(3)), ("b", 4, range(1, 4)), ("c", 4, range(3)), data="file")
    runs = pd.DataFrame({"run": ["a", "b", "c"], "seed": [0, 1, 0]})
    again = rows.index != first_rows(rows, runs, ["d"])
    assert again.tolist() == [False] * 6 + [True] * 3  # b has other tokens of the file


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
def test_an_instance_without_a_record_counts_once_with_the_state_of_its_run(
    data: str, runs: list[tuple[str, int, int, int]], expected: dict[str, int]
):
    """Beside a run of the cell d=4 that holds seeds 0, 1, 2."""
    lost = pd.DataFrame([("done", 4, 0, 3), *runs], columns=["state", "d", "seed", "trials"])
    lost = lost.assign(run=list("abc")[: len(lost)], data=data)
    counted = unrecorded(lost, trials(("a", 4, range(3)), data=data), ["d"])
    assert {state: n for state, n in counted.items() if n} == expected
