"""Sweeps to be damaged: a sound one, and what one is that nothing happens to."""

import shutil
from pathlib import Path

import pytest

from attnsvm.config import RunConfig
from tests.faults import configs, contents, finished, in_child, litter, states
from tests.faults import sweep as run_sweep
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


@pytest.fixture(scope="package")
def uninterrupted(tmp_path_factory) -> tuple[list[RunConfig], dict[str, bytes]]:
    """The cells of a sweep and its tables when nothing happens to it."""
    folder, cells = tmp_path_factory.mktemp("reference"), configs()
    assert finished(in_child(lambda: run_sweep(folder, cells))) == 0
    assert states(folder, cells) == ["done"] * len(cells)
    assert not litter(folder)
    return cells, contents(folder)
