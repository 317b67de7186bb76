"""Every experiment in miniature: real runs of the real code, from one command to the report."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from markupsafe import escape
from PIL import Image

from attnsvm.cli.help import experiments
from attnsvm.sweeps import gallery, overview
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.figures import figure_module
from attnsvm.sweeps.overview import Outcome, write_documents
from tests.sweeps.fuzz import GRIDS, miniature

CONF = Path(__file__).parents[2] / "conf" / "sweep"
EXPERIMENTS = tuple(experiments())
EACH = [
    pytest.param(name, marks=() if name == "rank_vs_d" else pytest.mark.full)
    for name in EXPERIMENTS
]


def test_every_experiment_has_a_question_a_figure_and_a_miniature():
    named = {path.stem for path in CONF.glob("*.yaml")}
    assert named == set(EXPERIMENTS) == {*GRIDS} - {""}
    for name in EXPERIMENTS:
        text = (CONF / f"{name}.yaml").read_text()
        assert text.splitlines()[0] == "# @package _global_"
        assert yaml.safe_load(text)["question"].endswith(("?", "."))
        assert figure_module(name) is not figure_module("")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multirun")


def run(name: str, folder: Path) -> None:
    """Run the miniature of an experiment, unless `folder` has it: tests run in any order."""
    if (folder / name / "report.html").exists():
        return
    if name == "pretrained_heads":
        pytest.importorskip("transformers")
    command = [sys.executable, "-m", "attnsvm", f"sweep={name}"]
    given = miniature(name, 2 + (name == "pretrained_heads"), 30, 10)
    command += [f"hydra.sweep.dir={folder / name}", *(f"{k}={v}" for k, v in given.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]


@pytest.mark.parametrize("name", EACH)
def test_one_command_runs_and_draws_the_experiment(name: str, folder: Path):
    run(name, folder)
    frames = load(folder / name)
    assert frames.name == name
    assert frames.question == yaml.safe_load((CONF / f"{name}.yaml").read_text())["question"]
    assert escape(frames.question) in (folder / name / "report.html").read_text()
    assert len(frames.incomplete) == 0
    assert len(frames.trials) > 0
    assert (folder / name / "report.html").stat().st_size > 10_000
    if name == "real_tokens":  # a learned head is told from a fixed one
        assert frames.axes.names == ("parameterization", "train")
        assert set(frames.trials.groupby(["train", "parameterization"]).size()) == {2}
    written = {path.suffix for path in (folder / name / "figures").iterdir()}
    assert written >= {".png", ".pdf"}
    assert any((folder / name / "tables").glob("*.csv"))


@pytest.mark.full
def test_tables_and_figures_of_the_documentation_are_made_and_what_lacks_is_named(
    folder: Path, tmp_path: Path
):
    for name in EXPERIMENTS:
        run(name, folder)
    assert write_documents(folder, EXPERIMENTS, tmp_path) == []
    made = list((tmp_path / "figures").iterdir())
    assert {path.stem for path in made} == set(EXPERIMENTS)
    assert all(path.stat().st_size <= gallery.SIZE_LIMIT_BYTES for path in made)
    for name in EXPERIMENTS:
        stored = {path.stem for path in (tmp_path / "tables" / name).glob("*.parquet")}
        assert stored == {path.stem for path in (folder / name / "tables").glob("*.csv")}
    assert write_documents(tmp_path, EXPERIMENTS, tmp_path / "none") == list(EXPERIMENTS)


@pytest.mark.parametrize(
    "name", ["rank_vs_d", pytest.param("optimizer_geometry", marks=pytest.mark.full)]
)
def test_a_figure_drawn_from_stored_tables_is_that_of_the_report(
    name: str, folder: Path, tmp_path: Path
):
    run(name, folder)
    (tmp_path / "of_an_older_version.parquet").touch()
    gallery.write_tables(load(folder / name), tmp_path)
    stored = {path.stem for path in tmp_path.iterdir()}
    assert stored == {"about", *(path.stem for path in (folder / name / "tables").glob("*.csv"))}
    of_the_report = (folder / name / "figures" / f"{name}.png").read_bytes()
    assert gallery.draw(tmp_path, name) == gallery.small_png(of_the_report)


def test_a_picture_too_rich_for_a_small_copy_is_refused():
    noise = np.random.default_rng(0).integers(0, 256, (600, 900, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "PNG")
    with pytest.raises(ValueError, match="must be <= 150000"):
        gallery.small_png(stream.getvalue())


def test_the_command_writes_page_and_copies_and_names_what_lacks(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run("rank_vs_d", folder)
    monkeypatch.setattr(overview, "run_experiment", lambda name, *_: Outcome(name, 0, 1.0))
    asked = ["--directory", str(folder), "--docs", str(tmp_path), "--only", "rank_vs_d"]
    assert overview.main(asked) == 0
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["rank_vs_d.png"]
    assert (tmp_path / "tables/rank_vs_d/rank_vs_d.parquet").exists()
    text = (folder / "overview.html").read_text()
    assert text.count("<figure ") == 1
    assert "attnsvm sweep=rank_vs_d" in text
    assert overview.main(["--directory", str(tmp_path), *asked[2:]]) == 1
    assert "attnsvm sweep=rank_vs_d" in capsys.readouterr().err
    assert "rank_vs_d: no such folder" in (tmp_path / "overview.html").read_text()


def test_the_documentation_has_the_whole_tables_and_a_figure_of_every_experiment():
    docs = Path(__file__).parents[2] / "docs"
    pictures = list((docs / "figures").iterdir())
    with_words = "pretrained_heads_attention"  # of a model that the site is built without
    assert {path.stem for path in pictures} == {*EXPERIMENTS, with_words}
    assert all(path.stat().st_size <= gallery.SIZE_LIMIT_BYTES for path in pictures)
    assert {folder.name for folder in (docs / "tables").iterdir()} == set(EXPERIMENTS)
    for name in EXPERIMENTS:
        about = json.loads((docs / "tables" / name / "about.json").read_text())
        assert about["sweep"] == name
        assert about["remarks"] == [""], "a run is missing"
        assert f"figures/{name}.png" in (docs / "experiments.md").read_text()
