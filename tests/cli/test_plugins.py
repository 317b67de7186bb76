"""A plug-in on the command line: help, completion, runs, sweeps, workers, tables, verification."""

import json

import pandas as pd
import pytest

from tests.command import SMALL, ran
from tests.plugin import installed, write_package
from tests.quick import quick


@pytest.mark.parametrize("words", quick([], ["extensions=[cubic_heads]"]))
def test_help_and_completion_know_it(words, tmp_path, monkeypatch):
    place = (write_package if words else installed)(tmp_path / "place")
    assert "| cubic" in ran("--help", *words, path=place, cwd=tmp_path).stdout
    shown = ran("--help", "head=cubic", *words, path=place, cwd=tmp_path)
    assert "# exponent, odd (>= 1 and <= 9)\npower: 3" in shown.stdout
    line = " ".join(["attnsvm", *words, "head=cu"])
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    asked = ran("-sc", "query=bash", path=place, cwd=tmp_path)
    assert asked.stdout.split() == ["head=cubic"], asked.stderr


@pytest.mark.full
def test_a_sweep_of_it_is_run_by_workers_tabled_and_verified(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    place = installed(tmp_path / "place")
    grid = ["-m", *SMALL, "head=linear,cubic", "hydra/launcher=joblib"]
    ran(*grid, path=place, cwd=tmp_path)
    folder = tmp_path / "multirun/latest"
    runs = [json.loads(path.read_text()) for path in folder.glob("*/run.json")]
    assert sorted(run["options"]["head"] for run in runs) == ["cubic", "linear"]
    table = pd.read_csv(next(iter((folder / "tables").glob("*.csv"))))
    assert set(table["head"]) == {"cubic", "linear"}
    ran(str(folder), path=place, cwd=tmp_path, command="attnsvm-verify")
    for command in ("attnsvm-report", "attnsvm-verify"):  # records need no plug-in to be read
        read = ran(str(folder), cwd=tmp_path, command=command)
    assert "the code of a plug-in is not run" in read.stdout
