"""The revision of the code is that of git."""

import subprocess
from shutil import which

import pytest

from attnsvm.record import provenance


def test_the_revision_is_the_commit_or_none(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    which("git") or pytest.skip("git is not installed")
    revision = provenance.git_revision.__wrapped__  # a process reads it once
    (inside := tmp_path / "package").mkdir()
    assert revision(inside) is None
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "first", "--no-gpg-sign")
    assert revision(inside) == git("rev-parse", "HEAD").strip()
    monkeypatch.setenv("PATH", str(inside))
    assert revision(inside) is None  # git is not installed
