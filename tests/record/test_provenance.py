"""The revision of the code is that of git."""

import os
import subprocess
from pathlib import Path

import pytest

from attnsvm.record import provenance


def git(folder: Path, *words: str) -> str:
    env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_the_revision_is_the_commit_or_none(tmp_path, monkeypatch):
    pytest.importorskip("shutil").which("git") or pytest.skip("git is not installed")
    revision = provenance.git_revision.__wrapped__  # a process reads it once
    (inside := tmp_path / "repository/package").mkdir(parents=True)
    assert revision(inside) is None
    git(inside.parent, "init", "--quiet")
    assert revision(inside) is None  # nothing is committed
    git(inside.parent, "commit", "--quiet", "--allow-empty", "-m", "first")
    assert revision(inside) == git(inside, "rev-parse", "HEAD").strip()
    monkeypatch.setenv("PATH", str(inside))
    assert revision(inside) is None  # git is not installed
