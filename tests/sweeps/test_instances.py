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


def test_without_axes_all_runs_are_one_cell():
    rows = trials(("a", 4, range(2)), ("b", 4, range(2)))
    assert (rows.index != first_rows(rows, pd.DataFrame(), [])).sum() == 2


def test_other_results_of_the_same_instance_are_counted():
    rows = trials(("a", 4, range(3)), ("b", 4, range(3)), ("c", 4, range(3)))
    rows.loc[4, "x"] = -1.0  # seed 1 in run b
    rows.loc[7, "x"] = -1.0  # and the same in run c
    rows.loc[[2, 5, 8], "x"] = np.nan  # missing in all
    assert disagreements(rows, first_rows(rows, pd.DataFrame(), ["d"])) == 2


def test_a_seed_of_a_file_is_told_by_its_distance_from_the_first():
    rows = trials(("a", 4, range(3)), ("b", 4, range(1, 4)), ("c", 4, range(3)), data="file")
    runs = pd.DataFrame({"run": ["a", "b", "c"], "seed": [0, 1, 0]})
    again = rows.index != first_rows(rows, runs, ["d"])
    assert again.tolist() == [False] * 6 + [True] * 3  # b has other tokens of the file


def lost(*runs: tuple[str, int, int, int], data: str = "sphere") -> pd.DataFrame:
    """Return runs a, b, ...: state, d, seed and trials."""
    frame = pd.DataFrame(runs, columns=["state", "d", "seed", "trials"])
    return frame.assign(run=list("abcdefgh")[: len(runs)], data=data)


@pytest.mark.parametrize("data", ["file", "my_package.MyData"])
def test_lost_instances_of_a_file_are_not_those_of_another_run(data):
    """Seeds 0, 1 and 1, 2 are four instances where a seed does not name one."""
    runs = lost(("done", 4, 0, 2), ("failed", 4, 1, 2), data=data)
    assert unrecorded(runs, trials(("a", 4, range(2)), data=data), ["d"]) == {"failed": 2}
    assert unrecorded(runs.assign(data="sphere"), trials(("a", 4, range(2))), ["d"]) == {
        "failed": 1
    }


def test_instances_without_a_record_have_the_state_of_their_run():
    runs = lost(("done", 4, 0, 3), ("failed", 5, 0, 7), ("missing", 6, 0, 2), ("lost", 6, 9, 2))
    counted = unrecorded(runs, trials(("a", 4, range(3))), ["d"])
    assert counted == {"failed": 7, "missing": 2, "lost": 2}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("failed", 4, 1, 3)], {"failed": 1}),  # seeds 1, 2 are on record
        ([("failed", 4, 5, 3), ("missing", 4, 6, 3)], {"failed": 3, "missing": 1}),
        ([("failed", 4, 6, 1), ("missing", 4, 5, 3)], {"failed": 1, "missing": 2}),
        ([("failed", 4, 0, 2)], {}),
        ([("failed", 4, 0, 10**15)], {"failed": 10**15 - 3}),
    ],
)
def test_an_instance_without_a_record_counts_once(
    runs: list[tuple[str, int, int, int]], expected: dict[str, int]
):
    counted = unrecorded(lost(("done", 4, 0, 3), *runs), trials(("a", 4, range(3))), ["d"])
    assert {state: n for state, n in counted.items() if n} == expected


def test_runs_of_which_nothing_is_known_count_no_instance():
    runs = pd.DataFrame({"state": ["corrupt"], "d": [np.nan], "seed": [None], "trials": [np.nan]})
    assert unrecorded(runs, pd.DataFrame(), ["d"]) == {}
