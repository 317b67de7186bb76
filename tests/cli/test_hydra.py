"""Hydra's own section is Hydra's: its users' callbacks, sweepers, logging and help work."""

import os

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from attnsvm.config.compose import register, validated
from attnsvm.config.version import __version__
from hydra_plugins.attnsvm_sweeper._cells import CellComposer
from tests.command import LATEST, SMALL, ran


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


@pytest.mark.full
def test_a_sweep_beside_them_is_run_and_reported(tmp_path):
    for name in ("conf", "sweeps"):
        (tmp_path / name).mkdir()
        for module in ("__init__", "report", "status"):
            code = f"raise SystemExit('the user has {name}')"
            (tmp_path / name / f"{module}.py").write_text(code)
    (tmp_path / "conf/config.yaml").write_text("nothing: of ours\n")
    env = os.environ | {"PYTHONPATH": "."}
    ran("-m", *SMALL, "seed=1,2", env=env)
    (LATEST / "report.html").unlink()
    for other in ("attnsvm-status", "attnsvm-report", "attnsvm-verify"):
        ran("multirun/latest", command=other, env=env)
    assert (LATEST / "report.html").exists()


CELLS = (
    "seed=3 data.d=5",
    "data={n:2,T:3} head=relu",
    "head=relu data={n:4,T:3} data.d=7",
    "optimizer={lr:0.2,steps:7} selection=multi svm.norms=[nuclear]",
    "data=orthonormal ++data.T=4 hydra.job.name=other",
    "seed=4 data.d=5",
)


@pytest.fixture(scope="module")
def composers():
    """Our composer, and Hydra's own way of it."""
    register()
    with initialize_config_module("conf", version_base="1.3", job_name="attnsvm"):
        loader = CellComposer(GlobalHydra.instance().hydra.config_loader)
        master = compose("config", ["trials=3"], return_hydra_config=True)
        by_hydra = GlobalHydra.instance().hydra.config_loader.load_sweep_config
        yield (
            lambda cell: loader.load_sweep_config(master, cell),
            lambda cell: by_hydra(master, cell),
            lambda cell: loader.settled(master, cell, 0)[1],
        )


@pytest.mark.full
def test_a_job_is_what_hydra_composes_its_own_section_included(composers):
    for cell in map(str.split, CELLS):
        config, expected, run = (compose_cell(cell) for compose_cell in composers)
        assert config == expected
        assert run == validated(expected)
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")
