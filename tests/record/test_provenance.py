"""The revision of the code is that of git."""

import os
import subprocess

import pytest

from attnsvm.record import provenance

git_revision = provenance.git_revision.__wrapped__  # what is asked once a process


def git(folder, *words):
    env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    asked = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    pytest.importorskip("shutil").which("git") or pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "file").write_text("text")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def test_the_revision_is_the_commit(repository):
    assert git_revision(repository / "package") == git(repository, "rev-parse", "HEAD")


def test_what_is_no_commit_is_none(repository, monkeypatch):
    assert git_revision(repository.parent) is None  # outside of git
    monkeypatch.setenv("PATH", str(repository))
    assert git_revision(repository) is None
    monkeypatch.undo()
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/unborn")
    assert git_revision(repository) is None
