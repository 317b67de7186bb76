"""Any column against any other: closed forms, what is left out, and charts that cannot be drawn."""

import re
from itertools import product
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from scipy.stats import linregress

import attnsvm
from attnsvm.sweeps.chart import ChartError, chart_of, spec_of
from attnsvm.sweeps.report import main as report_command
from attnsvm.sweeps.statistics import summaries, wilson_interval
from attnsvm.sweeps.style import paper
from tests.quick import refusals
from tests.sweeps.synthetic import RECORDS

STEPS = (0, 10, 20)
HISTORY = ["run", "seed", "step", "quantity", "value"]
FIELDS = ("head", "data.n", "data.d")


def tables(heads=("linear", "relu"), ns=(2, 3), ds=(4, 5), trials=4, **columns):
    """A sweep over heads, n and d: in each cell rank = n + d + seed, the last instance tied."""
    cells = product(heads, ns, ds, range(trials))
    rows = pd.DataFrame(cells, columns=[*FIELDS, "seed"])
    rows = rows.assign(
        run=rows.groupby([*FIELDS]).ngroup().astype(str),
        rank=rows["data.n"] + rows["data.d"] + rows["seed"] * 1.0,
        status=np.where(rows["seed"] == trials - 1, "tie", "ok"),
        reason="",
        flag=rows["seed"] == 0,
        word="w",
        size=1.5 * rows["seed"],
    ).assign(**columns)
    history = rows.merge(pd.DataFrame({"step": STEPS}), how="cross").assign(quantity="risk")
    history["value"] = (history["data.n"] + history["seed"] + history["step"]).astype(float)
    axes = tuple(name for name in FIELDS if rows[name].nunique() > 1)
    return SimpleNamespace(rows=rows, curves=history[HISTORY], fields=FIELDS, axes=axes)


def one_cell(**changed):
    """The part of such a sweep with one head and one n."""
    return tables(["linear"], [2], **changed)


def chart(sweep, x="data.d", y="rank", **parts):
    return chart_of(sweep, spec_of(x, y, parts))


def drawn(one_chart):
    """Return the words of a chart's figure, and its axes; it must be an image."""
    with paper():
        figure = one_chart.figure()
        figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(mpl.text.Text)]
    return "\n".join(texts), figure.axes


def test_a_line_has_the_statistics_of_the_ok_instances_of_each_cell():
    sweep = tables()
    lines = chart(sweep, hue="data.n", col="head")
    keys = ["head", "data.n", "data.d"]
    expected = summaries(sweep.rows.query("status == 'ok'"), keys, "rank", "median")
    pd.testing.assert_frame_equal(lines.table.drop(columns="quantity"), expected.assign(excluded=1))
    assert lines.notes[0] == "Instances: 32 (24 ok, 8 tie); 24 shown."


def dots(ax):
    """Return the heights of all points of a panel, sorted."""
    parts = (part for part in ax.collections if isinstance(part, mpl.collections.PathCollection))
    return np.sort(np.concatenate([part.get_offsets()[:, 1] for part in parts]))


ENDS = np.ravel(wilson_interval(np.array([1]), np.array([3]))).tolist()


@pytest.mark.parametrize(
    ("x", "y", "parts", "label", "numbers"),
    [
        ("data.d", "flag", {}, "share of flag", [1 / 3, 1 / 3]),
        ("size", "rank", {"kind": "scatter", "hue": "data.d"}, "rank", [6, 7, 7, 8, 8, 9]),
        ("data.d", "rank", {"kind": "heatmap", "hue": "data.n"}, "median rank", [7, 8]),
        ("head", "flag", {}, "share of flag", ENDS),
        ("head", "rank", {}, "rank", [6, 8, 6.5, 7.5]),  # whiskers, and the box
    ],
)
def test_a_figure_shows_the_numbers_of_its_table(x, y, parts, label, numbers):
    ds = (4,) if x == "head" else (4, 5)
    words, (ax, *_) = drawn(chart(one_cell(ds=ds), x, y, **parts))
    assert label in words
    if x == "size":
        points = dots(ax)
    elif x == "head":
        bars = [part for part in ax.collections if hasattr(part, "get_segments")]
        points = np.concatenate([bar.get_segments()[0][:, 1] for bar in bars])
        assert {bar.get_capstyle() for bar in bars} == {"butt"}  # not longer than the values say
    else:
        points = ax.collections[0].get_array().ravel() if parts else ax.get_lines()[0].get_ydata()
    assert points.tolist() == numbers


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ({}, (6.5, 7.5)),
        ({"estimator": "mean"}, (6, 8)),  # of three values, resampled
        ({"estimator": "mean", "interval": "sd"}, (6, 8)),
        ({"interval": "none"}, None),
    ],
)
def test_the_band_of_a_line_is_the_interval_that_was_asked_for(parts, ends):
    lines = chart(one_cell(), points=True, **parts)
    _, (ax,) = drawn(lines)
    corners = [patch.get_path().vertices for patch in ax.patches]
    heights = [points[points[:, 0] == 4, 1] for points in corners]
    assert [(part.min(), part.max()) for part in heights] == ([ends] if ends else [])
    assert dots(ax).tolist() == [6, 7, 7, 8, 8, 9]  # each instance, jittered along x
    assert ax.get_xlim()[0] < 4 < 5 < ax.get_xlim()[1]


@pytest.mark.parametrize(
    ("law", "x", "written"),
    [("power", np.log, "d^{:.3g} ["), ("exponential", np.asarray, "exp({:.3g} d) [")],
)
def test_a_fit_is_least_squares_on_the_logarithms_of_the_medians(law, x, written):
    fit = chart(one_cell(ds=(4, 8, 16)), fit=law)
    at, medians = x(fit.table["data.d"].to_numpy()), fit.table["median"].to_numpy()
    expected = linregress(at, np.log(medians))
    law_at_x = np.exp(expected.intercept + expected.slope * at)
    assert fit.table["fitted"].to_numpy() == pytest.approx(law_at_x)
    assert (fit.table["slope_low"] < fit.table["slope"]).all()
    assert f"rank ~ {written.format(expected.slope)}" in fit.notes[0]
    assert f"{expected.slope:.3g}" in drawn(fit)[0]
    few = chart(tables(), fit=law)  # two points
    assert few.table["slope"].isna().all()
    assert sum("no law, fewer than 3" in note for note in few.notes) == 4


def test_a_law_without_an_interval_and_values_without_x_are_told():
    sweep = one_cell(ds=(4, 8, 16), trials=6)
    sweep.rows["size"] = sweep.rows["data.d"].where(sweep.rows["seed"] > 0)
    sweep.axes = ()
    fit = chart(sweep, "size", fit="exponential")
    assert fit.table["fitted"].notna().tolist() == [True] * 3 + [False]
    low = sweep.rows["seed"] == 0
    sweep.rows["rank"] = np.where(low, -5.0, 2.0)  # of some resamples the mean is below 0
    fit = chart(sweep, fit="power", estimator="mean")
    assert fit.table["slope"].notna().all()
    assert fit.table[["slope_low", "slope_high"]].isna().all(axis=None)
    assert "(no interval: " in fit.notes[0]
    assert "nan" not in drawn(fit)[0] + fit.notes[0]


@pytest.mark.parametrize(
    ("part", "word", "column", "others"),
    [
        ("x", "d", "data.d", ""),
        ("hue", "n", "data.n", ""),
        ("y", "tie", "status=tie", ""),
        ("y", "1-corr W_mm", "one_minus_corr_frobenius", ""),
        ("y", "1-corr", "one_minus_corr_frobenius", "there is also .*one_minus_corr_nuclear"),
        ("where", {"n": 2}, {"data.n": 2}, ""),
    ],
)
def test_a_column_may_be_called_as_one_sees_and_says_it(part, word, column, others):
    columns = {"one_minus_corr_nuclear": 0.5, "one_minus_corr_svmeq": np.nan}
    lines = chart(tables(one_minus_corr_frobenius=0.1, **columns), **{part: word})
    assert getattr(lines.spec, part) == column
    assert re.search(others or "^Instances", lines.notes[0])


def test_axes_that_are_not_named_get_a_part_unless_they_follow_from_another_or_are_refused():
    lines = chart(tables())
    assert (lines.spec.hue, lines.spec.col, len(lines.table)) == ("head", "data.n", 8)
    assert len(drawn(lines)[1]) == 2
    sweep = tables(["linear"])
    sweep.rows["lr"] = sweep.rows["data.n"] * 10
    sweep.axes = (*sweep.axes, "lr")
    assert chart(sweep, hue="data.n").spec.col is None
    parts = {"hue": "status", "col": "word", "row": "flag"}
    with pytest.raises(ChartError, match=r"head, data\.n: .* never pooled"):
        chart(tables(), **parts)
    lines = chart(tables(), **parts, where={"head": "relu", "data.n": "3"})
    assert lines.notes[0].startswith("Instances: 8 ")


SIZES = {"kind": "scatter", "hue": "data.d"}


@pytest.mark.parametrize(
    ("lost", "x", "parts", "line"),
    [
        ({"rank": np.nan}, "data.d", {}, "Left out: 4 instances without a value of rank."),
        ({"rank": np.inf}, "data.d", {}, "Left out: 4 instances without a value of rank."),
        ({"status": "tie"}, "data.d", {}, "Cells without an instance that is shown: 1 of 2."),
        ({"size": np.nan}, "size", SIZES, "Left out: 4 instances without size."),
        ({"size": -1.0}, "size", SIZES | {"log": "x,y"}, "5 values of x are not > 0"),
    ],
)
def test_what_is_not_shown_is_counted_and_not_averaged(lost, x, parts, line):
    sweep = one_cell()
    sweep.rows.loc[sweep.rows["data.d"] == 5, [*lost]] = [*lost.values()]
    status = "ok" if "status" in lost else "all"
    lines = chart(sweep, x, status=status, **parts)
    assert any(note.startswith(line) for note in lines.notes)
    assert lines.counts["count"].sum() == 8
    if x == "data.d":
        used = lines.table[["used", "excluded"]].to_numpy()
        assert used.tolist() == [[3 + (status == "all"), status == "ok"], [0, 4]]
        assert np.isnan(lines.table["mean"][1])
    drawn(lines)


def test_a_quantity_over_steps_is_averaged_at_each_and_instances_without_it_are_counted():
    sweep = one_cell()
    sweep.curves = sweep.curves.query("run == '0' and seed < 3")  # of d = 4
    steps = chart(sweep, "step", "risk", status="all", hue="data.d")
    assert steps.notes[0] == "Instances: 8 (6 ok, 2 tie); 3 shown."
    assert "Left out: 5 instances without a history of risk." in steps.notes
    assert steps.counts["count"].sum() == 8
    means = dict(zip(steps.table["step"], steps.table["mean"], strict=True))
    assert means == {step: 3.0 + step for step in STEPS}


def test_statuses_may_be_chosen_or_told_apart():
    for status in ("ok,tie", "all"):
        assert (chart(tables(), status=status).table["used"] == 4).all()
    assert set(chart(tables(), y="tie").table["share"]) == {0.25}
    apart = chart(one_cell(), hue="status").table
    assert {*zip(apart["status"], apart["used"], strict=True)} == {("ok", 3), ("tie", 1)}
    table = chart(tables(), where={"flag": "true"}).table
    assert (table["mean"] == table["data.n"] + table["data.d"]).all()


@pytest.mark.parametrize(("typed", "told"), refusals("chart"))
def test_what_cannot_be_drawn_is_refused_by_field_and_value(typed, told):
    parts = OmegaConf.to_container(OmegaConf.from_dotlist(typed.split()))
    many = {"ns": range(30), "trials": 30} if parts.get("x") == "size" else {}
    with pytest.raises(ChartError, match=told):
        chart(tables(**many), **parts)


def test_charts_with_other_numbers_have_other_names():
    parts = [{}, {"estimator": "mean"}, {"status": "ok,tie"}, {"where": {"n": 2}}, {"kind": "box"}]
    parts += [{"interval": "none"}, {"points": True}, {"log": "y"}, {"fit": "power"}]
    names = {spec_of("d", "rank", {"kind": "line"} | part).name for part in parts}
    assert len(names) == len(parts)
    with pytest.raises(TypeError, match="heu; did you mean hue"):
        chart(tables(), heu="head")
    with pytest.raises(ChartError, match="no instance is on record"):
        chart(SimpleNamespace(rows=pd.DataFrame()))


def test_where_alone_prints_the_result_of_the_cells_with_a_value_and_where_they_end(sound, capsys):
    kept = len(attnsvm.load(sound).trials.query("`data.d` == 3"))
    for word, code, message in (("d=3", 0, f"{kept} instances"), ("e=3", 2, "where=e: must")):
        assert report_command([str(sound), "--where", word]) == code
        assert message in "".join(capsys.readouterr())
    assert report_command([str(RECORDS / "atlas"), "--where", "optimizer=adam"]) == 0
    *_, ends = capsys.readouterr().out.rpartition("reached")
    adam = attnsvm.load(RECORDS / "atlas").trials.query("optimizer == 'adam' and status == 'ok'")
    assert sum(int(line.split()[-1]) for line in ends.splitlines()[1:]) == len(adam) > 0


def test_a_plot_returns_axes_that_a_notebook_shows(sound):
    from matplotlib import pyplot

    axes = attnsvm.load(sound).plot("step", "risk", col="parameterization", status="all")
    assert axes.shape == (1, 2)
    assert axes[0, 0].figure is pyplot.gcf()
    assert mpl.rcParams["font.family"] != ["STIXGeneral"]  # the style is not left behind
    pyplot.close(axes[0, 0].figure)
