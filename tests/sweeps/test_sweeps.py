"""Every experiment in miniature: real runs of the real code, from one command to the report."""

import json
from pathlib import Path

import pytest
import yaml
from markupsafe import escape

from attnsvm.cli.help import experiments
from attnsvm.sweeps import overview
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.figures import figure_module
from docs import gallery
from tests.command import ran
from tests.quick import quick
from tests.sweeps.fuzz import GRIDS, LISTED, combination, faults, miniature

CONF = Path(__file__).parents[2] / "conf" / "sweep"
EXPERIMENTS = tuple(experiments())
EACH = quick("rank_vs_d", *(name for name in EXPERIMENTS if name != "rank_vs_d"))


def test_every_experiment_has_a_question_a_figure_and_a_miniature():
    named = {path.stem for path in CONF.glob("*.yaml")}
    assert named == set(EXPERIMENTS) == {*GRIDS} - {""}
    for name in EXPERIMENTS:
        text = (CONF / f"{name}.yaml").read_text()
        assert text.splitlines()[0] == "# @package _global_"
        assert yaml.safe_load(text)["question"].endswith(("?", "."))
        assert figure_module(name) is not figure_module("")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("multirun")


def run(name, folder):
    """Run the miniature of an experiment, unless `folder` has it: tests run in any order."""
    if (folder / name / "report.html").exists():
        return
    if name == "pretrained_heads":
        pytest.importorskip("transformers")
    overrides = miniature(name, 2 + (name == "pretrained_heads"), 30, 10)
    words = [f"hydra.sweep.dir={folder / name}", *(f"{k}={v}" for k, v in overrides.items())]
    ran(f"sweep={name}", *words, cwd=folder)


@pytest.mark.parametrize("name", EACH)
def test_one_command_runs_and_draws_the_experiment(name, folder):
    run(name, folder)
    frames = read_sweep(folder / name)
    assert (frames.name, len(frames.incomplete)) == (name, 0)
    assert frames.question == yaml.safe_load((CONF / f"{name}.yaml").read_text())["question"]
    assert escape(frames.question) in (folder / name / "report.html").read_text()
    assert len(frames.rows) > 0
    if name == "real_tokens":  # a learned head is told from a fixed one
        assert frames.axes == ("parameterization", "head.train")
        assert set(frames.rows.groupby(["head.train", "parameterization"]).size()) == {2}
    assert (folder / name / "report.html").stat().st_size > 10_000
    written = {path.suffix for path in (folder / name / "figures").iterdir()}
    assert written >= {".png", ".pdf"}
    assert any((folder / name / "tables").glob("*.csv"))


@pytest.mark.parametrize("name", quick("rank_vs_d", "optimizer_geometry"))
def test_a_figure_of_stored_tables_is_that_of_the_report(name, folder, tmp_path):
    run(name, folder)
    (tmp_path / "of_an_older_version.parquet").touch()
    gallery.write_tables(read_sweep(folder / name), tmp_path)
    stored = {path.stem for path in tmp_path.iterdir()}
    assert stored == {"about", *(path.stem for path in (folder / name / "tables").glob("*.csv"))}
    of_the_report = (folder / name / "figures" / f"{name}.png").read_bytes()
    assert gallery.draw(tmp_path, name) == gallery.small_png(of_the_report)


def test_the_page_of_all_figures_names_what_lacks(folder, tmp_path):
    run("rank_vs_d", folder)
    (tmp_path / "rank_vs_d").symlink_to(folder / "rank_vs_d")
    overview.main(tmp_path)
    text = (tmp_path / "overview.html").read_text()
    assert text.count("<figure ") == 2
    assert "attnsvm sweep=rank_vs_d" in text
    assert "rates: no such folder" in text


def test_the_documentation_has_the_whole_tables_of_every_experiment():
    docs = Path(__file__).parents[2] / "docs"
    tables = {path.parent.name: path for path in (docs / "tables").glob("*/about.json")}
    assert {*tables} == {*EXPERIMENTS, "pretrained_heads_no_sinks"}
    for name, path in tables.items():
        about = json.loads(path.read_text())
        assert about["sweep"] == (name if name in EXPERIMENTS else "pretrained_heads")
        assert about["remarks"] == [""], "a run is missing"


SAMPLE = (11, 50)  # `make test-faults`: two hundred


@pytest.mark.faults
@pytest.mark.parametrize("command", LISTED.once_broken)
def test_what_ended_in_a_traceback_or_a_warning_is_drawn(command, tmp_path):
    assert faults(command.split(), tmp_path / "sweep") == []


@pytest.mark.full
@pytest.mark.parametrize("first", SAMPLE)
def test_a_sweep_beside_the_named_ones_is_drawn_and_proved(first, tmp_path):
    wrong = None
    for number in range(first, first + 20):  # about half of them are refused
        wrong = faults(combination(number), tmp_path / str(number))
        if wrong is not None:
            break
    assert wrong == []


@pytest.mark.faults
@pytest.mark.parametrize("number", range(200))
def test_two_hundred_sweeps_beside_the_named_ones(number, tmp_path):
    assert faults(combination(number), tmp_path / "sweep") in ([], None)
