"""A plug-in on the command line: help, completion, runs, sweeps, workers, tables, verification."""

import json

import pandas as pd
import pytest

from tests.command import SMALL, ran
from tests.plugin import installed, write_file, write_package
from tests.quick import quick_rows

WAYS = {"file": write_file, "package": write_package, "installed": installed}


@pytest.mark.parametrize(
    ("way", "launcher"), quick_rows(("file", "basic"), *((way, "joblib") for way in WAYS))
)
def test_help_completion_sweeps_tables_and_verification_know_it(
    way, launcher, tmp_path, monkeypatch
):
    """A file beside the run needs no path."""
    place = WAYS[way](tmp_path / "place")
    cwd, path = (place, None) if way == "file" else (tmp_path, place)
    words = [] if way == "installed" else ["extensions=[cubic_heads]"]
    assert " cubic\n" in ran("--help", *words, path=path, cwd=cwd).stdout
    shown = ran("--help", "head=cubic", *words, path=path, cwd=cwd)
    assert "# exponent, odd (>= 1 and <= 9)\npower: 3" in shown.stdout
    with monkeypatch.context() as completing:
        line = " ".join(["attnsvm", *words, "head=cu"])
        completing.setenv("COMP_LINE", line)
        completing.setenv("COMP_POINT", str(len(line)))
        asked = ran("-sc", "query=bash", path=path, cwd=cwd)
        assert asked.stdout.split() == ["head=cubic"], asked.stderr
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
        words.append("hydra/launcher=joblib")
    ran("-m", *SMALL, *words, "head=linear,cubic", path=path, cwd=cwd)
    folder = cwd / "multirun/latest"
    runs = [json.loads(path.read_text()) for path in folder.glob("*/run.json")]
    assert sorted(run["options"]["head"] for run in runs) == ["cubic", "linear"]
    table = pd.read_csv(next(iter((folder / "tables").glob("*.csv"))))
    assert set(table["head"]) == {"cubic", "linear"}
    for command in ("attnsvm-report", "attnsvm-verify"):  # records need no plug-in to be read
        read = ran(str(folder), command=command)
    assert "the code of a plug-in is not run" in read.stdout
