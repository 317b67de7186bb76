"""Commands whose output nobody reads, and environments that concern others."""

import os
import shlex
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
ENDINGS = quick(
    *(f"{COMMANDS[0]} {closed}" for closed in CLOSED),
    *(f"{command} {CLOSED[0]}" for command in COMMANDS[1:]),
    count=2,
)


def in_shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the finished pipe; its exit code is that of the command, not of its reader."""
    env = environment() | variables
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{BIN}/{command}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ENDINGS)
def test_a_command_ends_well_though_nobody_reads(command):
    done = in_shell(command)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


def test_what_a_full_disk_loses_is_said():
    done = in_shell(f"{COMMANDS[0]} >/dev/full")
    assert done.stderr == "what is printed is lost: No space left on device\n"


@pytest.mark.full
def test_figures_are_drawn_whatever_backend_others_use(tmp_path):
    """That of a notebook, which a command that is started there inherits."""
    variables = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['IPython'] = None\n")
    grid = f"attnsvm -m {shlex.join([*SMALL, *QUIET])} seed=1,2"
    variables |= {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(tmp_path)}
    done = in_shell(grid, **variables)
    assert done.returncode == 0, done.stderr
    assert (LATEST / "report.html").exists()


def test_captured_streams_stay(capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", os.environ.get("MPLBACKEND", "agg"))
    assert report(["/nowhere/at/all"]) == 2
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_flags_may_stand_behind_fields():
    assert "2 runs, 2 of them" in ran("dry_run=true", "-m", "seed=1,2").stdout
    assert "${run_name:}" in ran("--cfg", "hydra", "--resolve").stdout
