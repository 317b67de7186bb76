"""A sound sweep to be damaged, and the runs that are made meanwhile."""

import shutil
from pathlib import Path

import pytest

from attnsvm import experiment, record
from attnsvm.config import RunConfig
from tests.faults import parts
from tests.record.odd import sound_sweep


@pytest.fixture(scope="package")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "sweep"
    sound_sweep(folder)
    return folder


@pytest.fixture
def sweep(original, tmp_path) -> Path:
    """A sweep of three complete runs."""
    return Path(shutil.copytree(original, tmp_path / "sweep"))


@pytest.fixture
def run(sweep) -> Path:
    """The folder of its first run."""
    return sweep / next(iter(record.read_plan(sweep).runs))


@pytest.fixture
def runs_made(monkeypatch) -> list[RunConfig]:
    """The configs whose runs are made, in order; their numbers are prepared."""
    configs: list[RunConfig] = []

    def prepared_parts(config):
        configs.append(config)
        return parts(config)

    monkeypatch.setattr(experiment, "parts", prepared_parts)
    return configs
