"""Genuine records of every kind of run, small: made once, copied and edited by the tests."""

import copy
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from attnsvm import experiment
from attnsvm.config.identity import run_name
from attnsvm.config.run import HYPOTHESES
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.record.schema import RunRecord
from tests.config.test_config import composed

ALL = f"hypotheses=[{','.join(HYPOTHESES)}]"
WORDS = {"all": ALL, "few": ALL.replace(",aligned_gradient", "")}
LISTED = OmegaConf.merge(WORDS, OmegaConf.load(Path(__file__).with_name("kinds.yaml")))
KINDS = {name: tuple(words.split()) for name, words in LISTED.items() if name not in WORDS}
"""Overrides of each kind of run."""

SMALL = KINDS.pop("small")


def some_quick(names: Iterable[str], quick: Collection[str]) -> list[object]:
    """Return cases for pytest; those that are not quick are marked `full`."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.full) for n in names]


def made(name: str) -> tuple[object, RunRecord]:
    """Return config and record of a kind of run, to be edited; it is run once in a process."""
    return copy.deepcopy(_run(name))


@lru_cache
def _run(name: str) -> tuple[object, RunRecord]:
    config = composed(*KINDS[name])
    return config, experiment.run(config)


def from_file(folder: Path, model: str = "cross_attention") -> tuple[object, RunRecord]:
    """Return config and record of instances from a data file with a mask and labels."""
    random = np.random.default_rng(0)
    X, Z = random.normal(size=(3, 3, 4, 3)), random.normal(size=(3, 3, 3))
    mask = np.ones((3, 3, 4), dtype=bool)
    mask[1, :, 3] = mask[2, 0, 1:] = False
    Y = np.where(random.random((3, 3)) > 0.5, 1.0, -1.0)
    np.savez(folder / "tokens.npz", X=X, Z=Z, Y=Y, mask=mask, v=random.normal(size=(3, 3)))
    config = composed("data=file", f"data.path={folder / 'tokens.npz'}", f"model={model}",
                      "optimizer.steps=200", "seed=5")  # fmt: skip
    return config, experiment.run(config)


def started_from_file(folder: Path) -> tuple[object, RunRecord]:
    """Return config and record of a run whose weights begin as a file says, by seed."""
    random = np.random.default_rng(1)
    path = folder / "weights.npz"
    np.savez(path, W0=random.normal(size=(5, 3, 3)), seeds=np.array([9, 2, 0, 3, 1]))
    config = composed(*SMALL, "optimizer.init=file", f"optimizer.init_path={path}")
    return config, experiment.run(config)


def written(folder: Path, config: object, found: RunRecord) -> Path:
    """Write a record below `folder`, and return its own folder."""
    inside = folder / run_name(config)
    inside.mkdir(parents=True)
    write(inside, [found], provenance(config, []))
    return inside


def verified_elsewhere(folder: Path, *words: str, **environment: str) -> str:
    """Return what `attnsvm-verify` prints in a process whose libraries behave differently."""
    command = [sys.executable, "-m", "attnsvm.verify", str(folder), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
