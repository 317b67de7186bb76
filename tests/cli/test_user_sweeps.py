"""Sweep files and figures of the user's own, from a folder or from a plug-in."""

from pathlib import Path

import pytest

from tests.command import SMALL, attnsvm, ran
from tests.plugin import write_entry_points

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


def test_a_sweep_from_a_folder_is_listed_run_and_drawn(own):
    (own / "own/sweep/mine.py").write_text(FIGURES)
    shown = attnsvm("--help", "--config-dir", "own", cwd=own)
    assert "mine  own/sweep/mine.yaml" in shown.stdout
    assert "mine" not in attnsvm("--help", cwd=own).stdout.split()
    ran("--config-dir", "own", "sweep=mine", *SMALL[:3], "optimizer.steps=50", cwd=own)
    folder = own / "multirun/mine"  # no line of the file says so
    assert len(list(folder.glob("*/run.json"))) == 2
    table, page = folder / "tables/mine.csv", (folder / "report.html").read_text()
    assert table.read_text().splitlines()[0].endswith("status,count")
    assert "Does the head matter?" in page
    assert "Instances by dimension." in page
    for path in (table, folder / "figures/mine.png"):
        path.unlink()
    ran("multirun/mine", "--config-dir", "own", cwd=own, command="attnsvm-report")
    assert (folder / "figures/mine.png").exists()


@pytest.mark.full
def test_the_report_runs_no_figures_that_nobody_named(own):
    (own / "own/sweep/mine.py").write_text("raise RuntimeError('run')\n" + FIGURES)
    (own / "own/sweep/mine.yaml").write_text(LACKING["grid"][0])
    done = ran("--config-dir", "own", "sweep=mine", *SMALL, "seed=1,2", cwd=own, code=1)
    assert "not drawn tables: RuntimeError: run" in done.stderr
    assert len(list(own.glob("multirun/mine/*/run.json"))) == 2  # the grid was typed
    report = ("multirun/mine", "--config-dir=own")
    ran(*report[:1], cwd=own, command="attnsvm-report")
    (own / "own/sweep/mine.py").write_text("tables = None\n")
    wrong = ran(*report, cwd=own, command="attnsvm-report", code=1)
    assert "must have the functions tables and draw" in wrong.stdout + wrong.stderr


LACKING = {
    "header": (SWEEP.replace("# @package _global_\n", ""), "first line must be `# @package _glob"),
    "name": (SWEEP.replace("sweep: mine\n", ""), "must have the line `sweep: mine`"),
    "grid": (SWEEP.partition("  sweeper:")[0], "sweep=mine: must have a grid"),
    "mode": (SWEEP.replace("  mode: MULTIRUN\n", ""), "sweep=mine: must have a grid"),
}


@pytest.mark.full
@pytest.mark.parametrize("what", LACKING)
def test_a_line_that_lacks_is_an_error_that_says_it(what, own):
    content, message = LACKING[what]
    (own / "own/sweep/mine.yaml").write_text(content)
    done = ran("--config-dir=own", "sweep=mine", *SMALL, cwd=own, code=2)
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not list(own.glob("multirun/**/run.json"))


def test_a_name_that_is_taken_is_refused(own):
    (own / "own/sweep/mine.yaml").rename(own / "own/sweep/sequence.yaml")
    done = ran("--config-dir=own", "sweep=sequence", *SMALL, cwd=own, code=2)
    assert "sweep=sequence: must be one file, is own/sweep/sequence.yaml, " in done.stderr


DECLARED = 'ATTNSVM = {"conf": {"mine": "my_sweeps.conf"}, "figures": {"mine": "my_sweeps.mine"}}\n'


@pytest.mark.full
@pytest.mark.parametrize("way", ["entry point", "extensions"])
def test_a_plug_in_brings_sweep_and_figures(way, tmp_path):
    place = tmp_path / "place"
    conf = place / "my_sweeps/conf"
    (conf / "sweep").mkdir(parents=True)
    for package in (conf, conf.parent):
        (package / "__init__.py").write_text("")
    (conf / "sweep/mine.yaml").write_text(SWEEP)
    (conf.parent / "mine.py").write_text(FIGURES)
    words, read = [], []
    if way == "entry point":
        write_entry_points(place, "conf: mine = my_sweeps.conf", "figures: mine = my_sweeps.mine")
    else:
        (conf.parent / "__init__.py").write_text(DECLARED)
        words, read = ["extensions=[my_sweeps]"], ["--extension=my_sweeps"]
    shown = ran("--help", *words, path=place, cwd=tmp_path)
    assert f"mine  {conf}/sweep/mine.yaml" in shown.stdout, shown.stderr
    ran("sweep=mine", *SMALL[:3], SMALL[4], *words, path=place, cwd=tmp_path)
    figure = tmp_path / "multirun/mine/figures/mine.png"
    figure.unlink()
    asked = ["multirun/mine", *read]
    ran(*asked, path=place, cwd=tmp_path, command="attnsvm-report")
    assert figure.exists()
