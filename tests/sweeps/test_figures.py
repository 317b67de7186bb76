from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.figures import Drawing, adhoc, correlation_vs_d, figure_module, rank_vs_d
from tests.sweeps import synthetic

HERE = Path("sweep")


def drawn(frames: SweepFrames) -> tuple[dict[str, pd.DataFrame], list[Drawing]]:
    module = figure_module(frames.name)
    with style.paper():
        tables = module.tables(frames)
        drawings = module.draw(tables, frames.axes, ["a remark"])
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
    return tables, drawings


def text_of(drawing: Drawing) -> str:
    artists = drawing.figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return "\n".join(artist.get_text() for artist in artists)


def test_a_sweep_is_drawn_by_the_module_of_its_name():
    assert figure_module("rank_vs_d") is rank_vs_d
    assert figure_module("") is adhoc
    assert figure_module("../../os") is adhoc
    assert figure_module("sys") is adhoc


# --- rank_vs_d -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rank() -> SweepFrames:
    return synthetic.rank_frames(HERE)


def rank_cell(table: pd.DataFrame, **keys: object) -> pd.Series:
    chosen = table
    for key, value in keys.items():
        chosen = chosen[chosen[key] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_certified_means_use_certified_solutions_only(rank: SweepFrames):
    table = rank_vs_d.tables(rank)["rank_vs_d"]
    row = rank_cell(table, n=5, T=5, d=20, method="certified", norm="nuclear")
    trials = rank.trials.query("n == 5 and T == 5 and d == 20")
    used = trials[(trials["status"] == "ok") & (trials["nuclear_status"] == "solved")]
    assert row["used"] == len(used)
    assert row["rank_mean"] == pytest.approx(used["nuclear_rank"].astype(float).mean())
    assert row["undecided"] == 1
    assert row["tied"] == 1
    assert row["set_aside"] == 1  # the failure


def test_every_instance_of_every_cell_is_accounted_for(rank: SweepFrames):
    table = rank_vs_d.tables(rank)["rank_vs_d"]
    counted = table[["used", "nothing", "undecided", "tied", "set_aside"]].sum(axis=1)
    certified = table["method"] == "certified"
    assert (counted == table["trials"])[certified].all()
    assert (table["used"] + table["set_aside"] == table["trials"])[~certified].all()
    assert table.loc[certified & (table["norm"] == "nuclear"), "trials"].sum() == len(rank.trials)


def test_infeasible_cells_have_no_certified_point_but_a_published_one(rank: SweepFrames):
    table, drawings = drawn(rank)
    row = rank_cell(table["rank_vs_d"], n=5, T=5, d=1, method="certified", norm="frobenius")
    assert np.isnan(row["rank_mean"])
    assert row["nothing_share"] == 1.0
    row = rank_cell(table["rank_vs_d"], n=5, T=5, d=1, method="published", norm="frobenius")
    assert row["rank_mean"] == 1.0
    certified_panel = drawings[0].figure.axes[0]
    assert min(min(line.get_xdata(), default=9) for line in certified_panel.lines) > 1


def test_the_rank_figure_says_what_it_leaves_out(rank: SweepFrames):
    _, (drawing,) = drawn(rank)
    text = text_of(drawing).replace("\n", " ")
    assert "certified infeasible" in text
    assert "20 undecided" in text
    assert "21 with tied best scores" in text
    assert "17 rejected, diverged or failed" in text
    assert "a remark" in text


@pytest.mark.parametrize(
    ("cells", "ds", "panels"),
    [
        ([(7, 5)], (5, 10), 1),
        ([(5, 5), (10, 5), (15, 5), (5, 10), (5, 15)], (5, 10), 2),
        ([(n, T) for n in (5, 10) for T in (5, 10)], (5,), 4),
        ([(5, 5), (10, 5), (3, 4)], (2, 3, 4), 2),
    ],
)
@pytest.mark.full
def test_narrowed_and_widened_grids_show_every_cell(
    cells: list[tuple[int, int]], ds: tuple[int, ...], panels: int
):
    _, (drawing,) = drawn(synthetic.rank_frames(HERE, cells, ds, trials=8))
    assert len(drawing.figure.axes) == panels * 4  # ranks and strip, two methods


@pytest.mark.full
def test_other_keys_that_vary_get_a_figure_each(rank: SweepFrames):
    twice = pd.concat([rank.trials, rank.trials.assign(head="relu")], ignore_index=True)
    _, drawings = drawn(synthetic.with_rows(rank, twice))
    assert [d.name for d in drawings] == ["rank_vs_d", "rank_vs_d_1"]
    assert "head=relu" in text_of(drawings[1])


@pytest.mark.full
def test_one_norm_and_no_published_columns_are_enough(rank: SweepFrames):
    columns = [c for c in rank.trials if "nuclear" not in c and "published" not in c]
    tables, (drawing,) = drawn(dataclasses.replace(rank, trials=rank.trials[columns]))
    assert set(tables["rank_vs_d"]["norm"]) == {"frobenius"}
    assert len(drawing.figure.axes) == 4


@pytest.mark.full
def test_a_single_trial_is_a_point_without_interval():
    tables, _ = drawn(synthetic.rank_frames(HERE, [(5, 5)], (20,), trials=1))
    row = rank_cell(tables["rank_vs_d"], method="certified", norm="nuclear")
    assert row["used"] == 1
    assert np.isnan(row["rank_low"])


# --- correlation_vs_d ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def correlation() -> SweepFrames:
    return synthetic.correlation_frames(HERE)


def test_only_accepted_instances_enter_the_correlations(correlation: SweepFrames):
    tables = correlation_vs_d.tables(correlation)
    accepted = correlation.trials[correlation.trials["status"] == "ok"]
    final = tables["correlation_vs_d"]
    row = rank_cell(final, d=4, quantity="one_minus_corr_svmeq", instances="all")
    values = accepted.loc[accepted["d"] == 4, "one_minus_corr_svmeq"]
    assert row["used"] == len(values)
    assert row["mean"] == pytest.approx(values.mean())
    assert len(tables["correlation_vs_d_instances"]) == len(accepted)
    steps = tables["correlation_vs_d_steps"]
    assert (steps["used"] + steps["excluded"]).max() == len(values)
    assert tables["correlation_vs_d_counts"]["count"].sum() == len(correlation.trials)


def test_a_step_where_nothing_is_defined_has_no_point(correlation: SweepFrames):
    steps = correlation_vs_d.tables(correlation)["correlation_vs_d_steps"]
    row = rank_cell(steps, d=4, quantity="one_minus_corr_svmeq", step=0)
    assert row["used"] == 0
    assert np.isnan(row["mean"])


def test_the_correlation_figures_count_rejections_by_reason(correlation: SweepFrames):
    _, drawings = drawn(correlation)
    assert [d.name for d in drawings] == [
        "correlation_vs_d",
        "correlation_vs_d_steps",
        "correlation_vs_d_scatter",
    ]
    for drawing in drawings:
        text = text_of(drawing).replace("\n", " ")
        assert "64 rejected: ambiguous softmax" in text
        assert "84 accepted" in text
    assert "no accepted instance" in text_of(drawings[1])
    assert "28 of 40 accepted" in text_of(drawings[1])


@pytest.mark.full
def test_instances_with_a_flat_head_are_told_apart(correlation: SweepFrames):
    flat = (correlation.trials["seed"] % 2 == 0).astype("boolean")
    frames = dataclasses.replace(correlation, trials=correlation.trials.assign(flat=flat))
    tables, drawings = drawn(frames)
    final = tables["correlation_vs_d"].query("d == 4 and quantity == 'one_minus_corr_frobenius'")
    ok = frames.trials.query("d == 4 and status == 'ok'")
    assert dict(zip(final["instances"], final["used"], strict=True)) == {
        "all": len(ok),
        "not flat": (~ok["flat"]).sum(),
    }
    assert "accepted, flat" in text_of(drawings[0])


@pytest.mark.full
def test_other_keys_that_vary_get_panels_of_their_own(correlation: SweepFrames):
    twice = [
        pd.concat([f, f.assign(gradient="direct", run=f["run"] + "x")], ignore_index=True)
        for f in (correlation.trials, correlation.history)
    ]
    frames = synthetic.with_rows(correlation, twice[0], history=twice[1])
    _, drawings = drawn(frames)
    assert [len(d.figure.axes) for d in drawings] == [4, 8, 24]
    assert "gradient=direct" in text_of(drawings[0])


def test_published_numbers_stand_beside_ours_where_the_setting_is_theirs(
    correlation: SweepFrames,
):
    both = [
        pd.concat(
            [f.assign(gradient="direct", run=f["run"] + "x"), f.assign(gradient="log_domain")],
            ignore_index=True,
        )
        for f in (correlation.trials, correlation.history)
    ]
    frames = synthetic.with_rows(correlation, both[0], history=both[1])
    tables, drawings = drawn(frames)
    published = tables["correlation_vs_d_published"]
    assert list(published["d"].unique()) == [4, 10]
    assert set(published["gradient"]) == {"direct"}
    assert "read off" in text_of(drawings[0])
    marks = [[line.get_marker() for line in ax.lines] for ax in drawings[0].figure.axes[:2]]
    assert ["_" in panel for panel in marks] == [True, False]  # beside their arithmetic only
    for other in ({"n": 4}, {"head": "linear"}, {"gradient": "log_domain"}):
        tables, drawings = drawn(synthetic.with_rows(frames, both[0].assign(**other)))
        assert tables["correlation_vs_d_published"].empty
        assert "read off" not in text_of(drawings[0])


@pytest.mark.parametrize("ds", [(4,), (4, 6, 8, 10, 12, 14)])
@pytest.mark.full
def test_the_correlation_grid_may_be_narrowed_or_widened(ds: tuple[int, ...]):
    _, drawings = drawn(synthetic.correlation_frames(HERE, ds, trials=10))
    assert len(drawings[1].figure.axes) == len(ds)


@pytest.mark.full
def test_all_rejected_is_drawn_as_such():
    _, drawings = drawn(synthetic.correlation_frames(HERE, (10,), trials=6))
    assert all("no accepted instance" in text_of(d) for d in drawings)


# --- adhoc ---------------------------------------------------------------------------------------


def test_adhoc_shares_sum_to_one_in_every_cell():
    tables, _ = drawn(synthetic.adhoc_frames(HERE))
    total = tables["outcomes"].groupby("cell")["share"].sum()
    np.testing.assert_allclose(total, 1)
    assert list(tables["outcomes"]["cell"].unique()) == [
        "head=linear, d=4",
        "head=linear, d=8",
        "head=relu, d=4",
        "head=relu, d=8",
    ]


@pytest.mark.full
def test_adhoc_draws_a_single_cell_and_one_without_any_trained_instance():
    frames = synthetic.adhoc_frames(HERE)
    one = frames.trials.query("head == 'relu' and d == 4")
    tables, _ = drawn(synthetic.with_rows(frames, one))
    assert set(tables["outcomes"]["cell"]) == {"all"}
    lost = one.assign(status="failed", convergence="", one_minus_corr_frobenius=np.nan)
    _, (drawing,) = drawn(synthetic.with_rows(frames, lost))
    assert "no instance" in text_of(drawing)


def adhoc_cells(*heads: str, ds: tuple[int, ...] = (4,), ns: tuple[int, ...] = (5,)):
    """A sweep over heads, dimensions and numbers of samples, its last cell without a result."""
    runs, rows = [], []
    for head in heads:
        for n in ns:
            for d in ds:
                cell = synthetic.cell_keys(head=head, d=d, n=n)
                run = f"{head}{n}-{d}"
                runs.append(synthetic.run_row(run, cell, 3))
                lost = (head, n, d) == (heads[-1], ns[-1], ds[-1])
                for seed in range(3):
                    row = {"run": run, "seed": seed, "reason": "", "convergence": ""}
                    row |= {"status": "infeasible" if lost else "ok"}
                    row |= {"one_minus_corr_frobenius": np.nan if lost else 10.0 ** -(d + seed)}
                    rows.append(cell | row)
    tables = pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame()
    return synthetic.framed("", HERE, *tables)


def test_a_numeric_axis_of_an_adhoc_sweep_is_x_and_the_next_ones_colours_and_columns():
    frames = adhoc_cells("linear", "relu", ds=(2, 4, 6, 8), ns=(3, 5, 7))
    tables, drawings = drawn(frames)
    assert [one.name for one in drawings] == ["adhoc_ok", "adhoc_one_minus_corr_frobenius"]
    for drawing in drawings:  # 24 cells: no bars
        panels = drawing.figure.axes
        assert [ax.get_title(loc="left") for ax in panels] == ["n=3", "n=5", "n=7"]
        assert {ax.get_xlabel() for ax in panels} == {"d"}
        assert [len(ax.get_lines()) for ax in panels] == [2, 2, 2]
    medians = tables["agreement"].set_index(["head", "n", "d"])["median"]
    assert medians["linear", 3, 4] == 1e-5
    assert np.isnan(medians["relu", 7, 8])
    assert "Instances: 72, 69 shown" in text_of(drawings[1])


@pytest.mark.full
def test_colours_of_an_adhoc_sweep_do_not_depend_on_which_cells_have_a_value():
    _, drawings = drawn(adhoc_cells("linear", "relu", ds=(2, 4), ns=(3,)))
    _, ok, agreement = drawings
    for drawing in (ok, agreement):
        names = [text.get_text() for text in drawing.figure.axes[0].get_legend().get_texts()]
        assert names == ["linear", "relu"]


@pytest.mark.full
def test_bars_without_a_numeric_axis_have_pages_that_show_every_cell():
    heads = [f"my_{i:02d}" for i in range(30)]
    _, drawings = drawn(adhoc_cells(*heads))
    assert [one.name for one in drawings] == ["adhoc", "adhoc_1", "adhoc_2"]
    words = " ".join(text_of(one) for one in drawings)
    assert all(f"head={head}" in words for head in heads)


# --- what lies on top of each other ---------------------------------------------------------------


def test_equal_curves_of_the_rank_figure_lie_in_each_other():
    """The series of T have the same rank n: each is narrower than the one that it covers."""
    _, (drawing,) = drawn(synthetic.rank_frames(HERE, [(5, 5), (5, 10), (5, 15)], (10, 20)))
    ranks = drawing.figure.axes[0]
    solid = [line for line in ranks.get_lines() if line.get_linestyle() == "-"]
    assert len(solid) == 3
    widths = [line.get_linewidth() for line in solid]
    assert sorted(widths, reverse=True) == widths
    assert len(set(widths)) == 3
    begins = [line.get_xdata()[0] for line in solid]
    assert sorted(begins) == begins
    assert len(set(begins)) == 3
    assert max(abs(x - 10) for x in begins) < 0.5


@pytest.mark.full
def test_each_correlation_has_panels_of_its_own_in_the_scatter():
    _, drawings = drawn(synthetic.correlation_frames(HERE, (4, 6), trials=10))
    scatter = next(one for one in drawings if one.name == "correlation_vs_d_scatter")
    points = [ax.collections for ax in scatter.figure.axes]
    assert [len(collections) for collections in points] == [1] * 6
    colours = [tuple(one.get_facecolor()[0][:3]) for (one,) in points]
    assert len(set(colours)) == 3
    assert colours[0] == colours[1] != colours[2]
