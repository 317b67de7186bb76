"""Compiled code is cached on disk; a cache that is damaged or out of reach costs its time only."""

import errno
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest
from numba import config

from attnsvm.linalg import jit


def doubled(x):
    return 2 * x


def in_a_new_process():
    """Return the function as another process has it: not compiled yet."""
    copy = FunctionType(doubled.__code__, globals(), "doubled")
    copy.__module__ = __name__
    return jit.compiled("test", "7 s")(copy)


def assert_compiled(times, *arguments, function=None):
    """Check the values of a function, in a new process by default, and how often it is compiled."""
    function = function or in_a_new_process()
    assert [function(x) for x in arguments] == [2 * x for x in arguments]
    assert sum(function.stats.cache_misses.values()) == times
    return function


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of the cache, with the code of `doubled(21)`."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return Path(assert_compiled(1, 21).stats.cache_path)


def test_code_is_compiled_and_announced_once_for_each_signature(folder, caplog):
    assert_compiled(1, 21, 0.5)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["compiling the test for this processor: once, about 7 s"]
    assert_compiled(0, 21, 0.5)
    assert len(caplog.records) == 1


DAMAGES = {
    "half": lambda content: content[: len(content) // 2],
    "a bit": lambda content: content[:-99] + b"\xff" + content[-98:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_compiled_again_once(damage, folder):
    (path,) = folder.glob("*.code")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert_compiled(1, 21)
    assert_compiled(0, 21)


@pytest.mark.parametrize("name", ["read_bytes", "write_bytes", "replace"])
def test_code_that_cannot_be_read_or_written_is_used_without_a_cache(name, folder, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    for path in folder.glob("*.code"):
        path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(Path, name, fail)
        assert_compiled(1, 21)
        assert_compiled(1, 21)
    assert_compiled(1, 21)
    assert_compiled(0, 21)


def test_the_folder_may_go_after_the_import(folder):
    function = in_a_new_process()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file")
    assert_compiled(1, 21, function=function)


def test_code_of_another_numba_or_with_other_constants_is_not_used(folder, monkeypatch):
    monkeypatch.setitem(globals(), "CONSTANT", 1.5)
    assert_compiled(1, 21)
    monkeypatch.setattr(jit.numba, "__version__", "0.0")
    assert_compiled(1, 21)


PROCESS = """
import sys, time
from pathlib import Path
from attnsvm.linalg import jit
double = jit.compiled("double", "1 s")(lambda x: 2 * x)
Path(sys.argv[1]).touch()
while len(list(Path().glob("ready*"))) < int(sys.argv[2]):
    time.sleep(0.01)
print(double(21), sum(double.stats.cache_misses.values()))
"""


@pytest.mark.full
def test_of_two_processes_one_compiles_and_the_other_waits(tmp_path):
    (tmp_path / "double.py").write_text(PROCESS)
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "double.py", name, "2"] for name in ("ready1", "ready2")]
    both = [subprocess.Popen(command, **options) for command in commands]
    assert sorted(process.communicate()[0] for process in both) == ["42 0\n", "42 1\n"]
