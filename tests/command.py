"""Run the installed commands as a user does: another process, another directory."""

import atexit
import ctypes
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import patch

BIN = Path(sys.executable).parent


Finished = subprocess.CompletedProcess[str]


def environment(of: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which commands are run, made from `of` (this process's)."""
    variables = {**(of or os.environ), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    variables.pop("HYDRA_FULL_ERROR", None)
    return variables


SERVER = multiprocessing.get_context("forkserver")
"""Forks processes that have imported the packages: a command then starts in a tenth of a second."""
SERVER.set_forkserver_preload(
    [
        "attnsvm.cli.job",
        "attnsvm.experiment.stages",
        "attnsvm.verify.run",
        "pyarrow.parquet",
        "attnsvm.sweeps.report.page",
        "attnsvm.sweeps.figures.adhoc",
        "hydra_plugins.attnsvm_sweeper.sweeper",
        "matplotlib.backends.backend_pdf",
    ]
)


def attnsvm(
    *arguments: str,
    cwd: Path | None = None,
    command: str = "attnsvm",
    env: dict[str, str] | None = None,
    path: Path | None = None,
) -> Finished:
    """Return the finished process of `command arguments` in `cwd` (the current folder).

    With an environment `env` or workers of its own it is a new process, otherwise one of `SERVER`,
    and finds the packages in `path`.
    """
    words, variables = [str(BIN / command), *arguments], environment(env)
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    if env is not None or any(word.startswith("hydra/launcher=") for word in arguments):
        return subprocess.run(
            words, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
    server_environment = patch.dict(os.environ, environment(), clear=True)  # it starts with it
    with tempfile.TemporaryDirectory() as place, server_environment:
        written = [Path(place) / name for name in ("stdout", "stderr")]
        child = SERVER.Process(target=_run, args=(words, cwd or Path.cwd(), written, variables))
        child.start()
        child.join(300)
        if child.is_alive():
            child.kill()
            raise subprocess.TimeoutExpired(words, 300)
        stdout, stderr = (path.read_text() for path in written)
        return Finished(words, child.exitcode or 0, stdout, stderr)


def ran(*arguments: str, code: int = 0, **options: Any) -> Finished:
    """Return the finished process of `attnsvm(*arguments, **given)`, which ended with this code."""
    done = attnsvm(*arguments, **options)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def _run(words: list[str], cwd: Path, written: list[Path], env: dict[str, str]) -> None:
    for number, path in enumerate(written, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    # without the rights of root, which may read any file: version 3, of this process, none
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = words
    (script,) = entry_points(group="console_scripts", name=Path(words[0]).name)
    try:
        sys.exit(script.load()())
    finally:
        atexit._run_exitfuncs()  # processes of multiprocessing end without


def begun(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Return the process `attnsvm arguments`, which runs on and talks to DRIVER_LOG."""
    with DRIVER_LOG.open("ab") as log:
        return subprocess.Popen(
            [str(BIN / "attnsvm"), *arguments],
            env=environment(env),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def with_callback(*lines: str) -> str:
    """Write a callback of Hydra that runs `lines` after each job; return its override.

    The command must have the path `.`. The lines see the `config` of the job and `job_return`.
    """
    body = "\n        ".join(lines)
    Path("mine.py").write_text(
        "from hydra.experimental.callback import Callback\n\nclass Mine(Callback):\n"
        f"    def on_job_end(self, config, job_return, **kwargs):\n        {body}\n"
    )
    return "+hydra.callbacks.mine._target_=mine.Mine"


def until(holds: Callable[[], object], seconds: float = 120, what: str = "it") -> None:
    """Wait until `holds()`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.05)


LATEST, DRIVER_LOG = Path("multirun/latest"), Path("driver.log")
QUIET = ("hydra/job_logging=quiet", "hydra/hydra_logging=quiet")
SMALL = ("trials=3", "data.n=3", "data.T=3", "data.d=4", "optimizer.steps=50")
