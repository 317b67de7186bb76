"""Any column against any other: closed forms, what is left out, and charts that cannot be drawn."""

import shutil
from itertools import product
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import attnsvm
from attnsvm.sweeps import aggregate
from attnsvm.sweeps.chart import ChartError, chart_of, spec_of
from attnsvm.sweeps.report import main as report_command
from attnsvm.sweeps.report import write_report
from attnsvm.sweeps.statistics import LEVEL, summaries, wilson_interval
from attnsvm.sweeps.style import paper
from tests.command import ran
from tests.quick import beside

mpl.use("Agg")

STEPS = (0, 10, 20)


def tables(ns=(2, 3), ds=(4, 5), heads=("linear", "relu"), trials=4, **columns):
    """A sweep over heads, n and d: in each cell rank = n + d + seed, the last instance tied."""
    runs, rows, history = [], [], []
    for head, n, d in product(heads, ns, ds):
        name = f"{head}_n{n}_d{d}"
        cell = {"head": head, "data.n": n, "data.d": d}
        runs.append({"run": name, "state": "done", "data.T": 7, **cell})
        for seed in range(trials):
            last = seed == trials - 1
            row = {"run": name, **cell, "seed": seed, "rank": float(n + d + seed)}
            row |= {"status": "tie" if last else "ok", "reason": "", "flag": seed == 0}
            rows.append(row | {"word": "w", "size": 1.5 * seed})
            at = {"run": name, "seed": seed, "quantity": "risk"}
            history += [at | {"step": step, "value": float(n + seed + step)} for step in STEPS]
    trials_ = pd.DataFrame(rows).assign(**columns)
    axes = tuple(a for a in ("head", "data.n", "data.d") if trials_[a].nunique() > 1)
    return SimpleNamespace(
        trials=trials_, history=pd.DataFrame(history), runs=pd.DataFrame(runs), axes=axes
    )


def chart(given, x, y, **parts):
    return chart_of(given, spec_of(x, y, parts))


def drawn(found):
    """Return the words of a chart's figure, and its axes; it must be an image."""
    with paper():
        figure = found.figure()
        figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(mpl.text.Text)]
    return "\n".join(texts), figure.axes


def test_a_line_is_the_mean_of_the_ok_instances_of_each_cell_with_its_interval():
    given = tables()
    found = chart(given, "data.d", "rank", hue="data.n", col="head")
    assert list(found.table)[:4] == ["head", "data.n", "data.d", "quantity"]
    assert (found.table["mean"] == found.table["data.n"] + found.table["data.d"] + 1).all()
    assert (found.table["used"] == 3).all()
    ok = given.trials[given.trials["status"] == "ok"]
    expected = summaries(ok, ["head", "data.n", "data.d"], "rank")
    for name in ("low", "high", "std", "q25"):
        np.testing.assert_array_equal(found.table[name], expected[name])
    assert LEVEL == 0.95
    assert found.notes[0] == "Instances: 32 (24 ok, 8 tie); 24 shown."
    assert found.notes[1] == "Left out by status: 8, shown are ok."


def test_the_median_and_the_share_of_true_and_false():
    given = tables(ns=(2,), heads=("linear",))
    given.trials.loc[given.trials["seed"] == 2, "rank"] = 100.0
    found = chart(given, "data.d", "rank", estimator="median")
    words, (ax,) = drawn(found)
    assert "median rank" in words
    assert found.table["median"].tolist() == ax.get_lines()[0].get_ydata().tolist() == [7, 8]
    found = chart(given, "data.d", "flag")
    low, high = wilson_interval(np.array([1]), np.array([3]))
    assert found.table["share"].tolist() == [1 / 3] * 2
    assert found.table["low"].tolist() == [low[0]] * 2
    assert found.table["high"].tolist() == [high[0]] * 2
    assert "share of flag" in drawn(found)[0]


@pytest.mark.parametrize("x", ["head", "data.d"])
def test_a_share_over_words_or_in_boxes_has_its_interval_too(x):
    found = chart(tables(ns=(2,), ds=(4,)), x, "flag", kind="box")
    words, axes = drawn(found)
    assert "share of flag" in words
    assert "95 % Wilson interval" in found.caption
    bars, points = axes[0].collections  # segments, and dots
    assert [y for _, y in points.get_offsets().tolist()] == [1 / 3] * 2
    ends = [bar[:, 1].tolist() for bar in bars.get_segments()]
    assert ends == found.table[["low", "high"]].to_numpy().tolist()


def test_a_quantity_of_the_history_over_the_steps():
    found = chart(tables(ds=(4,), heads=("linear",)), "step", "risk", hue="data.n")
    assert found.table["step"].tolist() == [*STEPS, *STEPS]
    assert (found.table["mean"] == found.table["data.n"] + 1 + found.table["step"]).all()
    assert found.notes[0] == "Instances: 8 (6 ok, 2 tie); 6 shown."


def test_a_scatter_has_a_row_for_every_instance():
    given = tables(ns=(2,), ds=(4,))
    found = chart(given, "size", "rank", hue="head", kind="scatter")
    ok = given.trials[given.trials["status"] == "ok"]
    assert sorted(found.table["rank"]) == sorted(ok["rank"])
    assert list(found.table) == ["head", "size", "rank", "run", "seed"]
    _, (ax,) = drawn(found)
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 6
    by_run = chart(given, "size", "rank", hue="run", col="head", kind="scatter")
    assert sorted(by_run.table) == sorted(["head", "size", "rank", "run", "seed"])
    assert "no instance" not in drawn(by_run)[0]


def test_boxes_are_quartiles_and_extremes():
    found = chart(tables(ns=(2,), heads=("linear",)), "data.d", "rank", kind="box")
    row = found.table.iloc[0]
    assert [row[k] for k in ("least", "q25", "median", "q75", "largest")] == [6, 6.5, 7, 7.5, 8]
    whiskers, boxes, _ = drawn(found)[1][0].collections
    assert whiskers.get_segments()[0][:, 1].tolist() == [6, 8]
    assert boxes.get_segments()[0][:, 1].tolist() == [6.5, 7.5]
    found = chart(tables(ns=(2,), ds=(4,)), "head", "rank")  # words on x: boxes by themselves
    assert found.spec.kind == "box"
    _, (ax,) = drawn(found)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["linear", "relu"]


def test_a_heatmap_has_a_field_for_each_pair():
    found = chart(tables(heads=("linear",)), "data.d", "rank", hue="data.n", kind="heatmap")
    words, (ax, _) = drawn(found)
    (image,) = ax.collections
    assert image.get_array().tolist() == [[7, 8], [8, 9]]
    assert "median rank" in words


def test_axes_that_are_not_named_get_a_part_of_their_own_unless_they_follow_from_another():
    found = chart(tables(), "data.d", "rank")
    assert (found.spec.hue, found.spec.col) == ("head", "data.n")
    assert len(found.table) == 8
    assert len(drawn(found)[1]) == 2
    given = tables(heads=("linear",))
    given.trials["lr"] = given.trials["data.n"] * 10
    given.axes = (*given.axes, "lr")
    found = chart(given, "data.d", "rank", hue="data.n")
    assert found.spec.col is None
    assert (found.table["used"] == 3).all()


def test_an_axis_without_a_part_is_refused_and_one_value_of_it_is_not():
    parts = {"hue": "status", "col": "word", "row": "flag"}
    with pytest.raises(ChartError, match=r"head, data\.n: .* never pooled"):
        chart(tables(), "data.d", "rank", **parts)
    where = {"head": "relu", "data.n": "3"}
    found = chart(tables(), "data.d", "rank", **parts, where=where)
    assert set(found.table["mean"]) >= {7.0, 8.0}
    assert found.notes[0].startswith("Instances: 8 ")


def test_missing_and_infinite_values_are_counted_and_not_averaged():
    given = tables(ns=(2,), heads=("linear",))
    given.trials.loc[0, "rank"] = np.nan
    given.trials.loc[1, "rank"] = np.inf
    found = chart(given, "data.d", "rank")
    assert found.table[["used", "excluded"]].to_numpy().tolist() == [[1, 3], [3, 1]]
    assert found.table["mean"].tolist() == [8.0, 8.0]
    assert np.isnan(found.table["low"][0])
    assert "Left out: 2 instances without a value of rank." in found.notes
    drawn(found)
    given = tables(ns=(2,), heads=("linear",))
    given.trials.loc[:2, "size"] = np.nan
    found = chart(given, "size", "rank", kind="scatter", hue="data.d")
    assert "Left out: 3 instances without size." in found.notes


@pytest.mark.parametrize("kind", ["line", "heatmap"])
@pytest.mark.full
def test_instances_without_a_history_are_counted(kind):
    given = tables(ns=(2,), ds=(4, 5), heads=("linear",))
    lost = given.trials["seed"].eq(3) | given.trials["data.d"].eq(5)
    given.trials.loc[lost, "status"] = "rejected"
    recorded = given.history["run"].str.endswith("d4") & given.history["seed"].lt(3)
    given.history = given.history[recorded]
    found = chart(given, "step", "risk", status="all", hue="data.d", kind=kind)
    assert found.notes[0] == "Instances: 8 (5 rejected, 3 ok); 3 shown."
    assert "Left out: 5 instances without a history of risk." in found.notes
    counts = found.counts.set_index(["data.d", "status"])["count"]
    assert counts.to_dict() == {(4, "ok"): 3, (4, "rejected"): 1, (5, "rejected"): 4}
    assert sorted(set(found.table["step"])) == list(STEPS)
    drawn(found)


def test_cells_of_which_nothing_is_shown_are_counted():
    given = tables(ns=(2,), heads=("linear",))
    given.trials.loc[given.trials["data.d"] == 5, "status"] = "infeasible"
    found = chart(given, "data.d", "rank")
    assert "Cells without an instance that is shown: 1 of 2." in found.notes
    assert "Instances: 8 (4 infeasible, 3 ok, 1 tie); 3 shown." in found.notes
    counts = found.counts.set_index(["data.d", "status"])["count"]
    assert counts.to_dict() == {(4, "ok"): 3, (4, "tie"): 1, (5, "infeasible"): 4}


@pytest.mark.parametrize("kind", ["line", "scatter", "box", "heatmap"])
@pytest.mark.full
def test_nothing_to_show_is_said_in_the_figure(kind):
    found = chart(tables(status="infeasible"), "data.d", "rank", kind=kind, hue="data.n")
    words, _ = drawn(found)
    assert "no instance" in words
    assert "Instances: 32 (32 infeasible); 0 shown." in found.notes
    assert kind == "scatter" or (found.table["used"] == 0).all()
    assert kind == "scatter" or found.table["excluded"].sum() == 32


def test_statuses_may_be_chosen_or_told_apart():
    assert (chart(tables(), "data.d", "rank", status="ok,tie").table["used"] == 4).all()
    assert (chart(tables(), "data.d", "rank", status="all").table["used"] == 4).all()
    assert set(chart(tables(), "data.d", "status=tie", status="all").table["share"]) == {0.25}
    apart = chart(tables(heads=("linear",)), "data.d", "rank", hue="status").table
    assert apart.groupby("status")["used"].unique().map(list).to_dict() == {"ok": [3], "tie": [1]}
    for value in (True, "true"):
        found = chart(tables(), "data.d", "rank", where={"flag": value}, status="all")
        assert found.table["used"].tolist() == [1] * 8
        assert (found.table["mean"] == found.table["data.n"] + found.table["data.d"]).all()


def test_what_a_logarithmic_axis_cannot_show_is_counted():
    found = chart(
        tables(ns=(2,), heads=("linear",)), "size", "rank", kind="scatter", log="x,y", hue="data.d"
    )
    (told,) = (note for note in found.notes if "logarithmic" in note)
    assert told.startswith("2 values of x are not > 0")
    assert drawn(found)[1][0].get_yscale() == "log"


@pytest.mark.parametrize(("x", "y", "parts", "message"), beside(__file__))
def test_what_cannot_be_drawn_is_refused_with_what_can(x, y, parts, message):
    with pytest.raises(ChartError, match=message):
        chart(tables(), x, y, **parts)


def test_a_sweep_without_an_instance_and_a_part_with_too_many_values_are_refused():
    given = tables(ns=tuple(range(30)), ds=(4,), heads=("linear",))
    with pytest.raises(ChartError, match=r"hue=data\.n: has 30 values; must have at most 24"):
        chart(given, "size", "rank", kind="scatter")
    with pytest.raises(ChartError, match="no instance is on record"):
        chart(SimpleNamespace(trials=pd.DataFrame()), "data.d", "rank")


def test_charts_with_other_numbers_have_other_names_and_say_what_they_show():
    parts = [
        {},
        {"estimator": "mean"},
        {"status": "all"},
        {"status": "ok,tie"},
        {"kind": "box"},
        {"where": {"data.n": 2}},
        {"where": {"data.n": 3}},
    ]
    charts = [chart(tables(), "data.d", "rank", **one) for one in parts]
    assert len({one.name for one in charts}) == len(parts)
    assert charts[-1].notes[1] == "Only those with data.n=3."
    assert charts[0].name == chart(tables(), "data.d", "rank", log="y").name  # the same numbers
    with pytest.raises(TypeError, match=r"unknown part heu; did you mean hue\? must be hue \| col"):
        chart(tables(), "data.d", "rank", heu="head")


@pytest.mark.full
def test_the_command_and_the_call_give_the_same_numbers(sound, tmp_path):
    folder = shutil.copytree(sound, tmp_path / "sweep")
    words = ("--x", "data.d", "--y", "W_norm", "--hue", "parameterization", "--status", "all")
    done = ran(str(folder), *words, cwd=tmp_path, command="attnsvm-report")
    name = "W_norm_vs_data.d_by_parameterization_line_all"
    assert (folder / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    stored = pd.read_csv(folder / f"tables/{name}.csv")
    assert list(stored)[:2] == ["parameterization", "data.d"]
    loaded = attnsvm.load(folder)
    found = loaded.chart("data.d", "W_norm", hue="parameterization", status="all").table
    pd.testing.assert_frame_equal(stored, found, check_dtype=False)
    trials = loaded.trials
    means = trials.groupby(["parameterization", "data.d"])["W_norm"].mean()
    np.testing.assert_allclose(found["mean"], means, rtol=1e-12)
    counts = pd.read_csv(folder / f"tables/{name}_counts.csv")
    assert counts["count"].sum() == len(trials)
    assert str(folder / f"tables/{name}.csv") in done.stdout
    files = write_report(aggregate.load(folder))  # its tables name fields as the command line does
    assert files.failed == ()
    for path in files.tables:
        assert {"parameterization", "data.d"} <= set(pd.read_csv(path)), path
    words = ("--x", "seed", "--y", "risk", "--where", "data.d=9")
    done = ran(str(folder), *words, cwd=tmp_path, command="attnsvm-report", code=2)
    assert done.stderr.count("\n") == 1
    assert "where data.d=9: must be one of 3, 4" in done.stderr


def test_where_alone_prints_the_result_of_the_cells_with_a_value(sound, capsys):
    kept = len(attnsvm.load(sound).trials.query("`data.d` == 3"))
    for word, code, said in (("data.d=3", 0, f"{kept} instances"), ("d=3", 2, "mean data.d ")):
        assert report_command([str(sound), "--where", word]) == code
        assert said in "".join(capsys.readouterr())


def test_a_plot_returns_axes_that_a_notebook_shows(sound):
    from matplotlib import pyplot

    loaded = attnsvm.load(sound)
    before = pyplot.get_fignums()
    axes = loaded.plot("step", "risk", col="parameterization", log="y", status="all")
    try:
        assert axes.shape == (1, 2)
        assert len(pyplot.get_fignums()) == len(before) + 1
        assert axes[0, 0].get_yscale() == "log"
        assert mpl.rcParams["font.family"] != ["STIXGeneral"]  # the style is not left behind
    finally:
        pyplot.close(axes[0, 0].figure)
    found = loaded.chart("data.n", "W_norm", status="all")  # a field that does not differ
    assert set(found.table["data.n"]) == {2}
    assert found.table["used"].sum() == 12
