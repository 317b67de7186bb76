"""Sizes that cannot be run are refused before any work, and without allocating."""

import os

import pytest
from omegaconf import OmegaConf

from attnsvm.cli import memory
from attnsvm.config import ConfigError
from attnsvm.config.instantiate import instantiate
from attnsvm.data import sample
from attnsvm.record import files as usable
from attnsvm.record import usable_memory
from attnsvm.training import train
from tests.config.test_config import composed
from tests.quick import refusals

GiB = 2**30


@pytest.mark.parametrize(("fields", "words"), refusals("size"), ids=lambda value: value[:30])
def test_an_absurd_size_is_refused_with_what_it_needs(fields, words):
    with pytest.raises(ConfigError) as caught:
        memory.refuse_without_memory(composed(*fields.split()), memory.Machine(4 * GiB, "a job"))
    assert words in str(caught.value)


GRIDS = {
    "optimizer.steps=100 optimizer.record_every=7": 0,
    "optimizer.steps=99 optimizer.record_every=100": 0,
    "optimizer.steps=12345 optimizer.record=geometric": 4,
    "optimizer=regularization_path": 0,
}
"""Fields, and by how much the estimate may be above the number of snapshots."""


@pytest.mark.parametrize("fields", GRIDS)
def test_snapshots_are_counted_without_a_list_of_them(fields):
    config = composed(fields)
    grid = instantiate(config.optimizer, "optimizer").grid()
    assert 0 <= memory.snapshots(config) - len(grid) <= GRIDS[fields]


def test_the_estimate_is_a_lower_bound():
    config = composed("data.n=3", "data.T=4", "data.d=50", "optimizer.steps=40")
    batch = sample("sphere", n=3, T=4, d=50, trials=1)
    path = train(batch, steps=40, record_every=config.optimizer.record_every)
    held = path.snapshots.nbytes + path.softmax.nbytes
    needs = memory.memory_needed(config).items()
    (needed,) = (size for names, size in needs if "optimizer.steps" in names)
    assert held <= needed <= held + 1000 * memory.snapshots(config)


def test_what_fits_is_not_refused():
    config = composed("trials=100000")
    needed = sum(memory.memory_needed(config).values())
    for machine in (memory.Machine(GiB, "a job"), memory.Machine(needed, "a job"), None):
        memory.refuse_without_memory(config, machine)
    with pytest.raises(ConfigError, match=r"and a job has .* KiB; must be smaller"):
        memory.refuse_without_memory(config, memory.Machine(needed - 1, "a job"))


def test_the_memory_of_a_job_is_what_it_asks_slurm_for(monkeypatch, tmp_path):
    slurm = {"_target_": "hydra_plugins.attnsvm_launcher.slurm.Slurm", "mem_gb": 2}
    assert memory.job_machine(slurm) == memory.Machine(2 * GiB, "a job (hydra.launcher.mem_gb)")
    assert memory.job_machine({**slurm, "mem_gb": None}) is None
    assert memory.job_machine({**slurm, "additional_parameters": {"mem": "512M"}}) is None
    monkeypatch.setenv("MEM_GB", "3")
    from_environment = OmegaConf.create({**slurm, "mem_gb": "${oc.env:MEM_GB}"})
    assert memory.job_machine(from_environment).memory == 3 * GiB
    assert memory.job_machine({"_target_": "joblib"}) == memory.this_machine()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(usable, "CGROUP_LIMIT", tmp_path / "memory.max")
    for text, limit in (("", physical), ("max\n", physical), ("12345\n", 12345)):
        if text:
            (tmp_path / "memory.max").write_text(text)
        assert memory.this_machine().memory == usable_memory() == limit
