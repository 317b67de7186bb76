"""The command line, run as users run it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hydra.errors import HydraException

from attnsvm.cli.columns import columns_text
from attnsvm.cli.errors import exit_code
from attnsvm.cli.help import help_text
from attnsvm.config import GROUPS, ConfigError
from attnsvm.config.version import __version__
from tests.cli.test_objective import two_files
from tests.command import LATEST, QUIET, ran
from tests.faults import run_states, written
from tests.quick import quick, quick_rows, refusals

WRONG = refusals("command")
RECORDS = Path(__file__).parents[2] / "docs/records"


@pytest.mark.parametrize(
    ("arguments", "message"), quick_rows(*WRONG, count=8), ids=lambda value: value[:40]
)
def test_wrong_input_stops_before_any_work(arguments, message, tmp_path):
    """With one sentence."""
    done = ran(*arguments.split(), code=2)
    assert message in done.stderr.splitlines(keepends=True)[-1]
    printed = "Traceback" if "sweeper=basic" in arguments else "Traceback|Error executing"
    assert not re.search(printed, done.stderr + done.stdout)
    assert not list(tmp_path.rglob("trials.parquet"))


@pytest.mark.parametrize(
    ("asked", "message", "imported"),
    quick_rows(
        ("attnsvm --help", "attnsvm sweep=rank_vs_d", "[]"),
        (f"attnsvm.sweeps.status {RECORDS}/sequence", "runs: ", "[]"),
        ("attnsvm --columns", "one_minus_corr_nuclear", "[]"),
        ("attnsvm -m seed=1,2 dry_run=true", "2 runs, 2 of them", "['numpy', 'torch']"),
        count=2,
    ),
)
def test_no_heavy_package_is_imported_that_an_answer_does_not_need(asked, message, imported):
    watch = "import runpy, sys\ntry: runpy.run_module(sys.argv.pop(1), run_name='__main__')\n"
    watch += "finally: print(sorted({'numpy', 'pandas', 'torch'} & set(sys.modules)))"
    command = [sys.executable, "-c", watch, *asked.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(imported)
    assert message in done.stdout


WAYS = ((), ("hydra.sweeper.cells_per_job=2",), QUIET, ("hydra/sweeper=basic",))


@pytest.mark.parametrize("way", quick(*WAYS), ids=" ".join)
def test_a_sweep_is_resumed_reported_and_survives_a_failing_run(way):
    """Whoever sweeps; in a job of several cells the others are run; quietly it is told too."""
    grid = ["-m", "data=file", "data.path=b.npz,a.npz", "optimizer.steps=20", *way]
    two_files()
    failed = ran(*grid, code=1)
    assert "2 runs: 1 done, 1 failed" in failed.stderr
    assert (LATEST / "report.html").exists()
    assert run_states(LATEST) == ["done", "failed"]
    if way == WAYS[3]:  # its search of the next grid is another one
        return
    before = written(LATEST)
    arrays = dict(np.load("a.npz"))
    np.savez("b.npz", **arrays | {"X": -arrays["X"]})
    mended = ran(*grid)
    message = "2 runs: 1 done, 1 missing" in mended.stdout + mended.stderr
    assert message == (way != QUIET)
    assert run_states(LATEST) == ["done"] * 2
    assert before.items() <= written(LATEST).items()


def test_help_is_one_screen_with_every_option_and_goes_to_groups_and_fields():
    screen = help_text()
    assert len(screen.splitlines()) <= 50
    topics = ["run", "sweep", "lr", "svm", "probe", *GROUPS, "data=text"]
    shown = "\n".join([screen, help_text(topics), columns_text(), columns_text(["rank"])])
    assert max(map(len, shown.splitlines())) <= 80
    for group, options in GROUPS.items():
        assert set(options) <= set(re.findall(r"\w+", screen))
        assert help_text([group]).count(f"{group}=") >= len(options)
    field = "\n# step size (of an entry) (> 0)\nlr: 0.1\n"
    assert field in help_text(["optimizer=adam"])
    assert "\n# number of instances (>= 1)\ntrials: 100\n" in help_text(["run"])
    assert "optimizer.beta1, of adam\n" in help_text(["beta1"])
    for words in (["rank"], ["rank", "svm"]):
        assert "frobenius_rank\n" in columns_text(words)
        assert "one_minus" not in columns_text(words)
    for topic, meant in {"optimizer=adm": "adam", "optimiser": "optimizer"}.items():
        with pytest.raises(ConfigError, match=f"did you mean {meant}"):
            help_text([topic])
    assert "DIR/experiment/NAME.yaml" in help_text(["experiment"])
    with pytest.raises(ConfigError, match="--package hydra"):
        help_text(["hydra.sweeper.invalid"])


@pytest.mark.parametrize(
    ("cause", "error", "code", "message"),
    [
        (OSError(), KeyError("key"), 1, "KeyError: 'key'"),
        (ConfigError("data.n=0"), HydraException("Error in call"), 2, "attnsvm: data.n=0\n"),
        (None, OSError(2, "No such file", "/nowhere"), 2, "attnsvm: /nowhere: No such file\n"),
    ],
)
def test_only_a_bug_has_a_traceback(cause, error, code, message, capsys):
    """A bug while another error is handled too; Hydra wraps errors."""
    error.__context__ = cause
    assert exit_code(Mock(side_effect=error)) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert ("Traceback" in shown) == (code == 1)
    assert code == 1 or shown == message


@pytest.mark.full
def test_a_launcher_that_is_not_installed_says_what_installs_it(tmp_path):
    code = "import sys\nsys.modules['hydra_plugins.hydra_submitit_launcher'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = ran("-m", "seed=1,2", "hydra/launcher=slurm_gpu", env=env, code=2)
    message = "hydra/launcher=slurm_gpu: is not installed here; pip install 'attnsvm[slurm]'"
    assert message in done.stderr


def test_hydras_help_and_our_version_are_printed():
    assert "== Flags ==" in ran("--hydra-help").stdout
    assert ran("--version").stdout == f"attnsvm {__version__}\n"
