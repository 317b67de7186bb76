"""A cell of a sweep, composed from what cells share, is the config that Hydra composes."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from attnsvm.cli.composing import CellComposer
from attnsvm.config.compose import register

CELLS = [
    ["seed=3", "data.d=5"],
    ["seed=4", "data.d=5"],
    ["parameterization=kq", "parameterization.m=2", "seed=1"],
    ["parameterization=w", "seed=1"],
    ["data={n:2,T:3}", "head=relu"],
    ["head=relu", "data={n:4,T:3}", "data.d=7"],
    ["head=quadratic", "head.lam=0.5", "svm.norms=[nuclear]"],
    ["optimizer={lr:0.2,steps:7}", "selection=multi", "selection.until_accepted=true"],
    ["data=orthonormal", "optimizer=adam", "optimizer.beta1=0.5", "++data.T=4"],
    ["trials=2", "hydra.job.name=other", "seed=9"],
]
WRONG = [["data.dd=3"], ["seed=1", "head.width=2"], ["+data.T.x=1"], ["head=linaer"]]


@pytest.fixture(scope="module")
def loader():
    register()
    with initialize_config_module("conf", version_base="1.3", job_name="attnsvm"):
        yield GlobalHydra.instance().hydra.config_loader


@pytest.fixture
def composer(loader):
    return CellComposer(loader.get_search_path())


def by_hydra(composer: CellComposer, master, cell: list[str]):
    return ConfigLoaderImpl.load_sweep_config(composer, master, cell)


def test_a_job_is_what_hydra_composes_its_own_section_included(composer):
    master = compose("config", ["trials=3"], return_hydra_config=True)
    for cell in CELLS + CELLS[::-1]:
        config, expected = (
            composer.load_sweep_config(master, cell),
            by_hydra(composer, master, cell),
        )
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")


@pytest.mark.parametrize("cell", WRONG)
def test_what_hydra_refuses_is_refused_with_its_words(cell, composer):
    master, told = compose("config", return_hydra_config=True), set()
    for load in (CellComposer.load_sweep_config, by_hydra):
        with pytest.raises(ConfigCompositionException) as caught:
            load(composer, master, cell)
        told.add(str(caught.value))
    assert len(told) == 1
