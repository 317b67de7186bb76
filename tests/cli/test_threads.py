"""Worker processes share the cores: what computes in them takes no more threads than its part."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.command import BIN, SMALL, environment

PROBE = """\
import json, os, pathlib
import threadpoolctl, torch
from attnsvm.data import Sphere

class Probe(Sphere):
    def sample(self, *arguments):
        batch = super().sample(*arguments)
        if batch.B == 1:
            return batch  # the driver looks whether the cell can be drawn
        batch.X @ batch.X.mT
        pools = {pool["filepath"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        told = {"torch": torch.get_num_threads(), "pools": pools}
        pathlib.Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(told))
        return batch
"""


@pytest.mark.full
def test_joblib_workers_do_not_oversubscribe_the_cores(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    pytest.importorskip("threadpoolctl")
    (tmp_path / "probe.py").write_text(PROBE)
    env = {**environment(), "PYTHONPATH": str(tmp_path)}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env.pop(name, None)
    grid = ["-m", "hydra/launcher=joblib", "seed=0,10,20", *SMALL]
    grid += ["data._target_=probe.Probe", "extensions=[probe]"]
    done = subprocess.run(
        [BIN / "attnsvm", *grid], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    workers = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert 1 <= len(workers) <= min(3, len(os.sched_getaffinity(0)))
    for told in workers:
        assert told["torch"] == 1
        assert told["pools"]
        assert set(told["pools"].values()) == {1}, told
