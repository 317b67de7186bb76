"""A sweep on disk, and stored arrays of made-up runs."""

from types import SimpleNamespace

import pytest

from attnsvm import experiment, record
from attnsvm.config.identity import run_name
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.sweeps.figures import _numbers
from tests.config.test_config import composed

SMALL = ("data.n=2", "data.T=3", "trials=3", "optimizer.steps=30")


def written(folder, *cells):
    """Write a sweep with a run for each of the cells."""
    plan = {}
    for cell in cells:
        config = composed(*SMALL, *cell)
        name = run_name(config)
        (folder / name).mkdir(parents=True)
        write(folder / name, experiment.parts(config), provenance(config, list(cell)))
        plan[name] = list(cell)
    record.write_plan(folder, plan)
    return folder


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """A sweep of four runs, to be read only."""
    cells = [(f"data.d={d}", f"parameterization={p}") for d in (3, 4) for p in ("w", "kq")]
    return written(tmp_path_factory.mktemp("sweeps") / "sweep", *cells)


@pytest.fixture
def stored(monkeypatch):
    """Return the arrays of runs by name, which figures read instead of files."""
    arrays = {}

    def run_of(folder):
        return SimpleNamespace(arrays=lambda: arrays[str(folder)])

    monkeypatch.setattr(_numbers, "StoredRun", run_of)
    return arrays
