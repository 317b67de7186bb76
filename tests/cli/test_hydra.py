"""Hydra's own section is Hydra's: its users' callbacks, sweepers, logging and help work."""

from __future__ import annotations

import os

from attnsvm.config.version import __version__
from tests.command import SMALL, attnsvm

CALLBACK = """
from pathlib import Path
from hydra.experimental.callback import Callback

class Mine(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        Path("told").write_text(str(config.seed))
"""


def test_a_callback_of_the_users_own_is_run(tmp_path):
    (tmp_path / "my_callbacks.py").write_text(CALLBACK)
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    mine = "+hydra.callbacks.mine._target_=my_callbacks.Mine"
    done = attnsvm(*SMALL, "seed=3", mine, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "told").read_text() == "3"


def test_hydras_basic_sweeper_runs_the_grid(tmp_path):
    done = attnsvm("-m", *SMALL, "seed=1,2", "hydra/sweeper=basic", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "multirun/adhoc").glob("*/run.json"))) == 2


def test_logging_may_be_chosen(tmp_path):
    done = attnsvm(*SMALL, "hydra/job_logging=none", "hydra/hydra_logging=none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_hydras_help_and_our_version_are_printed(tmp_path):
    shown = attnsvm("--hydra-help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "== Flags ==" in shown.stdout
    assert attnsvm("--version", cwd=tmp_path).stdout == f"attnsvm {__version__}\n"


def test_the_folders_of_runs_stay_their_identities(tmp_path):
    done = attnsvm("-m", *SMALL, "seed=1,2", "hydra.sweep.subdir=elsewhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "hydra.sweep.subdir=elsewhere: must be ${run_name:}" in done.stderr


def test_a_launcher_that_is_not_installed_says_what_installs_it(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\nsys.modules['hydra_plugins.hydra_submitit_launcher'] = None\n"
    )
    env = os.environ | {"PYTHONPATH": str(hidden)}
    done = attnsvm("-m", "seed=1,2", "hydra/launcher=slurm_gpu", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "hydra/launcher=slurm_gpu: is not installed here; pip install 'attnsvm[slurm]'" in (
        done.stderr
    )


def test_a_dry_run_of_a_single_run_says_what_it_would_do(tmp_path):
    done = attnsvm(*SMALL, "dry_run=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 runs, 1 of them pending" in done.stdout
    assert "about " in done.stdout
    assert not list(tmp_path.rglob("run.json"))
