"""Genuine records of every kind of run, small: made once, copied and edited by the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pytest

from attnsvm import experiment
from attnsvm.config.identity import run_name
from attnsvm.config.run import HYPOTHESES
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.record.schema import RunRecord
from tests.config.test_config import composed

SMALL = ("data.n=3", "data.T=4", "data.d=3", "trials=4", "optimizer.steps=200")
ALL = f"hypotheses=[{','.join(HYPOTHESES)}]"
KINDS = {
    "top": SMALL,
    "optimal": ("selection=optimal", "data.n=5", "data.T=5", "data.d=2", "trials=8"),
    "multi": ("head=relu", "selection=multi", "data.n=3", "data.T=4", "data.d=4", "trials=30",
              "optimizer.steps=400", "selection.reject_all_positive=true"),
    "until_accepted": ("head=relu", "selection=multi", "data.n=3", "data.T=4", "data.d=4",
                       "trials=2", "seed=1", "optimizer.steps=400",
                       "selection.until_accepted=true"),
    "quadratic": ("data=orthonormal", "head=quadratic", "head.lam=0.3", "selection=multi",
                  "data.n=3", "data.T=4", "data.d=6", "trials=6", "optimizer.steps=600"),
    "no_constraint": ("data.T=1", "trials=2", "optimizer.steps=2"),
    "kq": (*SMALL, "parameterization=kq"),
    "kq_low_rank": (*SMALL, "parameterization=kq", "parameterization.m=1", "trials=6"),
    "kq_path": (*SMALL[:-1], "parameterization=kq", "optimizer=regularization_path",
                "optimizer.radii=[3,30]"),
    "path": ("data.n=3", "data.T=4", "data.d=3", "trials=3", "optimizer=regularization_path",
             "optimizer.radii=[3,30,300]", "keep_path=true"),
    "self_attention": (*SMALL, "model=self_attention", "model.query=1"),
    "sequence": ("model=sequence", "data.n=2", "data.T=3", "data.d=4", "trials=3",
                 "optimizer.steps=200"),
    "causal": ("model=sequence", "model.causal=true", "data.n=2", "data.T=3", "data.d=4",
               "trials=3", "optimizer.steps=200", "keep_path=true"),
    "paths_far": ("data=paths_far", "seed=1", "trials=2", "optimizer.steps=300",
                  "optimizer.init=zero", "keep_path=true"),
    "paths_near": ("data=paths_near", "seed=3", "trials=2", "optimizer.steps=300",
                   "parameterization=kq", "optimizer.init=zero"),
    "in_span": ("data=sphere_in_span", "data.n=2", "data.T=3", "data.d=50", "trials=4",
                "optimizer.steps=200", ALL),
    "planted": (*SMALL, "data=planted", "optimizer.init=zero", "data.held_out=6",
                "probe=[held_out]", "keep_path=true", ALL),
    "prompt": (*SMALL, "data=prompt", "optimizer.init=zero"),
    "digits": ("data=digits", "trials=3", "optimizer.steps=300"),
    "mlp": (*SMALL, "head=mlp", "head.width=4"),
    "trained_head": (*SMALL, "head=mlp", "head.train=true", "keep_path=true"),
    "trained_linear": (*SMALL, "head.train=true"),
    "exponential": (*SMALL, "loss=exponential", "optimizer.init=small"),
    "squared": (*SMALL, "loss=squared", "loss.target=0.1", "optimizer=gd", "optimizer.lr=1"),
    "balanced": (*SMALL, "parameterization=kq", "optimizer.init=balanced"),
    "aligned": (*SMALL, "head=quadratic", "loss=exponential", "optimizer.init=aligned"),
    "aligned_kq": (*SMALL, "parameterization=kq", "parameterization.m=2", "loss=squared",
                   "model=self_attention", "optimizer.init=aligned"),
    "aligned_relu": (*SMALL, "head=relu", "loss=linear", "optimizer.init=aligned"),
    "cone": (*SMALL, "optimizer.init=cone", "optimizer.init_angle=30", "trials=8"),
    "cone_runner_up": (*SMALL, "optimizer.init=cone_runner_up", "optimizer.init_angle=5",
                       "hypotheses=[runner_up_local]"),
    "cone_rejected": ("data.n=8", "data.T=5", "data.d=2", "trials=4", "optimizer.steps=50",
                      "optimizer.init=cone"),
    "unsaturated": ("data.n=4", "data.T=5", "data.d=3", "trials=4", "optimizer.steps=3"),
    "no_step": ("data.n=3", "data.T=4", "data.d=3", "trials=2", "optimizer.steps=0"),
    "diverged": ("data.n=3", "data.T=4", "data.d=3", "trials=2", "optimizer.steps=40",
                 "optimizer=gd", "optimizer.lr=1e307", "loss=linear", "optimizer.growth=1e300"),
    "stalled": ("data.n=3", "data.T=4", "data.d=4", "trials=3", "optimizer.gradient=direct",
                "optimizer.lr=1", "optimizer.steps=2000"),
    "adam": (*SMALL, "optimizer=adam", "optimizer.lr=0.1"),
    "steepest": (*SMALL, "optimizer=steepest", "optimizer.schedule=decay",
                 "optimizer.growth=0.1", "optimizer.beta=0.5"),
    "mirror_descent": (*SMALL, "optimizer=mirror_descent"),
    "geometric": (*SMALL, "optimizer.record=geometric", "optimizer.growth=0.05"),
    "ridge": (*SMALL, "optimizer.ridge=1e-3", "parameterization=kq"),
    "other_norms": (*SMALL, "svm.norms=[frobenius,max,l1,l1.75,spectral]"),
    "other_norms_multi": ("head=relu", "selection=multi", "data.n=3", "data.T=4", "data.d=6",
                          "trials=12", "seed=1", "svm.norms=[max,l3]"),
    "probes": (*SMALL, "probe=[rank,entropy,margin_gap]", "probe.rank.threshold=0.3"),
    "probes_kq": (*SMALL, "probe=[balance,rank]", "parameterization=kq", "parameterization.m=2",
                  "keep_path=true"),
    "mixture": (*SMALL, "data.d=6", "data=orthonormal", "head=quadratic", "head.lam=0.5",
                "probe=[mixture]", "selection=multi", "selection.negligible=1e-3"),
    "excess_risk": (*SMALL, "probe=[excess_risk]", "keep_path=true"),
    "excess_risk_rounded": (*SMALL, "probe=[excess_risk]", "optimizer.init=small",
                            "optimizer.init_scale=1e17"),
    "excess_risk_multi": ("head=quadratic", "head.lam=0.3", "data=orthonormal", "selection=multi",
                          "data.n=3", "data.T=4", "data.d=6", "trials=3", "optimizer.steps=100",
                          "probe=[excess_risk]"),
    "hypotheses": (*SMALL, ALL),
    "hypotheses_optimal": ("selection=optimal", "head=quadratic", "data.n=2", "data.T=3",
                           "data.d=2", "trials=8", ALL.replace(",aligned_gradient", "")),
    "hypotheses_multi": ("head=relu", "selection=multi", "data.n=3", "data.T=4", "data.d=4",
                         "trials=12", "optimizer.steps=400", ALL),
    "hypotheses_causal": ("model=sequence", "model.causal=true", "data.n=1", "data.T=4",
                          "data.d=3", "trials=4", "optimizer.steps=200", "head=mlp", ALL),
    "published": ("selection=optimal", "data.n=3", "data.T=3", "data.d=3", "trials=2",
                  "svm.published=true"),
    "narrow_gap": ("selection=optimal", "data.n=5", "data.T=5", "data.d=8", "trials=6",
                   "svm.gap=1e-12"),
}  # fmt: skip
"""Overrides of each kind of run."""


def some_quick(names: Iterable[str], quick: Collection[str]) -> list[object]:
    """Return cases for pytest; those that are not quick are marked `full`."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.full) for n in names]


def made(name: str, folder: Path) -> tuple[object, RunRecord]:
    """Return config and record of a kind of run."""
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
