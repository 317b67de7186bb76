"""Quiet, verbose and coloured output; warnings, errors and the outcome are always shown."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_objective import two_files
from tests.command import SMALL, attnsvm, ran

QUIET = ("hydra/job_logging=quiet", "hydra/hydra_logging=quiet")
COLORLOG = ("hydra/job_logging=colorlog", "hydra/hydra_logging=colorlog")


def test_a_quiet_run_says_how_it_ended_and_no_more(tmp_path):
    done = ran(*SMALL, *QUIET, cwd=tmp_path)
    first, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"\[.*\]\[INFO\] - .*: 3 unsaturated", first)
    assert lines[0] == "Medians (of ranks the mean) over status ok:"
    assert lines[3] == "3 of 3 unsaturated: raise optimizer.steps or optimizer.lr"
    assert re.match(r"Time: .*\nNext: attnsvm-report multirun/single/.*", "\n".join(lines[4:]))
    (log,) = tmp_path.rglob("attnsvm.log")
    assert log.read_text() == done.stdout
    told = attnsvm(command="attnsvm-status", cwd=tmp_path)  # of multirun/latest
    name = "sphere_n3_T3_d4_w_linear_normalized_gd_steps50_trials3-"
    assert (told.stdout, name in told.stderr) == ("1 runs: 1 done\n", True)


@pytest.mark.full
def test_a_quiet_sweep_says_its_result_and_where_its_report_is(tmp_path):
    done = ran("-m", *SMALL, "optimizer.steps=50,2000", *QUIET, cwd=tmp_path)
    assert re.match(r"\[.*\]\[HYDRA\] .*\n6 instances: 3 unsaturated, 3 ok\nMedians", done.stdout)
    assert re.search(r"\nsteps +ok .*\n50 +0/3 .*\n2000 +3/3 .*\n3 of 6 unsaturated: raise .*"
                     r"\nreport: .*\.html", done.stdout)  # fmt: skip
    assert "2 of 2 runs done" in done.stderr
    logs = [path.read_text() for path in tmp_path.rglob("attnsvm.log")]
    assert sum("3 unsaturated" in log for log in logs) == 1 < len(logs)  # nothing is lost


@pytest.mark.full
def test_quiet_hides_no_warning_and_no_error(tmp_path):
    undefined = attnsvm(*SMALL, "objective=mean(risk)", *QUIET, cwd=tmp_path)
    assert re.search(r"\[WARNING\] - .*is undefined", undefined.stdout)
    two_files(tmp_path)
    grid = ["-m", "data=file", "data.path=b.npz,a.npz", "optimizer.steps=9", *QUIET]
    failed = ran(*grid, cwd=tmp_path, code=1)
    assert "1 failed of 2 runs" in failed.stderr


@pytest.mark.full
def test_a_verbose_sweep_says_how_long_the_stages_of_its_runs_took(tmp_path):
    stages = re.compile(r"\[DEBUG\] - .*: .*draw [\d.]+ s.*train [\d.]+ s")
    grid = ("-m", *SMALL, "seed=1,2")
    assert stages.search(attnsvm(*grid, "hydra.verbose=[attnsvm,sweeps]", cwd=tmp_path).stdout)
    assert not stages.search(attnsvm(*grid[:-1], "seed=3,4", cwd=tmp_path).stdout)


@pytest.mark.full
def test_colorlog_colours_runs_and_sweeps(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_colorlog", reason="make test-tracking installs it")
    done = ran("-m", *SMALL, "seed=1,2", *COLORLOG, cwd=tmp_path)
    assert re.search(r"\x1b\[32mINFO\x1b\[0m.*: 3 unsaturated", done.stdout)
    assert re.search(r"\x1b\[35mHYDRA\x1b\[0m\] .*\n6 instances: 6 unsat", done.stdout)
