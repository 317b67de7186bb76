"""A lock is held by one process at a time, and released when its owner ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from attnsvm.config.identity import run_name
from attnsvm.record import CorruptRecordError, run_state
from attnsvm.record.lock import LOCK_FILE, HeldError, NoLocksError, holder, locked
from tests.command import SMALL, attnsvm
from tests.faults import configs, in_child, owners, sweep

HOLD = """
import sys, time
from pathlib import Path
from attnsvm.record.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

COUNT = """
import sys
from pathlib import Path
from attnsvm.record.lock import locked
folder = Path(sys.argv[1])
for _ in range(20):
    with locked(folder, patience_s=60):
        number = folder / "number"
        number.write_text(str(int(number.read_text()) + 1))
"""


def process(code, folder):
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)


def test_a_lock_excludes_others_while_its_owner_lives(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    assert holder(run) is None
    owner = process(HOLD, run)
    assert owner.stdout.readline() == b"held\n"
    assert owners(tmp_path) == [(owner.pid, "")]
    with pytest.raises(HeldError, match=f"process {owner.pid} on "), locked(run, 0):
        pass
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    who, lives = holder(run)
    assert who.startswith(f"process {owner.pid} on ")
    assert not lives
    with locked(run, 0):
        assert owners(tmp_path) == [(os.getpid(), "")]
    assert not list(run.iterdir())


def test_no_two_processes_hold_a_lock_at_once(tmp_path):
    (tmp_path / "number").write_text("0")
    racers = [process(COUNT, tmp_path) for _ in range(4)]
    for racer in racers:
        assert racer.wait(60) == 0
        racer.stdout.close()
    assert (tmp_path / "number").read_text() == "80"


def test_a_look_does_not_make_an_owner_give_up(tmp_path):
    looking = os.fork()
    if not looking:
        while True:
            holder(tmp_path)
    try:
        for _ in range(100):
            with locked(tmp_path):
                pass
    finally:
        os.kill(looking, signal.SIGKILL)
        os.waitpid(looking, 0)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "outside").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / LOCK_FILE).symlink_to(tmp_path / "outside")
    with pytest.raises(CorruptRecordError, match="is a link; must be a file"), locked(folder):
        pass
    assert (tmp_path / "outside").read_text() == "mine"
    with pytest.raises(CorruptRecordError, match="is a link; must be a file"):
        holder(folder)
    assert run_state(folder).state == "corrupt"


# --- a file system without locks ------------------------------------------------------------------

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
        done = attnsvm(*command, *SMALL, cwd=tmp_path, env=env)
        assert done.returncode == 2
        line = done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        assert "file system without locks (flock: " in line
        assert "must be one with locks" in line
    assert not list(tmp_path.rglob("trials.parquet"))
    assert not list(tmp_path.rglob(LOCK_FILE))


def test_the_state_of_a_run_is_told_without_locks_too(tmp_path):
    """A sweep on a node with locks is looked at from one that mounts the folder without."""
    cells = configs(2)
    assert os.waitpid(in_child(lambda: sweep(tmp_path, cells)), 0)[1] == 0
    begun = tmp_path / run_name(cells[1])
    (begun / "run.json").unlink()
    (begun / LOCK_FILE).touch()
    (tmp_path / "sitecustomize.py").write_text(REFUSED.format(code=errno.ENOLCK))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = attnsvm(str(tmp_path), cwd=tmp_path, command="attnsvm-status", env=env)
    assert done.returncode == 1
    told, summary = done.stdout.splitlines()
    assert "whether it still runs cannot be known: file system without locks" in told
    assert summary == "2 runs: 1 done, 1 running"
    assert "1970" not in done.stdout


def test_no_lock_file_is_left_where_there_are_no_locks(tmp_path, monkeypatch):
    def refused(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(NoLocksError, match="No locks available"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    (tmp_path / LOCK_FILE).write_text("of another")
    with pytest.raises(NoLocksError), locked(tmp_path):
        pass
    assert (tmp_path / LOCK_FILE).read_text() == "of another"
