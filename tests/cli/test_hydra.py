"""Hydra's own section is Hydra's: its users' callbacks, sweepers, logging and help work."""

from __future__ import annotations

import json
import os

import pytest

from attnsvm.config.version import __version__
from tests.command import SMALL, attnsvm, ran

OWN_GROUPS = {
    "path": ["hydra.searchpath=[file://{mine}]"],
    "folder": ["--config-dir", "{mine}"],
    "config": ["--config-dir", "{mine}", "--config-name", "own"],
}


@pytest.mark.full
@pytest.mark.parametrize("way", OWN_GROUPS)
def test_options_of_the_users_own_may_be_swept(way, tmp_path):
    """Also where the search path stands in a primary config of their own."""
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    given = OWN_GROUPS[way]
    options = elsewhere if way == "config" else mine
    mine.mkdir()
    (options / "head").mkdir(parents=True)
    (options / "head/steep.yaml").write_text(
        "defaults: [/schema/head/quadratic@_here_]\nlam: 0.5\n"
    )
    (mine / "own.yaml").write_text(
        f"defaults: [config, _self_]\nhydra: {{searchpath: ['file://{elsewhere}']}}\n"
    )
    words = [word.format(mine=mine) for word in given]
    ran("-m", *words, "head=steep,linear", *SMALL, cwd=tmp_path)
    runs = [json.loads(p.read_text()) for p in (tmp_path / "multirun/latest").glob("*/run.json")]
    assert sorted(run["config"]["head"].get("lam", 0.0) for run in runs) == [0.0, 0.5]


def test_hydras_help_and_our_version_are_printed(tmp_path):
    shown = ran("--hydra-help", cwd=tmp_path)
    assert "== Flags ==" in shown.stdout
    assert attnsvm("--version", cwd=tmp_path).stdout == f"attnsvm {__version__}\n"


@pytest.mark.full
def test_a_launcher_that_is_not_installed_says_what_installs_it(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\nsys.modules['hydra_plugins.hydra_submitit_launcher'] = None\n"
    )
    env = os.environ | {"PYTHONPATH": str(hidden)}
    done = ran("-m", "seed=1,2", "hydra/launcher=slurm_gpu", cwd=tmp_path, env=env, code=2)
    message = "hydra/launcher=slurm_gpu: is not installed here; pip install 'attnsvm[slurm]'"
    assert message in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("mode", [[], ["-m"]])
def test_a_dry_run_for_a_device_that_is_not_here_lists_the_plan(mode, tmp_path):
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = ran(*mode, *SMALL, "dry_run=true", "device=cuda", cwd=tmp_path, env=env)
    assert "1 runs, 1 of them pending" in done.stdout
    assert "no estimate: device=cuda: no CUDA device is available here" in done.stdout
