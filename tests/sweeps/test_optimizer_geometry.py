"""The map of optimizers against norms: its numbers, its labels, and its empty cases."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.cells import rows_of
from attnsvm.sweeps.figures import _selections, optimizer_geometry
from tests.sweeps import synthetic
from tests.sweeps.synthetic import RECORDS, only

NAN = np.nan


@pytest.mark.parametrize(
    ("optimizer", "norm", "rule", "eps", "schedule", "own"),
    [
        ("steepest", "max", "w", NAN, "linear", "max"),
        ("steepest", "spectral", "w", NAN, "linear", "spectral"),
        ("muon", None, "w", NAN, "linear", "spectral"),
        ("mirror_descent", None, "w", NAN, "linear", ""),
        ("steepest", "max", "kq", NAN, "linear", ""),
        ("steepest", "spectral", "kq", NAN, "linear", "spectral"),
        ("muon", None, "kq", NAN, "linear", "spectral"),
        ("adam", None, "w", 0.0, "geometric", "max"),
        ("adam", None, "w", 1e-8, "geometric", "frobenius"),  # once gradients are far below eps
        ("adam", None, "w", 1e-8, "decay", "max"),
    ],
)
def test_the_own_norm_is_that_of_the_steps_or_of_the_theory(
    optimizer, norm, rule, eps, schedule, own
):
    row = {"optimizer": optimizer, "optimizer.norm": norm, "parameterization": rule}
    row |= {"optimizer.eps": eps, "optimizer.schedule": schedule}
    assert optimizer_geometry._with_own(pd.DataFrame([row]))["own"].tolist() == [own]


def test_the_map_shows_medians_of_the_certified_instances():
    frames = dataclasses.replace(read_sweep(RECORDS / "optimizer_geometry"), folders={})
    geometry = optimizer_geometry.Geometry("optimizer_geometry")
    table = geometry.tables(frames)["optimizer_geometry"]
    certified = frames.rows[frames.rows["status"] == "ok"]
    for row in table.sample(8, random_state=0).to_dict("records"):
        gaps = rows_of(certified, {axis: row[axis] for axis in frames.axes})
        gaps = gaps[f"{row['margin_in']}_margin_gap"]
        assert row["used"] == len(gaps)
        assert row["median"] == gaps.median()


@pytest.mark.parametrize(
    ("steps", "p", "own", "q"),
    [
        ("frobenius", 2, "nuclear", 1),
        ("spectral", np.inf, "spectral", np.inf),
        ("schatten4", 4, "frobenius", 2),
    ],
)
def test_the_own_norm_of_factors_is_the_one_that_their_steps_make_small(steps, p, own, q):
    """min ||K||_Sp ||Q||_Sp over K Q^T = W is ||W||_Sp/2, attained at W = U S V^T by U S^(1/2)."""
    assert optimizer_geometry.OF_FACTORS[steps] == own
    W, R = np.random.default_rng(0).standard_normal((2, 4, 4))
    U, sigma, Vh = np.linalg.svd(W)

    def size(K, Q):
        np.testing.assert_allclose(K @ Q.T, W)
        return np.prod([np.linalg.norm(np.linalg.svd(F, compute_uv=False), p) for F in (K, Q)])

    best = U * np.sqrt(sigma), Vh.T * np.sqrt(sigma)
    assert size(*best) == pytest.approx(np.linalg.norm(sigma, q))
    assert size(best[0] @ R, best[1] @ np.linalg.inv(R).T) > np.linalg.norm(sigma, q)


def test_a_direction_that_drifts_has_not_settled():
    """The gap is the same, falls like 1 / log, turns, ends at 0.04 or near 0.02, falls, rises."""
    steps = np.array([m * 10**e for e in range(1, 7) for m in (1, 2, 5)])
    length = steps**0.5
    curves = (
        (0.3 + 0 * steps, True, True),
        (1 / np.log(steps), False, False),
        (0.04 + 10 / length, False, True),
        (0.024 + 15 / length, False, False),
        (0.3 - 0.02 * np.log2(length), False, False),
        (0.02 * np.log2(length), False, True),
        (0.021 - 5e-4 * np.log2(length / length[-1]), True, False),
    )
    for gap, *ends in curves:
        curve = pd.DataFrame({"W_norm": length, "gap": gap})
        rules = optimizer_geometry.settled, optimizer_geometry.away
        assert [rule(curve, ["gap"], "W_norm") for rule in rules] == ends


def gaps(frobenius=0.3, largest=0.3, **others):
    """Return the last gaps of an instance of W whose steps are those of the max norm."""
    norms = {"frobenius_margin_gap": frobenius, "max_margin_gap": largest}
    return {"decays": False, "own": "max", "optimizer.eps": np.nan} | norms | others


def curve(sizes=(1, 2, 4), largest=(0.3,) * 3):
    """Return the gaps of an instance over the steps, in which W grows."""
    columns = {"step": range(1, len(sizes) + 1), "W_norm": sizes, "margin_gap_max": largest}
    return pd.DataFrame(columns).assign(margin_gap_frobenius=0.3)


def ball(largest=0.3, last=(0.3, 0.3), own="max", sizes=(1, 4, 4)):
    """Return the gaps in balls of weights that decay, and their curve."""
    names = [f"constrained_{norm}" for norm in optimizer_geometry.BALLS]
    row = {"decays": True, "own": own, "max_margin_gap": 0.01} | dict.fromkeys(names, 0.3)
    steps = dict.fromkeys(names, (0.9, 0.3, 0.3)) | {"constrained_max": (0.9, *last)}
    return row | {"constrained_max": largest}, {"step": (1, 5, 10), "W_norm": sizes} | steps


EPS = {"optimizer.eps": 1e-8}


@pytest.mark.parametrize(
    ("row", "steps", "expected"),
    [
        (gaps(0.3, 0.02), {}, "max"),
        (gaps(0.01, 0.0100001), {}, "undecided"),
        (gaps(NAN, 0.01), {}, "undecided"),
        (gaps(), curve(), "none"),
        (gaps(), curve((0, 2, 4), (NAN, 0.3, 0.3)), "undecided"),
        (gaps(), curve((0, 0, 0)), "undecided"),
        (gaps(**EPS), curve((4,), (0.3,)), "undecided"),
        (gaps(), curve(largest=(0.3, 0.5, 0.3)), "undecided"),
        (gaps(), curve((1, 2, 3)), "undecided"),
        (gaps(), curve((1, 2, 4, 3), (0.3,) * 4), "none"),
        (gaps(0.3, 0.25), curve(largest=(0.25,) * 3), "none"),
        (gaps(), curve(largest=(NAN, 0.32, 0.3)), "undecided"),
        (gaps(), curve(largest=(0.38, 0.33, 0.3)), "none"),
        (gaps(**EPS), curve(largest=(0.38, 0.33, 0.3)), "undecided"),
        (gaps(**EPS), curve(), "none"),
        (gaps(), curve().drop(columns="margin_gap_frobenius"), "undecided"),
        (ball(0.005)[0], {}, "ball of max"),
        (*ball(), "none"),
        (*ball(sizes=(1, 3, 4)), "undecided"),
        (*ball(last=(0.32, 0.3)), "undecided"),
        (*ball(own=""), "none"),
        (*ball(own="l1"), "undecided"),
    ],
)
def test_an_instance_ends_at_its_least_gap_or_at_none_once_all_stay_above(row, steps, expected):
    assert optimizer_geometry.ending(pd.Series(row), pd.DataFrame(steps)) == expected


@pytest.mark.parametrize(
    ("highs", "ends", "expected"),
    [
        ((0.01, 0.2), {"max": 4, "undecided": 12}, "one"),
        ((0.03, 0.2), {"max": 8, "undecided": 8}, "open"),
        ((0.3, 0.4), {"none": 15, "undecided": 1}, "one"),
        ((0.3, 0.4), {"none": 8, "max": 8}, "several"),
        ((0.3, 0.4), {"none": 8, "max": 6, "undecided": 2}, "open"),
        ((0.15, 0.2), {"undecided": 16}, "open"),
    ],
)
def test_a_setting_is_decided_by_one_norm_apart_or_by_nine_of_ten_instances(highs, ends, expected):
    norms = pd.DataFrame({"margin_in": ["max", "l1"], "low": [0.0, 0.1]})
    table = norms.assign(high=highs, median=[highs[0] / 2, 0.15])
    counts = pd.DataFrame({"reached": [*ends], "count": [*ends.values()]})
    assert optimizer_geometry.decision(table, counts) == expected


B, N, T, D = 4, 2, 3, 2
OPTIMAL = np.array([2, 0])
"""The best-scoring token of each sample, of every instance."""


def arrays(selected):
    rng = np.random.default_rng(0)
    scores = np.zeros((B, N, T))
    scores[:, np.arange(N), OPTIMAL] = 1.0
    scores[:, :, 1] = 2.0  # better, but inadmissible
    mask = np.ones((B, N, T), dtype=bool)
    mask[:, :, 1] = False
    shapes = {"X": (B, N, T, D), "Z": (B, N, D), "snapshots": (B, 2, D, D)}
    values = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    of_tokens = {"mask": mask, "scores": scores, "selected": np.array(selected)}
    return values | of_tokens | {"seeds": np.arange(B)}


SGD = arrays([[2, 0], [2, 0], [0, 0], [2, 0]])
ADAM = arrays([[2, 0], [2, 2], [0, 0], [2, 0]])
OK = ("ok",) * B


def pairs(stored, sgd=OK, adam=OK, arrays=ADAM, **field):
    """Return the pairs of both runs, with these statuses; instances without one have no row."""
    stored.update(sgd=SGD, adam=arrays)
    cells = {"sgd": {"optimizer": "sgd"}, "adam": {"optimizer": "adam"} | field}
    sweep = synthetic.sweep(
        "",
        cells,
        lambda cell, seed: {"status": {"sgd": sgd, "adam": adam}[cell["optimizer"]][seed]},
        trials=B,
    )
    rows = sweep.rows.dropna(subset="status")
    return _selections.of_pairs(dataclasses.replace(sweep, rows=rows))


def equal_tokens(*statuses, **changed):
    """Return of adam and sgd the share of equal tokens, and the numbers used and excluded."""
    row = only(pairs(*statuses, **changed), optimizer="adam", second="sgd", measure="equal")
    return tuple(row[["share", "used", "excluded"]])


def test_shares_are_those_counted_by_hand(stored):
    """adam, sgd: equal on instances 0, 2 and 3; both optimal on 0 and 3."""
    table = pairs(stored)
    shares = table.pivot(index=["optimizer", "second"], columns="measure", values="share")
    assert shares[["equal", "both_optimal"]].apply(tuple, axis=1).to_dict() == {
        ("adam", "adam"): (1, 0.5),
        ("adam", "sgd"): (0.75, 0.5),
        ("sgd", "sgd"): (1, 0.75),
    }
    assert (table[["used", "excluded"]] == [B, 0]).all(axis=None)


@pytest.mark.parametrize("name", ["X", "Z", "snapshots"])
def test_another_instance_or_start_is_left_out_and_counted(stored, name):
    changed = ADAM[name].copy()
    changed[1].flat[0] = np.nextafter(changed[1].flat[0], 9.0)
    assert equal_tokens(stored, arrays=ADAM | {name: changed}) == (1.0, 3, 1)


def test_a_selection_that_is_not_final_or_not_there_is_left_out_and_counted(stored):
    ended = ("ok", "ok", "unsaturated", "infeasible"), ("undecided", "stalled", "ok", "ok")
    assert equal_tokens(stored, *ended) == (1.0, 2, 2)
    three = {key: values[:3] for key, values in ADAM.items()}
    assert equal_tokens(stored, adam=(*OK[:3], None), arrays=three)[1:] == (3, 1)
    without_path = {key: values for key, values in ADAM.items() if key != "snapshots"}
    assert equal_tokens(stored, arrays=without_path)[1:] == (0, B)


@pytest.mark.parametrize("field", [{"optimizer.init": "zero"}, {"data.d": 7}])
def test_runs_that_differ_in_more_than_the_optimizer_are_no_pair(stored, field):
    table = pairs(stored, **field)
    assert (table["optimizer"] == table["second"]).all()
    assert len(table) == 4
