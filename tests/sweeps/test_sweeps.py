"""Every experiment in miniature: real runs of the real code, from one command to the report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.aggregate import load
from sweeps.figures import figure_module
from sweeps.overview import EXPERIMENTS, Outcome, write_overview

CONF = Path(__file__).parents[2] / "conf" / "sweep"

SHORT = ["trials=2", "optimizer.steps=30", "optimizer.record_every=10"]
MINIATURES = {
    "trajectories": SHORT,
    "rank_vs_d": ["trials=3", "data={n:3,T:3},{n:3,T:4}", "data.d=2,5"],
    "correlation_vs_d": ["trials=2", "data.d=4"],
    "local_convergence": SHORT,
    "convergence_types": [*SHORT, "data.d=4,8"],
    "convergence_types_m": [*SHORT, "parameterization.m=1,16"],
    "phase_transition": [*SHORT, "data={n:2,T:2},{n:2,T:3},{n:3,T:2}", "data.d=2,4"],
    "gradient_floor": [*SHORT, "optimizer.growth=0.0,0.05"],
    "ridge_vs_path": [*SHORT, "optimizer.ridge=0.0,1e-12"],
    "regularization_path": ["trials=2", "optimizer.radii=[10.0,30.0]"],
    "token_count_vs_lambda": [*SHORT, "head.lambda=0.0,0.5"],
    "sequence": SHORT,
    "real_tokens": [*SHORT, "data.n=3"],
}


def test_every_experiment_has_a_question_a_figure_and_a_miniature():
    named = {path.stem for path in CONF.glob("*.yaml")}
    assert named == set(EXPERIMENTS) == set(MINIATURES)
    for name in EXPERIMENTS:
        lines = (CONF / f"{name}.yaml").read_text().splitlines()
        assert lines[0] == "# @package _global_"
        assert lines[1].startswith("# Question: ")
        assert figure_module(name).__name__ == f"sweeps.figures.{name}"  # type: ignore[attr-defined]
        assert figure_module(name).QUESTION.endswith(("?", "."))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multirun")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_one_command_runs_and_draws_the_experiment(name: str, folder: Path):
    command = [sys.executable, "-m", "attnsvm", f"sweep={name}"]
    command += [f"hydra.sweep.dir={folder / name}", *MINIATURES[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    frames = load(folder / name)
    assert frames.name == name
    assert len(frames.incomplete) == 0
    assert len(frames.trials) > 0
    assert (folder / name / "report.html").stat().st_size > 10_000
    written = {path.suffix for path in (folder / name / "figures").iterdir()}
    assert written >= {".png", ".pdf"}
    assert any((folder / name / "tables").glob("*.csv"))


def test_the_overview_shows_what_is_there_and_names_what_is_not(folder: Path):
    outcomes = [Outcome("rank_vs_d", 0, 1.0), Outcome("nowhere", 2, 1.0)]
    text = write_overview(folder, outcomes).read_text()
    assert text.count("<figure ") == 1
    assert "attnsvm sweep=rank_vs_d" in text
    assert "nowhere: no such folder" in text
