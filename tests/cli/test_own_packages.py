"""A user's own packages named conf or sweeps neither break attnsvm nor are taken for ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.command import BIN, SMALL, environment


@pytest.fixture
def beside(tmp_path):
    for name in ("conf", "sweeps"):
        (tmp_path / name).mkdir()
        for module in ("__init__", "report", "status"):
            (tmp_path / name / f"{module}.py").write_text(
                f"raise SystemExit('the user has {name}')"
            )
    (tmp_path / "conf" / "config.yaml").write_text("nothing: of ours\n")
    return tmp_path


def run(command, cwd):
    env = environment(os.environ | {"PYTHONPATH": "."})
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_sweep_beside_them_is_run_and_reported(beside):
    done = run([sys.executable, "-m", "attnsvm", "-m", *SMALL, "seed=1,2"], beside)
    assert done.returncode == 0, done.stderr
    folder = beside / "multirun/latest"
    assert (folder / "report.html").exists()
    (folder / "report.html").unlink()
    for other in ("attnsvm-status", "attnsvm-report", "attnsvm-verify"):
        done = run([str(BIN / other), str(folder)], beside)
        assert done.returncode == 0, done.stderr
    assert (folder / "report.html").exists()
