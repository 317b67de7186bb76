"""Quiet, verbose and coloured output; warnings, errors and the outcome are always shown."""

import io
import re

import pytest

from attnsvm.display import pace
from tests.command import QUIET, SMALL, attnsvm, ran


def test_a_quiet_run_says_how_it_ended_and_no_more(tmp_path):
    done = ran(*SMALL, *QUIET)
    first, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"\[.*\]\[INFO\] - .*: 3 unsaturated", first)
    assert lines[0] == "Medians (of ranks the mean) over status ok:"
    assert lines[3] == "3 of 3 unsaturated: raise optimizer.steps or optimizer.lr"
    assert re.match(r"Time: .*\nNext: attnsvm-report multirun/single/.*", "\n".join(lines[4:]))
    (log,) = tmp_path.rglob("attnsvm.log")
    assert log.read_text() == done.stdout
    shown = attnsvm(command="attnsvm-status")  # of multirun/latest
    name = "sphere_n3_T3_d4_w_linear_normalized_gd_steps50_trials3-"
    assert (shown.stdout, name in shown.stderr) == ("1 runs: 1 done\n", True)


@pytest.mark.full
@pytest.mark.parametrize("logging", [(), QUIET])
def test_a_sweep_says_its_result_and_nothing_of_each_run(logging, tmp_path):
    done = ran("-m", *SMALL, "optimizer.steps=50,2000", "seed=1,5,9,13", *logging)
    table = r"24 inst.*\nMedians.*\nsteps .*\n50 +0/12 .*\n2000 +12/12 .*\n12 of 24 .*\nreport"
    assert re.search(table, done.stdout)
    shown = [line for line in (done.stdout + done.stderr).splitlines() if "so far" not in line]
    assert len(shown) == 9 + (not logging)
    logs = [path.read_text() for path in tmp_path.rglob("attnsvm.log")]
    assert sum("3 unsaturated" in log for log in logs) == 4 < len(logs)  # nothing is lost


def test_every_ten_seconds_a_line_says_what_is_going_on(monkeypatch):
    now, stream, going = [0.0], io.StringIO(), pace.each("instance", range(2))
    monkeypatch.setattr(pace, "monotonic", lambda: now[0])

    def over(seconds):
        now[0] += seconds
        return next(going, "over") == "over"

    with pace.doing("training"):
        pace.speak(stream, over)
    lines = r"training, instance: .* 0/2 \[00:00<\?, .*\], 10.0 s so far\n"
    lines += r"training, instance: .*50%.* 1/2 \[00:10<00:10, .*\], 20.0 s so far\n"
    assert re.fullmatch(lines, stream.getvalue())
