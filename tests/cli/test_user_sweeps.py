"""Sweep files and figures of the user's own, from a folder or from a plug-in."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.command import SMALL, ran
from tests.plugin import write_entry_points
from tests.quick import quick

SWEEP = Path(__file__).with_name("mine.yaml").read_text()
FIGURES = """
import matplotlib.pyplot as plt

from attnsvm.sweeps.figures import Drawing
from attnsvm.sweeps.statistics import counts


def tables(frames):
    return {"mine": counts(frames.trials, [*frames.axes, "status"])}


def draw(tables, axes, remarks=()):
    def make():
        figure, plot = plt.subplots()
        plot.bar(tables["mine"]["data.d"], tables["mine"]["count"])
        return figure

    return [Drawing("mine", "Instances by dimension.", make)]
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own/sweep").mkdir(parents=True)
    (tmp_path / "own/sweep/mine.yaml").write_text(SWEEP)
    return tmp_path


DECLARED = 'ATTNSVM = {"conf": {"mine": "my_sweeps.conf"}, "figures": {"mine": "my_sweeps.mine"}}\n'
WAYS = {
    "folder": (["--config-dir", "own"], ["--config-dir", "own"]),
    "entry point": ([], []),
    "extensions": (["extensions=[my_sweeps]"], ["--extension=my_sweeps"]),
}
"""Words of the command that runs the sweep, and of the report."""


@pytest.mark.parametrize("way", quick(*WAYS))
def test_a_sweep_of_a_users_own_is_listed_run_and_drawn(way, own):
    (words, read), place = WAYS[way], own / "place"
    if way == "folder":
        (own / "own/sweep/mine.py").write_text(FIGURES)
    else:
        package = place / "my_sweeps"
        shutil.copytree(own / "own", package / "conf")
        (package / "mine.py").write_text(FIGURES)
        (package / "conf/__init__.py").touch()
        (package / "__init__.py").write_text(DECLARED if way == "extensions" else "")
    if way == "entry point":
        write_entry_points(place, "conf: mine = my_sweeps.conf", "figures: mine = my_sweeps.mine")
    shown = ran("--help", *words, path=place).stdout
    assert re.search(r"  sweep=mine  .*/sweep/mine\.yaml", shown)
    ran("sweep=mine", *words, *SMALL[:3], "optimizer.steps=50", path=place)
    folder = own / "multirun/mine"  # no line of the file says so
    assert len(list(folder.glob("*/run.json"))) == 2
    table, page = folder / "tables/mine.csv", (folder / "report.html").read_text()
    assert table.read_text().splitlines()[0].endswith("status,count")
    assert "Does the head matter?" in page
    assert "Instances by dimension." in page
    (folder / "figures/mine.png").unlink()
    ran("multirun/mine", *read, path=place, command="attnsvm-report")
    assert (folder / "figures/mine.png").exists()


@pytest.mark.parametrize("way", quick("folder", "config"))
def test_experiments_and_options_of_a_users_own_are_listed_run_and_swept(way, own):
    """Also where the search path stands in a primary config of their own."""
    options = own / ("elsewhere" if way == "config" else "own")
    text = SWEEP.partition("sweep: mine")[0] + "seed: 7\n"
    files = {
        options / "head/steep.yaml": "defaults: [/schema/head/quadratic@_here_]\nlam: 0.5\n",
        options / "experiment/small.yaml": text,
        own / "own/own.yaml": "defaults: [config, _self_]\nhydra: {searchpath: [elsewhere]}\n",
    }
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content)
    words = ["--config-dir=own", *(["--config-name=own"] if way == "config" else [])]
    if way == "folder":
        for topic in ((), ("experiment",)):
            assert "experiment=small  own/" in ran("--help", *topic, *words).stdout
        assert ran("--help", "experiment=small", *words).stdout == f"{text}\n"
        refused = ran("--help", "experiment=smal", *words, code=2).stderr
        assert "experiment=smal: did you mean small?" in refused
    ran("-m", *SMALL, "experiment=small", "head=steep,linear", *words)
    runs = [json.loads(path.read_text()) for path in own.glob("multirun/latest/*/run.json")]
    assert sorted(run["config"]["head"].get("lam", 0.0) for run in runs) == [0.0, 0.5]
    assert {run["config"]["seed"] for run in runs} == {7}
    missing = ran("experiment=small", code=2).stderr
    assert "experiment=small: must be a file DIR/experiment/small.yaml" in missing


@pytest.mark.full
def test_the_report_runs_no_figures_that_nobody_named(own):
    (own / "own/sweep/mine.py").write_text("raise RuntimeError('run')\n" + FIGURES)
    (own / "own/sweep/mine.yaml").write_text(LACKING["grid"][0])
    done = ran("--config-dir", "own", "sweep=mine", *SMALL, "seed=1,2", code=1)
    assert "not drawn tables: RuntimeError: run" in done.stderr
    assert len(list(own.glob("multirun/mine/*/run.json"))) == 2  # the grid was typed
    ran("multirun/mine", command="attnsvm-report")
    (own / "own/sweep/mine.py").write_text("tables = None\n")
    wrong = ran("multirun/mine", "--config-dir=own", command="attnsvm-report", code=1)
    assert "must have the functions tables and draw" in wrong.stdout


LACKING = {
    "header": (SWEEP.replace("# @package _global_\n", ""), "first line must be `# @package _glob"),
    "name": (SWEEP.replace("sweep: mine\n", ""), "must have the line `sweep: mine`"),
    "grid": (SWEEP.partition("  sweeper:")[0], "sweep=mine: must have a grid"),
    "mode": (SWEEP.replace("  mode: MULTIRUN\n", ""), "sweep=mine: must have a grid"),
    "name of ours": (SWEEP, "sweep=sequence: must be one file, is own/sweep/sequence.yaml, "),
}


@pytest.mark.parametrize("what", quick(*LACKING))
def test_what_a_file_lacks_is_an_error_that_says_it(what, own):
    content, message = LACKING[what]
    name = "sequence" if what == "name of ours" else "mine"
    (own / f"own/sweep/{name}.yaml").write_text(content)
    done = ran("--config-dir=own", f"sweep={name}", *SMALL, code=2)
    assert message in done.stderr.splitlines()[-1]
    assert not list(own.glob("multirun/**/run.json"))
