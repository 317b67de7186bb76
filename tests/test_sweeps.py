"""Every experiment of conf/sweep, in miniature: run, aggregated, drawn, reported."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sweeps.aggregate import load
from tests.command import attnsvm

ROOT = Path(__file__).parents[1]

MINIATURE = {
    "rank_vs_d": ["data.d=2,6", "trials=2"],
    "correlation_vs_d": ["data.d=4", "trials=2", "optimizer.steps=400"],
}
"""Overrides that make the experiment of this name small, without changing what it is."""


def test_every_sweep_is_run_here():
    assert {path.stem for path in (ROOT / "conf/sweep").glob("*.yaml")} == set(MINIATURE)


@pytest.mark.parametrize("name", MINIATURE)
def test_a_sweep_ends_with_tables_figures_and_a_report(name, tmp_path):
    done = attnsvm(f"sweep={name}", *MINIATURE[name], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    folder = tmp_path / "multirun" / name
    frames = load(folder)
    assert frames.name == name
    assert set(frames.runs["state"]) == {"done"}
    assert len(frames.trials) == frames.runs["drawn"].sum()
    figures = list((folder / "figures").glob(f"{name}*.png"))
    assert figures
    assert all(figure.with_suffix(".pdf").stat().st_size > 1000 for figure in figures)
    tables = [pd.read_csv(path) for path in (folder / "tables").glob("*.csv")]
    assert tables
    assert all(len(table) for table in tables)
    page = (folder / "report.html").read_text()
    assert name in page
    assert page.count("data:image/png;base64,") >= len(figures)


def test_question_stands_in_the_header_of_every_sweep():
    for path in (ROOT / "conf/sweep").glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert lines[0] == "# @package _global_"
        assert lines[1].startswith("# Question: ")
        assert (ROOT / f"sweeps/figures/{path.stem}.py").exists()
