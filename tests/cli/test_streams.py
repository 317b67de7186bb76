"""Commands whose output nobody reads, and environments that concern others."""

import os
import subprocess
from pathlib import Path

import pytest

from attnsvm.sweeps.report.command import main as report
from tests.command import BIN, LATEST, QUIET, SMALL, environment, ran
from tests.quick import quick

RECORD = Path(__file__).parents[2] / "docs/records/sequence"
COMMANDS = (
    f"attnsvm-status --all {RECORD}",
    f"attnsvm {' '.join(SMALL)} dry_run=true",
    f"attnsvm -m {' '.join(SMALL)} seed=1,2 dry_run=true",
    "attnsvm-claims",
    "attnsvm-verify --help",
)
CLOSED = (">&- 2>&- <&-", "| true", ">&-", "2>&-", "2>&1 >/dev/null | true")
ENDINGS = [f"{COMMANDS[0]} {closed}" for closed in CLOSED]
ENDINGS += [f"{command} {CLOSED[0]}" for command in COMMANDS[1:]]


def in_shell(command):
    """Return the finished pipe; its exit code is that of the command, not of its reader."""
    words = ["bash", "-o", "pipefail", "-c", f"{BIN}/{command}"]
    return subprocess.run(words, env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize("command", quick(*ENDINGS, count=2))
def test_a_command_ends_well_though_nobody_reads(command):
    done = in_shell(command)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


def test_what_a_full_disk_loses_is_said():
    done = in_shell(f"{COMMANDS[0]} >/dev/full")
    assert done.stderr == "what is printed is lost: No space left on device\n"


@pytest.mark.full
def test_a_sweep_is_run_and_reported_whatever_backend_and_modules_others_have(tmp_path):
    """The backend of a notebook, which a command that is started there inherits."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['IPython'] = None\n")
    for name in ("conf", "sweeps"):
        (tmp_path / name).mkdir()
        for module in ("__init__", "report", "status"):
            code = f"raise SystemExit('the user has {name}')"
            (tmp_path / name / f"{module}.py").write_text(code)
    (tmp_path / "conf/config.yaml").write_text("nothing: of ours\n")
    variables = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    env = os.environ | variables | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": "."}
    ran("-m", *SMALL, *QUIET, "seed=1,2", env=env)
    (LATEST / "report.html").unlink()
    for other in ("attnsvm-status", "attnsvm-report", "attnsvm-verify"):
        ran("multirun/latest", command=other, env=env)
    assert (LATEST / "report.html").exists()


def test_captured_streams_stay(capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", os.environ.get("MPLBACKEND", "agg"))
    assert report(["/nowhere/at/all"]) == 2
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_flags_may_stand_behind_fields():
    assert "2 runs, 2 of them" in ran("dry_run=true", "-m", "seed=1,2").stdout
    assert "${run_name:}" in ran("--cfg", "hydra", "--resolve").stdout
