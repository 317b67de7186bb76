"""A user's own packages named conf or sweeps neither break attnsvm nor are taken for ours."""

from __future__ import annotations

import os

import pytest

from tests.command import SMALL, ran


@pytest.mark.full
def test_a_sweep_beside_them_is_run_and_reported(tmp_path):
    for name in ("conf", "sweeps"):
        (tmp_path / name).mkdir()
        for module in ("__init__", "report", "status"):
            code = f"raise SystemExit('the user has {name}')"
            (tmp_path / name / f"{module}.py").write_text(code)
    (tmp_path / "conf/config.yaml").write_text("nothing: of ours\n")
    env = os.environ | {"PYTHONPATH": "."}
    ran("-m", *SMALL, "seed=1,2", cwd=tmp_path, env=env)
    (tmp_path / "multirun/latest/report.html").unlink()
    for other in ("attnsvm-status", "attnsvm-report", "attnsvm-verify"):
        ran("multirun/latest", cwd=tmp_path, command=other, env=env)
    assert (tmp_path / "multirun/latest/report.html").exists()
