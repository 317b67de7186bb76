import dataclasses
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.facets import Panel, curves
from attnsvm.sweeps.figures import adhoc, correlation_vs_d, figure_module, rank_vs_d
from tests.sweeps import synthetic
from tests.sweeps.synthetic import HOSTILE, RECORDS, drawn


def test_a_sweep_is_drawn_by_the_module_of_its_name():
    assert figure_module("rank_vs_d") is rank_vs_d
    assert figure_module("") is adhoc
    assert figure_module("../../os") is adhoc
    assert figure_module("sys") is adhoc


@pytest.fixture(scope="module")
def rank():
    return synthetic.rank_frames()


def test_infeasible_cells_have_no_certified_point_but_a_published_one(rank):
    tables, drawings, (text, *_) = drawn(rank)
    names = ("rank_vs_d", "rank_vs_d_by_T", "rank_vs_d_infeasible", "rank_vs_d_infeasible_by_T")
    assert tuple(drawing.name for drawing in drawings) == names
    cells = tables["rank_vs_d"].query("`data.d` == 4")
    certified, published = (part for _, part in cells.groupby("method"))
    assert certified["rank_mean"].isna().all()
    assert (certified["nothing_share"] == 1.0).all()
    assert (published["rank_mean"] == 1.0).all()
    certified_panel = drawings[0].figure.axes[0]
    assert min(min(line.get_xdata(), default=9) for line in certified_panel.lines) > 4
    for word in ("1 undecided", "1 with tied best scores", "1 rejected, diverged or failed"):
        assert word in text


def test_what_is_switched_off_has_no_panel_and_no_row(rank):
    """A run without the published method, or with one norm, has these columns, without a value."""
    rank = dataclasses.replace(rank, rows=rank.rows.query("`data.n` == 15 and `data.T` == 5"))
    published = [name for name in rank.rows if name.startswith("published_")]
    empty = {name: "" if name.endswith("status") else pd.NA for name in published}
    off = rank.rows.assign(**empty)
    panels = []
    for rows in (rank.rows, off):
        tables, (drawing, *_), _ = drawn(dataclasses.replace(rank, rows=rows))
        panels.append(len(drawing.figure.axes))
    assert panels == [2, 1]
    assert set(tables["rank_vs_d"]["method"]) == {"certified"}
    less = off.assign(nuclear_status="", nuclear_rank=pd.NA)
    tables = rank_vs_d.tables(dataclasses.replace(rank, rows=less))
    assert set(tables["rank_vs_d"]["svm_norm"]) == {"frobenius"}
    nothing = off.assign(frobenius_status="", nuclear_status="", status="failed")
    tables = rank_vs_d.tables(dataclasses.replace(rank, rows=nothing))
    assert tables["rank_vs_d"]["set_aside"].sum() == 2 * len(nothing)  # counted, in both norms


def test_the_correlation_figures_count_rejections_by_reason_and_flat_heads():
    correlation = read_sweep(RECORDS / "correlation_vs_d")
    tables, drawings, texts = drawn(correlation)
    assert [d.name for d in drawings] == ["correlation_vs_d", "correlation_vs_d_pairs"]
    accepted = correlation.rows[correlation.rows["status"] == "ok"]
    exact = accepted[accepted["optimizer.gradient"] == "log_domain"]
    zero = correlation.curves.query("quantity == 'slope_least' and value == 0")
    flat = {*accepted.loc[accepted["flat"], "seed"], *zero["seed"]}
    both = {seed for seed, rows in accepted.groupby("seed") if len(rows) == 2}
    expected = {"all": len(exact), "not flat": (~exact["flat"]).sum()}
    expected |= {"same seeds": len(both), "same seeds, never flat": len(both - flat)}
    final = tables["correlation_vs_d"].query("quantity == 'one_minus_corr_frobenius'")
    final = final[final["optimizer.gradient"] == "log_domain"]
    assert 0 < len(both) < len(exact)
    assert dict(zip(final["instances"], final["used"], strict=True)) == expected
    rejected = correlation.rows.query("status == 'rejected'")["reason"].value_counts()
    for text in texts:
        assert "accepted, flat" in text
        assert all(f"{n} rejected: {reason[:20]}" in text for reason, n in rejected.items())
    # published numbers stand beside their arithmetic only, where the setting is theirs
    assert set(tables["correlation_vs_d_published"]["optimizer.gradient"]) == {"direct"}
    marked = ["_" in {line.get_marker() for line in ax.lines} for ax in drawings[0].figure.axes]
    assert marked == [True, False, False]
    pairs = tables["correlation_vs_d_pairs"].set_index("seed")
    for gradient, accepts in accepted.groupby("optimizer.gradient"):
        values = accepts.set_index("seed")["one_minus_corr_svmeq"]
        assert pairs[gradient].dropna().to_dict() == values.to_dict()
    assert set(pairs.index[pairs["flat_in_either"]]) == flat
    for other in ({"data.n": 4}, {"head": "linear"}):
        frames = dataclasses.replace(correlation, rows=correlation.rows.assign(**other))
        assert correlation_vs_d.tables(frames)["correlation_vs_d_published"].empty


def adhoc_cells(axes):
    """A sweep over these fields; of its last cell nothing is feasible."""
    values = enumerate(product(*axes.values()))
    cells = {str(k): dict(zip(axes, cell, strict=True)) for k, cell in values}

    def instance(cell, seed):
        status = "infeasible" if cell["run"] == [*cells][-1] else "ok"
        value = 10.0 ** -(cell["data.d"] + seed)
        return {"status": status, "convergence": "", "one_minus_corr_frobenius": value}

    return synthetic.sweep("", cells, instance, trials=3)


def test_a_numeric_axis_of_an_adhoc_sweep_is_x_and_the_next_ones_colours_and_columns():
    tables, drawings, texts = drawn(
        adhoc_cells({"head": ("linear", "relu"), "data.n": (3, 5, 7), "data.d": (2, 4, 6, 8)})
    )
    figures = {drawing.name: drawing.figure.axes for drawing in drawings}  # 24 cells: no bars
    assert [*figures] == ["adhoc_one_minus_corr_frobenius", "adhoc_ok"]
    for panels in figures.values():
        assert [ax.get_title(loc="left") for ax in panels] == ["$n=3$", "$n=5$", "$n=7$"]
        assert {ax.get_xlabel() for ax in panels} == {"token dimension $d$"}
        assert [len(ax.get_lines()) for ax in panels] == [2, 2, 2]
    medians = tables["agreement"].set_index(["head", "data.n", "data.d"])["median"]
    assert medians["linear", 3, 4] == 1e-5
    assert np.isnan(medians["relu", 7, 8])
    assert "Instances: 72, 69 shown" in texts[0]


def test_adhoc_draws_a_single_cell_with_and_without_a_trained_instance():
    lost = adhoc_cells({"data.d": [4]})
    for rows, names, word in (
        (lost.rows.iloc[:, :-1], ["adhoc_ok", "adhoc"], "infeasible"),
        (lost.rows.assign(status="ok"), ["adhoc_one_minus_corr_frobenius", "adhoc"], "ok"),
    ):
        _, drawings, words = drawn(dataclasses.replace(lost, rows=rows))
        assert [drawing.name for drawing in drawings] == names
        assert word in words[-1]


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
