import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import aggregate, style
from attnsvm.sweeps.facets import Panel, curves
from attnsvm.sweeps.figures import adhoc, correlation_vs_d, figure_module, rank_vs_d
from tests.sweeps import synthetic
from tests.sweeps.synthetic import HOSTILE, drawn, only
from tests.verify.kinds import some_quick


def test_a_sweep_is_drawn_by_the_module_of_its_name():
    assert figure_module("rank_vs_d") is rank_vs_d
    assert figure_module("") is adhoc
    assert figure_module("../../os") is adhoc
    assert figure_module("sys") is adhoc


@pytest.fixture(scope="module")
def rank():
    return synthetic.rank_frames()


def test_means_use_certified_solutions_and_every_instance_is_counted(rank):
    table = rank_vs_d.tables(rank)["rank_vs_d"]
    row = only(table, n=5, T=5, d=20, method="certified", svm_norm="nuclear")
    trials = rank.trials.query("n == 5 and T == 5 and d == 20")
    used = trials[(trials["status"] == "ok") & (trials["nuclear_status"] == "solved")]
    assert row["used"] == len(used)
    assert row["rank_mean"] == pytest.approx(used["nuclear_rank"].astype(float).mean())
    assert row["undecided"] == 1
    assert row["tied"] == 1
    assert row["set_aside"] == 1  # the failure
    counted = table[["used", "nothing", "undecided", "tied", "set_aside"]].sum(axis=1)
    certified = table["method"] == "certified"
    assert (counted == table["trials"])[certified].all()
    assert (table["used"] + table["set_aside"] == table["trials"])[~certified].all()
    assert table.loc[certified & (table["svm_norm"] == "nuclear"), "trials"].sum() == len(
        rank.trials
    )


def test_infeasible_cells_have_no_certified_point_but_a_published_one(rank):
    tables, (drawing, *_), (text, *_) = drawn(rank)
    at = {"n": 5, "T": 5, "d": 1, "svm_norm": "frobenius"}
    row = only(tables["rank_vs_d"], **at, method="certified")
    assert np.isnan(row["rank_mean"])
    assert row["nothing_share"] == 1.0
    assert only(tables["rank_vs_d"], **at, method="published")["rank_mean"] == 1.0
    certified_panel = drawing.figure.axes[0]
    assert min(min(line.get_xdata(), default=9) for line in certified_panel.lines) > 1
    for word in (
        "certified infeasible",
        "20 undecided",
        "21 with tied best scores",
        "a remark",
        "17 rejected, diverged or failed",
    ):
        assert word in text


@pytest.mark.full
def test_a_widened_grid_shows_every_cell():
    cells = [(5, 5), (10, 5), (3, 4)]  # T = 5 with two n, and a cell beside
    _, drawings, _ = drawn(synthetic.rank_frames(cells=cells, ds=(2, 4), trials=8))
    assert [len(drawing.figure.axes) for drawing in drawings] == [
        2 * 2,
        2,
    ]  # two methods; infeasible


@pytest.mark.full
def test_one_norm_and_a_single_trial_without_published_columns_are_enough():
    single = synthetic.rank_frames(cells=[(5, 5)], ds=(20,), trials=1)
    columns = [c for c in single.trials if "nuclear" not in c and "published" not in c]
    tables, drawings, _ = drawn(dataclasses.replace(single, trials=single.trials[columns]))
    row = only(tables["rank_vs_d"], method="certified", svm_norm="frobenius")
    assert row["used"] == len(tables["rank_vs_d"]) == 1
    assert np.isnan(row["rank_low"])  # a point without an interval
    assert [len(drawing.figure.axes) for drawing in drawings] == [1, 1]


def test_what_is_switched_off_has_no_panel_and_no_row(rank):
    """A run without the published method, or with one norm, has these columns, without a value."""
    published = [name for name in rank.trials if name.startswith("published_")]
    empty = {name: "" if name.endswith("status") else pd.NA for name in published}
    off = rank.trials.assign(**empty)
    tables, drawings, _ = drawn(dataclasses.replace(rank, trials=off))
    assert set(tables["rank_vs_d"]["method"]) == {"certified"}
    before, after = (
        [len(drawing.figure.axes) for drawing in drawings]
        for drawings in (drawn(rank)[1], drawings)
    )
    assert (before[0], after[0]) == (2, 1)
    for name in ("nuclear", "frobenius"):
        less = off.assign(**{f"{name}_status": "", f"{name}_rank": pd.NA})
        tables, drawings, _ = drawn(dataclasses.replace(rank, trials=less))
        assert set(tables["rank_vs_d"]["svm_norm"]) == {"nuclear", "frobenius"} - {name}
        assert drawings[0].figure.axes[0].lines
    nothing = off.assign(frobenius_status="", nuclear_status="", status="failed")
    tables, drawings, _ = drawn(dataclasses.replace(rank, trials=nothing))
    assert tables["rank_vs_d"]["set_aside"].sum() == 2 * len(nothing)  # counted, in both norms


RECORDS = Path(__file__).parents[2] / "docs/records"


@pytest.mark.parametrize(
    "folder",
    some_quick(sorted(path.parent.name for path in RECORDS.glob("*/sweep.json")), ("rank_vs_d",)),
)
def test_a_column_of_a_table_is_called_like_a_field_only_if_it_is_the_field(folder):
    """A report calls these columns as users type the fields."""
    frames = aggregate.load(RECORDS / folder)
    for table in figure_module(frames.name).tables(frames).values():
        for name in set(table) & set(frames.typed):
            values = set(frames.trials[name].astype(str)) if name in frames.trials else set()
            assert set(table[name].dropna().astype(str)) <= values, name


@pytest.fixture(scope="module")
def correlation():
    return synthetic.correlation_frames()


def test_only_accepted_instances_enter_the_correlations(correlation):
    tables = correlation_vs_d.tables(correlation)
    accepted = correlation.trials[correlation.trials["status"] == "ok"]
    final = tables["correlation_vs_d"]
    row = only(final, d=4, quantity="one_minus_corr_svmeq", instances="all")
    values = accepted.loc[accepted["d"] == 4, "one_minus_corr_svmeq"]
    assert row["used"] == len(values)
    assert row["mean"] == pytest.approx(values.mean())
    assert len(tables["correlation_vs_d_instances"]) == len(accepted)
    steps = tables["correlation_vs_d_steps"]
    assert (steps["used"] + steps["excluded"]).max() == len(values)
    assert tables["correlation_vs_d_counts"]["count"].sum() == len(correlation.trials)
    undefined = only(steps, d=4, quantity="one_minus_corr_svmeq", step=0)
    assert undefined["used"] == 0
    assert np.isnan(undefined["mean"])


def test_the_correlation_figures_count_rejections_by_reason(correlation):
    _, drawings, texts = drawn(correlation)
    kinds = ("", "_drawn", "_steps", "_scatter")
    assert [d.name for d in drawings] == [f"correlation_vs_d{kind}" for kind in kinds]
    for text in texts:
        assert "64 rejected: ambiguous softmax" in text
        assert "84 accepted" in text
    assert "no instance" in texts[2]
    assert "Accepted: 28 of 40 at d=4" in texts[2]


@pytest.mark.full
def test_instances_with_a_flat_head_are_told_apart(correlation):
    flat = (correlation.trials["seed"] % 2 == 0).astype("boolean")
    frames = dataclasses.replace(correlation, trials=correlation.trials.assign(flat=flat))
    tables, _, texts = drawn(frames)
    final = tables["correlation_vs_d"].query("d == 4 and quantity == 'one_minus_corr_frobenius'")
    ok = frames.trials.query("d == 4 and status == 'ok'")
    expected = {"all": len(ok), "not flat": (~ok["flat"]).sum()}
    assert dict(zip(final["instances"], final["used"], strict=True)) == expected
    assert "accepted, flat" in texts[1]
    assert "not flat" in texts[0]


def test_published_numbers_stand_beside_ours_where_the_setting_is_theirs():
    exact = synthetic.correlation_frames(ds=(4, 10), trials=6)
    both = [
        pd.concat([f.assign(gradient="direct", run=f["run"] + "x"), f], ignore_index=True)
        for f in (exact.trials, exact.history)
    ]
    frames = synthetic.with_rows(exact, both[0], history=both[1])
    tables, drawings, texts = drawn(frames)
    published = tables["correlation_vs_d_published"]
    assert list(published["d"].unique()) == [4, 10]
    assert set(published["gradient"]) == {"direct"}
    assert [len(d.figure.axes) for d in drawings] == [2] * 6
    assert "read off" in texts[0]
    lines = [[line for line in ax.lines if len(line.get_xdata())] for ax in drawings[0].figure.axes]
    marked = ["_" in [line.get_marker() for line in panel] for panel in lines]
    assert marked == [True, False]  # beside their arithmetic only
    for other in ({"n": 4}, {"head": "linear"}, {"gradient": "log_domain"}):
        tables = correlation_vs_d.tables(synthetic.with_rows(frames, both[0].assign(**other)))
        assert tables["correlation_vs_d_published"].empty


def test_adhoc_shares_sum_to_one_in_every_cell():
    tables, *_ = drawn(synthetic.trained_frames(""))
    total = tables["outcomes"].groupby("cell")["share"].sum()
    np.testing.assert_allclose(total, 1)
    cells = [f"parameterization={rule}, d={d}" for rule in ("kq", "w") for d in (4, 8)]
    assert list(tables["outcomes"]["cell"].unique()) == cells


@pytest.mark.full
def test_adhoc_draws_a_single_cell_and_one_without_any_trained_instance():
    frames = synthetic.trained_frames("")
    cell = frames.trials.query("parameterization == 'w' and d == 4")
    tables, *_ = drawn(synthetic.with_rows(frames, cell))
    assert set(tables["outcomes"]["cell"]) == {"all"}
    lost = cell.assign(status="failed", convergence="", one_minus_corr_frobenius=np.nan)
    *_, (text,) = drawn(synthetic.with_rows(frames, lost))
    assert "failed" in text


def adhoc_cells(*heads, ds=(4,), ns=(5,)):
    """A sweep over heads, dimensions and numbers of samples, its last cell without a result."""

    def instance(cell, seed):
        lost = (cell["head"], cell["n"], cell["d"]) == (heads[-1], ns[-1], ds[-1])
        status = "infeasible" if lost else "ok"
        value = np.nan if lost else 10.0 ** -(cell["d"] + seed)
        return {"status": status, "convergence": "", "one_minus_corr_frobenius": value}

    cells = {
        f"{head}{n}-{d}": {"head": head, "n": n, "d": d} for head in heads for n in ns for d in ds
    }
    return synthetic.sweep("", cells, instance, trials=3)


def test_a_numeric_axis_of_an_adhoc_sweep_is_x_and_the_next_ones_colours_and_columns():
    frames = adhoc_cells("linear", "relu", ds=(2, 4, 6, 8), ns=(3, 5, 7))
    tables, drawings, texts = drawn(frames)
    assert [drawing.name for drawing in drawings] == ["adhoc_ok", "adhoc_one_minus_corr_frobenius"]
    for drawing in drawings:  # 24 cells: no bars
        panels = drawing.figure.axes
        assert [ax.get_title(loc="left") for ax in panels] == ["$n=3$", "$n=5$", "$n=7$"]
        assert {ax.get_xlabel() for ax in panels} == {"token dimension $d$"}
        assert [len(ax.get_lines()) for ax in panels] == [2, 2, 2]
    medians = tables["agreement"].set_index(["head", "n", "d"])["median"]
    assert medians["linear", 3, 4] == 1e-5
    assert np.isnan(medians["relu", 7, 8])
    assert "Instances: 72, 69 shown" in texts[1]


@pytest.mark.full
def test_bars_without_a_numeric_axis_have_pages_that_show_every_cell():
    heads = [f"my_{i:02d}" for i in range(30)]
    _, drawings, texts = drawn(adhoc_cells(*heads))
    assert [drawing.name for drawing in drawings] == [
        f"adhoc{kind}{page}" for kind in ("", "_agreement") for page in ("", "_1", "_2")
    ]
    assert all(f"head={head}" in " ".join(texts) for head in heads)


@pytest.mark.parametrize("asked", [False, True])
def test_warnings_of_drawing_reach_only_who_asks_for_them(asked):
    with warnings.catch_warnings(record=True) as warned:
        warnings.resetwarnings()
        if asked:
            warnings.simplefilter("always")
        with style.paper():
            style.figure(3, 2).subplots().legend()  # without entries
    assert len(warned) == asked


def test_hostile_text_is_drawn_as_it_stands_and_plain_is_one_short_line_without_formulas():
    with style.paper():
        fig = style.figure(3, 2)
        ax = fig.subplots()
        style.heading(ax, style.plain(HOSTILE))
        style.note(fig, [HOSTILE * 3, "漢字 \U0001f600"])
        assert style.png(fig).startswith(b"\x89PNG")
    shown = style.plain(HOSTILE * 5, limit=50)
    assert len(shown) == 50
    assert "$" not in shown
    assert shown.isprintable()
    assert style.plain(style.plain(HOSTILE)) == style.plain(HOSTILE)


@pytest.mark.parametrize(("used", "word"), [(1, "no cycles"), (0, "no instance")])
def test_an_empty_panel_says_why_unless_nothing_is_certified(used, word):
    values = {"col": ["a", "b"], "x": [1, 1], "median": [1.0, np.nan], "used": [used, 0]}
    panels = {"a": Panel(), "b": Panel(nothing="no cycles")}
    fig = curves(pd.DataFrame(values), "x", "median", panels=panels)
    assert [text.get_text() for text in fig.axes[1].texts] == [word]


def test_log_axes_span_at_least_a_decade_and_colours_are_distinct():
    ax = style.figure(3, 2).subplots()
    ax.plot([1, 2], [3e-3, 4e-3])
    style.log_axis(ax.yaxis)
    low, high = ax.get_ylim()
    assert high / low >= 9.99
    for n in (3, 7, 12):
        assert len(set(style.colours(range(n)).values())) == n
