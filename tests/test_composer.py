"""A cell of a sweep, composed from what cells share, is the config that Hydra composes."""

from __future__ import annotations

from functools import partial

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf, open_dict, read_write

from attnsvm.app import register
from attnsvm.composition import composed_once
from attnsvm.config import ConfigError
from attnsvm.guard import CheckedLoader
from attnsvm.identity import validated

CELLS = [
    ["seed=3", "data.d=5"],
    ["seed=4", "data.d=5"],
    ["parameterization=kq", "parameterization.m=2", "seed=1"],
    ["parameterization=w", "seed=1"],
    ["data={n:2,T:3}", "head=relu"],
    ["head=relu", "data={n:4,T:3}", "data.d=7"],
    ["head=quadratic", "head.lambda=0.5", "svm.norms=[nuclear]"],
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
def guarded(loader):
    return CheckedLoader(loader.get_search_path())


def by_hydra(loader: CheckedLoader, master, cell: list[str]):
    return ConfigLoaderImpl.load_sweep_config(loader, master, cell)


def without_hydra(config):
    with read_write(config), open_dict(config):
        config.pop("hydra", None)
    return config


def for_the_driver(loader: CheckedLoader, master, cell: list[str]):
    return composed_once(loader, master, cell, partial(by_hydra, loader, master), hydra=False)


def test_a_cell_is_what_hydra_composes_without_its_own_section(guarded):
    master = compose("config", return_hydra_config=True)
    for cell in CELLS + CELLS[::-1]:  # a second time from what is kept
        composed = for_the_driver(guarded, master, cell)
        overrides_hydra = any(one.startswith("hydra.") for one in cell)
        assert ("hydra" in composed) is overrides_hydra
        config = without_hydra(composed)
        expected = without_hydra(by_hydra(guarded, master, cell))
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert validated(config) == validated(expected)


def test_a_job_is_what_hydra_composes_its_own_section_included(guarded):
    master = compose("config", ["trials=3"], return_hydra_config=True)
    for cell in CELLS + CELLS[::-1]:
        config, expected = (
            guarded.load_sweep_config(master, cell),
            by_hydra(guarded, master, cell),
        )
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")


@pytest.mark.parametrize("cell", WRONG)
def test_what_hydra_refuses_is_refused_with_its_words(cell, guarded):
    master, told = compose("config", return_hydra_config=True), set()
    for load in (CheckedLoader.load_sweep_config, for_the_driver, by_hydra):
        with pytest.raises(ConfigCompositionException) as caught:
            load(guarded, master, cell)
        told.add(str(caught.value))
    assert len(told) == 1


def test_jobs_do_not_share_what_they_change_and_are_checked(guarded):
    master = compose("config", return_hydra_config=True)
    first = guarded.load_sweep_config(master, ["seed=1"])
    first.hydra.job.num = 7
    first.seed = 9
    second = guarded.load_sweep_config(master, ["seed=2"])
    assert (second.seed, OmegaConf.is_missing(second.hydra.job, "num")) == (2, True)
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir"):
        guarded.load_sweep_config(master, ["hydra.sweep.subdir=elsewhere"])


@pytest.mark.parametrize("hydra", [True, False])
def test_options_are_composed_once_for_each_sweep(hydra, guarded):
    asked = []

    def compose_options(overrides):
        asked.append(overrides)
        return by_hydra(guarded, master, overrides)

    for given in (["trials=4"], ["trials=5"]):
        master = compose("config", given, return_hydra_config=True)
        master.hydra.job.config_name = "config"
        master.hydra.overrides.hydra = [f"hydra.job.name={given[0][-1]}"]
        for seed in range(3):
            for head in ("mlp", "relu"):
                cell = [f"seed={seed}", f"head={head}", "data={n:2,T:2}"]
                config = composed_once(guarded, master, cell, compose_options, hydra)
                assert not hydra or config.hydra.job.name == given[0][-1]
    assert asked == [["head=mlp"], ["head=relu"]] * 2


def test_a_driver_and_its_jobs_do_not_take_each_others_configs(guarded):
    master = compose("config", return_hydra_config=True)
    for _ in range(2):
        assert "hydra" in guarded.load_sweep_config(master, ["head=mlp"])
        assert "hydra" not in for_the_driver(guarded, master, ["head=mlp"])
