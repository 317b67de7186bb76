"""A cell of a sweep, composed from what cells share, is the config that Hydra composes."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from attnsvm.cli.composing import CellComposer
from attnsvm.config.compose import register

CELLS = [
    ["seed=3", "data.d=5"],
    ["parameterization=kq", "parameterization.m=2", "seed=1"],
    ["data={n:2,T:3}", "head=relu"],
    ["head=relu", "data={n:4,T:3}", "data.d=7"],
    ["optimizer={lr:0.2,steps:7}", "selection=multi", "svm.norms=[nuclear]"],
    ["data=orthonormal", "++data.T=4", "hydra.job.name=other"],
    ["seed=4", "data.d=5"],
]
WRONG = [["data.dd=3"], ["seed=1", "head.width=2"], ["+data.T.x=1"], ["head=linaer"]]


@pytest.fixture(scope="module")
def composers():
    """Our composer, and Hydra's own way of it."""
    register()
    with initialize_config_module("conf", version_base="1.3", job_name="attnsvm"):
        loader = CellComposer(GlobalHydra.instance().hydra.config_loader.get_search_path())
        master = compose("config", ["trials=3"], return_hydra_config=True)
        by_hydra = super(CellComposer, loader).load_sweep_config
        yield (
            lambda cell: loader.load_sweep_config(master, cell),
            lambda cell: by_hydra(master, cell),
        )


@pytest.mark.full
def test_a_job_is_what_hydra_composes_its_own_section_included(composers):
    for cell in CELLS:
        config, expected = (compose_cell(cell) for compose_cell in composers)
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")


@pytest.mark.full
@pytest.mark.parametrize("cell", WRONG, ids=" ".join)
def test_what_hydra_refuses_is_refused_with_its_words(cell, composers):
    messages = set()
    for compose_cell in composers:
        with pytest.raises(ConfigCompositionException) as caught:
            compose_cell(cell)
        messages.add(str(caught.value))
    assert len(messages) == 1
