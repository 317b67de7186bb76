"""A cell of a sweep, composed from what cells share, is the config that Hydra composes."""

from __future__ import annotations

import copy

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
from hydra_plugins.attnsvm_sweeper.composer import Composer

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
def composer(loader):
    return Composer(loader, compose("config", return_hydra_config=True))


def by_hydra(composer: Composer, cell: list[str]):
    config = copy.deepcopy(composer._whole(cell))
    with read_write(config), open_dict(config):
        config.pop("hydra")
    return config


def test_a_cell_is_what_hydra_composes(composer):
    for cell in CELLS + CELLS[::-1]:  # a second time from what is kept
        config = composer.composed(cell)
        with read_write(config), open_dict(config):
            config.pop("hydra", None)
        expected = by_hydra(composer, cell)
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert validated(config) == validated(expected)


@pytest.mark.parametrize("cell", WRONG)
def test_what_hydra_refuses_is_refused_with_its_words(cell, composer):
    told = []
    for compose_cell in (composer.composed, lambda cell: by_hydra(composer, cell)):
        with pytest.raises(ConfigCompositionException) as caught:
            compose_cell(cell)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_options_are_composed_once(composer, monkeypatch):
    asked = []
    whole = composer._whole
    monkeypatch.setattr(composer, "_whole", lambda o: asked.append(o) or whole(o))
    for seed in range(5):
        for head in ("linear", "relu"):
            composer.composed([f"seed={seed}", f"head={head}", "data={n:2,T:2}"])
    assert asked == [["head=linear"], ["head=relu"]]


@pytest.fixture
def guarded(loader):
    return CheckedLoader(loader.get_search_path())


def by_hydra_itself(loader: CheckedLoader, master, cell: list[str]):
    return ConfigLoaderImpl.load_sweep_config(loader, master, cell)


def test_a_job_is_what_hydra_composes_its_own_section_included(guarded):
    master = compose("config", ["trials=3"], return_hydra_config=True)
    for cell in CELLS + CELLS[::-1]:
        config, expected = (
            guarded.load_sweep_config(master, cell),
            by_hydra_itself(guarded, master, cell),
        )
        assert config == expected
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")


@pytest.mark.parametrize("cell", WRONG)
def test_what_hydra_refuses_a_job_is_refused_with_its_words(cell, guarded):
    master, told = compose("config", return_hydra_config=True), []
    for load in (guarded.load_sweep_config, lambda *a: by_hydra_itself(guarded, *a)):
        with pytest.raises(ConfigCompositionException) as caught:
            load(master, cell)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_jobs_do_not_share_what_they_change_and_are_checked(guarded):
    master = compose("config", return_hydra_config=True)
    first = guarded.load_sweep_config(master, ["seed=1"])
    first.hydra.job.num = 7
    first.seed = 9
    second = guarded.load_sweep_config(master, ["seed=2"])
    assert (second.seed, OmegaConf.is_missing(second.hydra.job, "num")) == (2, True)
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir"):
        guarded.load_sweep_config(master, ["hydra.sweep.subdir=elsewhere"])


def test_options_of_jobs_are_composed_once_for_each_sweep(guarded):
    asked = []

    def compose_job(overrides):
        asked.append(overrides)
        return by_hydra_itself(guarded, master, overrides)

    for given in (["trials=4"], ["trials=5"]):
        master = compose("config", given, return_hydra_config=True)
        master.hydra.job.config_name = "config"
        master.hydra.overrides.hydra = [f"hydra.job.name={given[0][-1]}"]
        for seed in range(3):
            config = composed_once(guarded, master, [f"seed={seed}", "head=mlp"], compose_job)
            assert config.hydra.job.name == given[0][-1]
    assert asked == [["head=mlp"]] * 2
