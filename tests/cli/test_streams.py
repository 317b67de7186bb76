"""Commands whose output nobody reads, and environments that concern others."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from attnsvm.sweeps.report.command import main as report
from tests.command import BIN, QUIET, SMALL, environment, ran

RECORD = Path(__file__).parents[2] / "docs/records/sequence"
COMMANDS = (
    f"attnsvm {' '.join(SMALL)} dry_run=true",
    f"attnsvm -m {' '.join(SMALL)} seed=1,2 dry_run=true",
    f"attnsvm-status --all {RECORD}",
    "attnsvm-claims",
    "attnsvm-verify --help",
)
CLOSED = (">&-", "2>&-", ">&- 2>&- <&-", "| true", "2>&1 >/dev/null | true")


def in_shell(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the finished pipe; its exit code is that of the command, not of its reader."""
    env = environment() | variables
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{BIN}/{command}"],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(
    "command",
    [
        COMMANDS[2],
        *(
            pytest.param(command, marks=pytest.mark.full)
            for command in (*COMMANDS[:2], *COMMANDS[3:])
        ),
    ],
)
def test_a_command_ends_well_though_nobody_reads(command, closed, tmp_path):
    done = in_shell(f"{command} {closed}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


def test_what_a_full_disk_loses_is_said(tmp_path):
    done = in_shell(f"{COMMANDS[2]} >/dev/full", tmp_path)
    assert done.stderr == "what is printed is lost: No space left on device\n"


@pytest.mark.full
@pytest.mark.parametrize(
    "backend", ["module://matplotlib_inline.backend_inline", "nonsense", "qtagg"]
)
def test_figures_are_drawn_whatever_backend_others_use(backend, tmp_path):
    variables = {"MPLBACKEND": backend, "NUMBA_DISABLE_JIT": "1"}
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['IPython'] = None\n")
    grid = f"attnsvm -m {shlex.join([*SMALL, *QUIET])} seed=1,2"
    done = in_shell(grid, tmp_path, PYTHONPATH=str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "multirun/latest/report.html"
    page.unlink()
    done = in_shell("attnsvm-report multirun/latest", tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert page.exists()


def test_captured_streams_stay(capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", os.environ.get("MPLBACKEND", "agg"))
    assert report(["/nowhere/at/all"]) == 2
    assert "/nowhere/at/all" in capsys.readouterr().err


REFUSED = {
    "sweep=rank_vs_d,heads": "sweep=rank_vs_d,heads: must be one experiment",
    "-m sweep=rank_vs_d,heads": "sweep=rank_vs_d,heads: must be one experiment",
    "-m seed=1,2 hydra.sweep.subdir=${hydra.job.num}": "must be ${run_name:}",
    "-m seed=1,2 hydra/launcher=submitit_slurm": "submitit_slurm: must be slurm_cpu | slurm_gpu",
    "-m seed=1,2 hydra/launcher=joblib hydra.launcher.n_jobs=0": "n_jobs=0: must be >= 1",
    "-m seed=1,2 hydra.sweep.dir=${nope}": "hydra.sweep.dir: Interpolation key 'nope' not found",
    "--experimental-rerun x": "--experimental-rerun: must be FIELD=VALUE or --help",
    "--resolve": "The --resolve flag can only be used in conjunction with --cfg",
    "--multirun --cfg job": "Only one of --run, --multirun, --cfg",
    "--shell-completion install=foo": "No completion plugin for 'foo' found",
    "hydra.mode=foo": "hydra.mode: Invalid value 'foo', expected one of [RUN, MULTIRUN]",
    "hydra.job.env_copy=[NOPE]": "KeyError: 'NOPE'",
    "hydra.job.chdir=true data=file data.path=x.npz": "path=x.npz: must be an absolute path",
    "seed=${oc.env:NOPE}": "seed: KeyError raised while resolving interpolation",
    "seed=${hydra.job.num}": "Missing mandatory value: hydra.job.num",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_refusal_is_one_sentence(words, tmp_path):
    done = ran(*words.split(), cwd=tmp_path, code=2)
    assert REFUSED[words] in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("run.json"))


def test_flags_may_stand_behind_fields(tmp_path):
    assert "2 runs, 2 of them" in ran("dry_run=true", "-m", "seed=1,2", cwd=tmp_path).stdout


def test_hydras_own_section_is_shown_resolved(tmp_path):
    assert "${run_name:}" in ran("--cfg", "hydra", "--resolve", cwd=tmp_path).stdout
