"""Tokens selected by pairs of optimizers: what counts, what is left out, and the maps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.cells import rows_of
from attnsvm.sweeps.figures import _numbers, _selections
from tests.sweeps import synthetic

B, N, T, D = 4, 2, 3, 2
OPTIMAL = np.array([2, 0])
"""The best-scoring token of each sample, of every instance."""


def arrays(selected: list[list[int]], **changed: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = np.zeros((B, N, T))
    scores[:, np.arange(N), OPTIMAL] = 1.0
    scores[:, :, 1] = 2.0  # better, but inadmissible
    mask = np.ones((B, N, T), dtype=bool)
    mask[:, :, 1] = False
    made = {
        "X": rng.standard_normal((B, N, T, D)),
        "Z": rng.standard_normal((B, N, D)),
        "snapshots": rng.standard_normal((B, 2, D, D)),
        "mask": mask,
        "scores": scores,
        "seeds": np.arange(B),
        "selected": np.array(selected),
    }
    return made | changed


RUNS = {
    "sgd": arrays([[2, 0], [2, 0], [0, 0], [2, 0]]),
    "adam": arrays([[2, 0], [2, 2], [0, 0], [2, 0]]),
}


def frames(cells: list[dict[str, object]], statuses: list[list[str]]) -> SweepFrames:
    """Return a sweep of one run for each cell, with these statuses of its instances."""
    names = {str(cell["optimizer"]): cell for cell in cells}
    ended = {name: dict(enumerate(given)) for name, given in zip(names, statuses, strict=True)}
    typed = {"optimizer": "optimizer", "lr": "optimizer.lr", "init": "optimizer.init"}
    made = synthetic.sweep(
        "", names, lambda cell, seed: {"status": ended[cell["optimizer"]].get(seed)},
        trials=B, typed=typed | {"d": "data.d"},
    )  # fmt: skip
    return dataclasses.replace(made, trials=made.trials.dropna(subset="status"))


@pytest.fixture(autouse=True)
def sgd_and_adam(stored: dict[str, dict[str, np.ndarray]]) -> None:
    stored.update(RUNS)


TWO = [{"optimizer": "sgd"}, {"optimizer": "adam"}]
OK = [["ok"] * B] * 2


def row(table: pd.DataFrame, first: str, second: str, measure: str, unit: str) -> pd.Series:
    """Return the row of a pair, the first one first by name."""
    cell = {"optimizer": first, "second": second, "measure": measure, "unit": unit}
    (found,) = (row for _, row in rows_of(table, cell).iterrows())
    return found


def test_shares_are_those_counted_by_hand(stored):
    """adam, sgd: equal on instances 0, 2, 3 and on 7 of 8 samples; both optimal on 0 and 3."""
    table = _selections.of_pairs(frames(TWO, OK))
    equal = row(table, "adam", "sgd", "equal", "instance")
    assert (equal["share"], equal["used"], equal["excluded"]) == (0.75, 4, 0)
    assert equal["low"] < 0.75 < equal["high"]
    assert row(table, "adam", "sgd", "equal", "sample")["share"] == 7 / 8
    assert row(table, "adam", "sgd", "both_optimal", "instance")["share"] == 0.5
    assert row(table, "adam", "sgd", "both_optimal", "sample")["share"] == 6 / 8
    assert row(table, "sgd", "sgd", "equal", "instance")["share"] == 1
    assert row(table, "sgd", "sgd", "both_optimal", "instance")["share"] == 0.75  # its own
    assert row(table, "adam", "adam", "both_optimal", "sample")["share"] == 6 / 8
    assert len(table) == 3 * 2 * 2


@pytest.mark.parametrize("name", ["X", "Z", "snapshots"])
def test_another_instance_or_start_is_left_out_and_counted(stored, name: str):
    changed = RUNS["adam"][name].copy()
    changed[1].flat[0] = np.nextafter(changed[1].flat[0], 9.0)
    stored["adam"] = RUNS["adam"] | {name: changed}
    equal = row(_selections.of_pairs(frames(TWO, OK)), "adam", "sgd", "equal", "instance")
    assert (equal["share"], equal["used"], equal["excluded"]) == (1.0, 3, 1)


def test_a_selection_that_is_not_final_or_not_there_is_left_out_and_counted(stored):
    ended = [["ok", "ok", "unsaturated", "infeasible"], ["undecided", "stalled", "ok", "ok"]]
    equal = row(_selections.of_pairs(frames(TWO, ended)), "adam", "sgd", "equal", "instance")
    assert (equal["share"], equal["used"], equal["excluded"]) == (1.0, 2, 2)
    stored["adam"] = {key: values[:3] for key, values in RUNS["adam"].items()}
    fewer = frames(TWO, [["ok"] * B, ["ok"] * 3])
    equal = row(_selections.of_pairs(fewer), "adam", "sgd", "equal", "instance")
    assert (equal["used"], equal["excluded"]) == (3, 1)


@pytest.mark.parametrize("field", [{"init": "zero"}, {"d": 7}])
def test_runs_that_differ_in_more_than_the_optimizer_are_no_pair(stored, field):
    table = _selections.of_pairs(frames([TWO[0], TWO[1] | field], OK))
    pairs = set(zip(table["optimizer"], table["second"], strict=True))
    assert pairs == {("sgd", "sgd"), ("adam", "adam")}


def drawn(made: SweepFrames) -> list[str]:
    counted = _numbers.outcomes(made.trials, made.axes)
    tables = {"tokens": _selections.of_pairs(made), "cells": counted}
    with style.paper():
        drawings = _selections.draw("tokens", "cells", tables, made.axes, ["a remark"])
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
        return [synthetic.text_of(drawing) for drawing in drawings]


def test_the_maps_show_shares_intervals_and_what_is_left_out(stored):
    (words,) = drawn(frames(TWO, [["ok", "ok", "unsaturated", "ok"], ["ok"] * B]))
    assert "67 [21, 94]\n83.3" in words  # 2 of 3 instances, 5 of 6 samples
    assert "Instances of a pair: 3 to 4; left out" in words
    assert "at most 1." in words
    assert "a remark" in words


@pytest.mark.full
def test_without_a_path_on_record_all_is_left_out_and_the_maps_say_so(stored):
    for name in stored:
        stored[name] = {k: v for k, v in RUNS[name].items() if k != "snapshots"}
    table = _selections.of_pairs(frames(TWO, OK))
    assert (table["used"] == 0).all()
    assert (table["excluded"] == B).all()
    (words,) = drawn(frames(TWO, OK))
    assert "no selections on record (keep_path=true)" in words


@pytest.mark.full
def test_too_many_optimizers_for_a_map_are_in_the_table(stored):
    cells = [{"optimizer": f"sgd{k}"} for k in range(_selections.ROOM + 1)]
    stored.update({f"sgd{k}": RUNS["sgd"] for k in range(len(cells))})
    (words,) = drawn(frames(cells, [["ok"] * B] * len(cells)))
    assert "13 optimizers: see the table" in words
