"""An odd plan, an odd name or an odd thing in a sweep's folder: named, and the runs are told."""

from __future__ import annotations

import os
import shutil

import pytest

from attnsvm import record
from attnsvm.config import ConfigError
from attnsvm.record import LOCK_FILE, PLAN_FILE, RUN_FILE, read_plan, write_plan
from attnsvm.record.plan import MAX_RUNS
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import command as report
from tests.command import SMALL, attnsvm
from tests.record.odd import PLACED, RAW, copied, lines_of, place, sound_sweep, with_checksum


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "sweep"
    sound_sweep(folder, 2)
    return folder


@pytest.fixture
def sweep(original, tmp_path):
    return copied(original, tmp_path / "sweep")


def check_plan_named(sweep, capsys):
    """The plan is named in one line, and the runs of the folder are told all the same."""
    code, lines = lines_of(status.main, sweep, capsys)
    assert code == 1
    assert len(lines) == 2
    assert lines[0].startswith(f"corrupt  {PLAN_FILE}  ")
    assert lines[1] == "3 runs: 2 done, 1 corrupt"
    frames = load(sweep)
    assert frames.runs["state"].tolist() == ["corrupt", "done", "done"]
    assert len(frames.trials) == 6
    assert frames.command == ""


PLANS = {
    "nothing": {},
    "null": {"runs": None},
    "no run": {"runs": {}},
    "list": {"runs": ["a"]},
    "word": {"runs": "a"},
    "cell null": {"runs": {"a": None}},
    "cell word": {"runs": {"a": "data.d=4"}},
    "cell of numbers": {"runs": {"a": [1]}},
    "cell of lists": {"runs": {"a": [["data.d=4"]]}},
    "command": {"runs": {"a": []}, "command": "rm -rf"},
    "command of numbers": {"runs": {"a": []}, "command": [1]},
    "fields": {"runs": {"a": []}, "fields": []},
    "fields of lists": {"runs": {"a": []}, "fields": {"shared": [], "own": {}}},
    "fields of runs": {"runs": {"a": []}, "fields": {"shared": {}, "own": {"a": None}}},
    "fields nested": {"runs": {"a": []}, "fields": {"shared": {"d": {"a": [1]}}, "own": {}}},
    "fields huge": {"runs": {"a": []}, "fields": {"shared": {"trials": 10**400}, "own": {}}},
    "above": {"runs": {"../../x": []}},
    "absolute": {"runs": {"/etc": []}},
    "long": {"runs": {"a" * 5000: []}},
    "escapes": {"runs": {"/\x1b[2J\n\u202e": []}},
    "10^6 names": {"runs": {str(k): [] for k in range(10**6)}},
}


@pytest.mark.parametrize("content", PLANS.values(), ids=PLANS)
def test_a_plan_of_another_form(content, sweep, capsys):
    (sweep / PLAN_FILE).write_bytes(with_checksum(content))
    check_plan_named(sweep, capsys)


@pytest.mark.parametrize("content", RAW.values(), ids=RAW)
def test_a_plan_that_is_none(content, sweep, capsys):
    (sweep / PLAN_FILE).write_bytes(content)
    check_plan_named(sweep, capsys)


@pytest.mark.parametrize("kind", PLACED)
def test_something_else_in_the_place_of_the_plan(kind, sweep, capsys):
    place(sweep / PLAN_FILE, kind)
    check_plan_named(sweep, capsys)
    code, lines = lines_of(report.main, sweep, capsys)
    assert code == 1
    assert f"corrupt: {PLAN_FILE}: " in "\n".join(lines)


@pytest.mark.parametrize(("field", "value"), [("trials", "many"), ("seed", -1), ("trials", 1e300)])
def test_a_plan_whose_runs_have_no_number_of_instances(field, value, sweep, capsys):
    plan = read_plan(sweep)
    write_plan(sweep, {**plan.runs, "more": []}, {"more": {field: value}})
    check_plan_named(sweep, capsys)


def test_no_plan_of_more_runs_is_written(tmp_path):
    with pytest.raises(ConfigError, match=f"must be at most {MAX_RUNS}"):
        write_plan(tmp_path, {str(k): [] for k in range(MAX_RUNS + 1)})


NAMES = [
    b"\x1b[2J", b"a\nb", b"\r", "\u202egnp".encode(), "\u2028".encode(), b"\xff\xfe",
    b" ", b"-rf", b"$(id)", b"<script>alert(1)<script>", b"\x07" * 200,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_send_commands_to_a_terminal(name, sweep, capsys):
    """Without a plan the names are those of the folders on disk."""
    (sweep / PLAN_FILE).unlink()
    odd = os.path.join(os.fsencode(sweep), name)
    os.mkdir(odd)
    os.mkfifo(os.path.join(odd, b"run.json"))
    code, lines = lines_of(status.main, sweep, capsys)
    assert (code, lines[-1]) == (1, "3 runs: 2 done, 1 corrupt")
    assert len(lines) == 2
    code, lines = lines_of(report.main, sweep, capsys)
    assert code == 1
    assert len([line for line in lines if line.startswith("corrupt: ")]) == 1
    page = (sweep / "report.html").read_text()
    assert "2 of 3" in page
    assert not {"\x1b", "\u202e", "\u2028", "\x07"} & set(page)
    assert "<script>alert" not in page


def test_a_folder_whose_every_run_is_odd(sweep, capsys):
    for path in sweep.glob(f"*/{RUN_FILE}"):
        place(path, "pipe")
    assert lines_of(status.main, sweep, capsys)[1][-1] == "2 runs: 2 corrupt"
    code, lines = lines_of(report.main, sweep, capsys)
    assert code == 1
    assert len([line for line in lines if line.startswith("corrupt: ")]) == 2


def test_a_single_run_that_is_odd(sweep, capsys):
    folder = next(sweep.glob(f"*/{RUN_FILE}")).parent
    place(folder / RUN_FILE, "pipe")
    assert lines_of(status.main, folder, capsys)[0] == 1
    assert lines_of(report.main, folder, capsys)[0] == 1


def test_links_in_the_place_of_figures_and_tables_are_not_followed(sweep, tmp_path, capsys):
    (tmp_path / "outside").mkdir()
    for name in ("tables", "figures"):
        shutil.rmtree(sweep / name, ignore_errors=True)
        (sweep / name).symlink_to(tmp_path / "outside")
        code, lines = lines_of(report.main, sweep, capsys)
        assert code == 2
        assert f"{name}" in lines[-1]
        assert "is a link; must be a folder" in lines[-1]
        (sweep / name).unlink()
    assert not list((tmp_path / "outside").iterdir())


def test_a_sweep_goes_on_where_runs_are_odd(tmp_path):
    grid = ["-m", *SMALL, "seed=0,10,20,30,40,50,60"]
    done = attnsvm(*grid, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = sorted(path.parent for path in (tmp_path / "multirun").glob(f"*/*/{RUN_FILE}"))
    sweep = runs[0].parent
    (runs[0] / RUN_FILE).unlink()
    place(runs[0] / LOCK_FILE, "pipe")
    place(runs[1] / RUN_FILE, "folder")
    place(runs[2] / LOCK_FILE, "full folder")  # beside a record that is done
    (sweep / ".x.tmp").mkdir()
    for run in runs[4:6]:
        (run / RUN_FILE).unlink()
    (runs[4] / ".hydra/config.yaml").unlink()
    place(runs[4] / ".hydra/config.yaml", "pipe")  # Hydra would write to it and wait for ever
    shutil.rmtree(runs[5] / ".hydra")
    (tmp_path / "outside").mkdir()
    (runs[5] / ".hydra").symlink_to(tmp_path / "outside")
    shutil.rmtree(runs[6])
    runs[6].symlink_to(tmp_path / "outside")
    (runs[3] / RUN_FILE).unlink()
    resumed = attnsvm(*grid, cwd=tmp_path)
    assert resumed.returncode == 1, resumed.stderr
    assert "Traceback" not in resumed.stderr
    summary = resumed.stderr[resumed.stderr.rindex("attnsvm: ") :].splitlines()
    assert "5 corrupt of 7 runs" in summary[0]
    assert len(summary) == 6
    assert not list((tmp_path / "outside").iterdir())
    assert ".lock: is a pipe; must be a file" in resumed.stderr
    assert "run.json: is a folder; must be a file" in resumed.stderr
    assert ".hydra/config.yaml: is a pipe; must be a file" in resumed.stderr
    assert "4 runs done" not in resumed.stderr
    assert record.is_done(runs[2])
    assert record.is_done(runs[3])
    shutil.rmtree(sweep / "figures")
    (sweep / PLAN_FILE).unlink()
    place(sweep / PLAN_FILE, "folder")
    refused = attnsvm(*grid, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith("sweep.json: is a folder; must be a file")
