"""What a folder tells about its runs, the command that prints it, and the lock of a run."""

import errno
import fcntl
import os
import signal
import time
from contextlib import nullcontext

import pytest

from attnsvm import record
from attnsvm.record import RUN_FILE
from attnsvm.record.columns import STATES
from attnsvm.record.folder import write, write_failure
from attnsvm.record.state import LOCK_FILE, HeldError, holder, locked
from attnsvm.record.stored import StoredRun
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.status import main
from tests.command import SMALL, ran
from tests.faults import finished, in_child, owners
from tests.record.test_record import ORIGIN, a_record


def holding(folder):
    """Start a process that holds the lock of `folder`; return its id."""
    reading, writing = os.pipe()

    def hold():
        with locked(folder):
            os.write(writing, b"held")
            time.sleep(60)

    child = in_child(hold)
    assert os.read(reading, 4) == b"held"
    os.close(reading)
    os.close(writing)
    return child


def killed(child):
    os.kill(child, signal.SIGKILL)
    return finished(child) == -signal.SIGKILL


def run_in(folder, state):
    """Make `folder` that of a run in `state`."""
    folder.mkdir()
    if state in WRITTEN:
        write(folder, [a_record()], {**ORIGIN, **WRITTEN[state]})
    if state == "corrupt":
        (folder / "trials.parquet").write_bytes(b"PAR1")
    if state in ("failed", "interrupted"):
        write_failure(folder, ORIGIN, ValueError("told\x1b[2J why"), state)
    if state == "lost":
        assert killed(holding(folder))


WRITTEN = {"done": {}, "corrupt": {}, "stale": {"numbers": 0}, "other_version": {"format": 2}}
"""States of a complete record, and the fields of its `run.json` in which it differs."""

ELSEWHERE = ("too_large", "unreadable", "other_run", "skipped")
"""States that reading tells, that the system causes, that need a folder's name, or no folder."""

TOLD = {state: state for state in STATES if state not in ELSEWHERE}


@pytest.fixture
def every_state(tmp_path):
    """A sweep with a run in each state; `running` is run here."""
    for state in TOLD:
        run_in(tmp_path / state, state)
    record.write_plan(tmp_path, {state: [] for state in TOLD})
    with locked(tmp_path / "running"):
        yield tmp_path


def test_each_state_is_told_from_the_folder(every_state, capsys):
    content = record.states(every_state)
    assert {name: state.state for name, state in content.items()} == TOLD
    assert all(state.reason for name, state in content.items() if name != "done")
    assert main([str(every_state)]) == 1
    text = capsys.readouterr().out
    counts = ", ".join(f"1 {state}" for state in TOLD)
    assert text.splitlines()[-1] == f"{len(TOLD)} runs: {counts}"
    assert "\x1b" not in text
    assert f"process {os.getpid()} on" in text
    frames = load(every_state)
    assert dict(frames.runs[["run", "state"]].to_numpy()) == TOLD
    with pytest.raises(record.CorruptRecordError, match="the run is failed, it has no arrays"):
        StoredRun(every_state / "failed").record()


def test_status_of_a_complete_sweep_and_of_none(tmp_path, capsys, monkeypatch):
    assert main([str(tmp_path)]) == 2
    assert "holds no sweep" in capsys.readouterr().err
    run_in(tmp_path / "a", "done")
    assert main([str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path / "a")
    assert main([".", "--all"]) == 0
    assert capsys.readouterr().out == "1 runs: 1 done\ndone  a\n1 runs: 1 done\n"


def test_a_lock_excludes_others_while_its_owner_lives(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    assert holder(run) is None
    owner = holding(run)
    assert owners(tmp_path) == [(owner, "")]
    with pytest.raises(HeldError, match=f"process {owner} on "), locked(run, 0):
        pass
    assert killed(owner)
    who, lives = holder(run)
    assert (who.startswith(f"process {owner} on "), lives) == (True, False)
    with locked(run, 0):
        assert owners(tmp_path) == [(os.getpid(), "")]
    assert not list(run.iterdir())


def test_no_two_processes_hold_a_lock_at_once_and_a_look_makes_none_give_up(tmp_path):
    number = tmp_path / "number"
    number.write_text("0")

    def look():
        while True:
            holder(tmp_path)

    def count():
        for _ in range(20):
            with locked(tmp_path, patience_s=60):
                number.write_text(str(int(number.read_text()) + 1))

    looking = in_child(look)
    try:
        assert [finished(racer) for racer in [in_child(count) for _ in range(4)]] == [0] * 4
        assert number.read_text() == "80"
        for _ in range(100):
            with locked(tmp_path):
                pass
    finally:
        assert killed(looking)


REFUSED = """
import fcntl, os
def refused(handle, operation):
    raise OSError({code}, os.strerror({code}))
fcntl.flock = refused
"""


@pytest.mark.full
def test_a_file_system_without_locks_is_refused_before_any_work(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(REFUSED.format(code=errno.EOPNOTSUPP))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (["-m", "seed=1,2"], []):
        done = ran(*command, *SMALL, cwd=tmp_path, env=env, code=2)
        line = done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        assert "file system without locks (flock: " in line
        assert "must be one with locks" in line
    assert not list(tmp_path.rglob("trials.parquet"))
    assert not list(tmp_path.rglob(LOCK_FILE))


def test_the_state_of_a_run_is_told_without_locks_too(tmp_path, monkeypatch):
    """A sweep on a node with locks is looked at from one that mounts the folder without."""

    def refused(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for name, state in (("done", "done"), ("begun", "missing")):
        run_in(tmp_path / name, state)
        (tmp_path / name / LOCK_FILE).touch()
    monkeypatch.setattr(fcntl, "flock", refused)
    current = record.states(tmp_path) | {"begun": record.run_state(tmp_path / "begun")}
    assert {name: state.state for name, state in current.items()} == {
        "done": "done",
        "begun": "running",
    }
    assert "cannot be known: file system without locks" in current["begun"].reason
    assert (tmp_path / "begun" / LOCK_FILE).exists()  # that of another


def test_a_line_on_a_sweep_may_be_made_while_a_thread_makes_another(tmp_path, monkeypatch):
    lines = []

    class Run(dict):
        def __getitem__(self, key):
            if self.pop("first", False):  # another run ends, and another line is made
                (tmp_path / "b" / RUN_FILE).touch()
                assert lines[0]().startswith("2 of 2 runs done")
            return super().__getitem__(key)

    monkeypatch.setattr(status, "doing", lambda line: nullcontext(lines.append(line)))
    monkeypatch.setattr(record, "read_run", lambda run: Run(state="done", first=run.name == "a"))
    for name in "ab":
        (tmp_path / name).mkdir()
    with status.progress(tmp_path, "ab", 0):
        (tmp_path / "a" / RUN_FILE).touch()
        assert lines[0]().startswith("1 of 2 runs done")
