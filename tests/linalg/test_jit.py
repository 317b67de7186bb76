"""Compiled code is cached on disk; a cache that is damaged or out of reach costs its time only."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest
from numba import config

from attnsvm.linalg import jit

FULL = pytest.mark.full


def doubled(x):
    return 2 * x


def in_a_new_process():
    """Return the function as another process has it: not compiled yet."""
    copy = FunctionType(doubled.__code__, globals(), "doubled")
    copy.__module__ = __name__
    return jit.compiled()(copy)


def compilations(function) -> int:
    return sum(function.stats.cache_misses.values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of the cache, with the code of `doubled(21)`."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    first = in_a_new_process()
    assert first(21) == 42
    assert compilations(first) == 1
    return Path(first.stats.cache_path)


def test_code_is_compiled_once_for_each_signature(folder):
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 0)
    assert (again(0.5), compilations(again)) == (1.0, 1)
    again = in_a_new_process()
    assert (again(21), again(0.5), compilations(again)) == (42, 1.0, 0)


def of_another_signature(path, content):
    """Put the code of doubled(0.5) in the place of that of doubled(21)."""
    in_a_new_process()(0.5)
    (other,) = (one for one in path.parent.glob("*.code") if one != path)
    path.write_bytes(other.read_bytes()[:-1])


DAMAGES = {
    "empty": lambda path, content: path.write_bytes(b""),
    "part of the digest": lambda path, content: path.write_bytes(content[:20]),
    "digest alone": lambda path, content: path.write_bytes(content[:32]),
    "first byte of the code": lambda path, content: path.write_bytes(content[:33]),
    "half": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "all but a byte": lambda path, content: path.write_bytes(content[:-1]),
    "a byte more": lambda path, content: path.write_bytes(content + b"\0"),
    "a bit": lambda path, content: path.write_bytes(content[:-99] + b"\xff" + content[-98:]),
    "zeros": lambda path, content: path.write_bytes(bytes(len(content))),
    "garbage": lambda path, content: path.write_bytes(os.urandom(len(content))),
    "another signature": of_another_signature,
    "a link to nothing": lambda path, content: (path.unlink(), path.symlink_to("nowhere")),
    "removed": lambda path, content: path.unlink(),
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(name, marks=[FULL] * (name not in ("empty", "half", "a bit")))
        for name in DAMAGES
    ],
)
def test_damaged_code_is_compiled_again_once(damage, folder):
    (path,) = folder.glob("*.code")
    DAMAGES[damage](path, path.read_bytes())
    for expected in (1, 0):
        again = in_a_new_process()
        assert (again(21), compilations(again)) == (42, expected)


@pytest.mark.parametrize(
    "kind", ["code", pytest.param("lock", marks=FULL), pytest.param("tmp", marks=FULL)]
)
def test_a_folder_in_the_place_of_a_file_is_no_error(kind, folder):
    (path,) = folder.glob("*.code")
    (folder / f"{path.stem.rpartition('.')[0]}.lock").unlink()
    path.unlink()
    place = {"code": path, "lock": path.with_suffix("").with_suffix(".lock")}
    place.get(kind, path.with_suffix(".tmp")).mkdir()
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, pytest.param(errno.EROFS, marks=FULL)])
def test_code_that_cannot_be_written_is_used_without_a_cache(number, folder, monkeypatch, caplog):
    def fail(*given, **options):
        raise OSError(number, os.strerror(number))

    for path in folder.glob("*.code"):
        path.unlink()
    for name in ("write_bytes", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, name, fail)
            again = in_a_new_process()
            assert (again(21), compilations(again)) == (42, 1)
        assert "not kept for the next command" in caplog.text
        assert not [*folder.glob("*.code")]
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 1)
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 0)


def test_code_that_cannot_be_read_is_compiled(folder, monkeypatch):
    def fail(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", fail)
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 1)


def test_the_folder_may_go_after_the_import(folder):
    again = in_a_new_process()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file")
    assert again(21) == 42


def test_code_of_another_processor_or_numba_is_not_used(folder, monkeypatch):
    monkeypatch.setattr(jit.numba, "__version__", "0.0")
    again = in_a_new_process()
    assert (again(21), compilations(again)) == (42, 1)


IN_A_PROCESS = """
from attnsvm.linalg import jit
double = jit.compiled()(lambda x: 2 * x)
print(double(21), sum(double.stats.cache_misses.values()))
"""


@FULL
@pytest.mark.parametrize(
    "changed",
    [
        {"NUMBA_CACHE_DIR": "/dev/null"},
        {"NUMBA_CACHE_DIR": "/proc/nowhere"},
        {"NUMBA_CACHE_DIR": "x" * 300},
        {"NUMBA_CACHE_DIR": "", "HOME": "/proc/nowhere", "XDG_CACHE_HOME": ""},
        {"NUMBA_CACHE_DIR": "", "HOME": None},
    ],
)
def test_a_bad_place_of_the_cache_is_no_error(changed, tmp_path):
    (tmp_path / "double.py").write_text(IN_A_PROCESS)
    environment = {**os.environ, **changed}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "double.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout[:3]) == (0, "42 "), done.stderr


ONE_OF_TWO = """
import sys, time
from pathlib import Path
from attnsvm.linalg import jit
double = jit.compiled()(lambda x: 2 * x)
Path(sys.argv[1]).touch()
while len(list(Path().glob("ready*"))) < 2:
    time.sleep(0.01)
print(double(21), sum(double.stats.cache_misses.values()))
"""


@FULL
def test_of_two_processes_one_compiles_and_the_other_waits(tmp_path):
    (tmp_path / "one.py").write_text(ONE_OF_TWO)
    command = sys.executable, "one.py"
    both = [
        subprocess.Popen((*command, name), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for name in ("ready1", "ready2")
    ]
    assert sorted(process.communicate()[0] for process in both) == ["42 0\n", "42 1\n"]
