"""The command line as a user types it: `attnsvm --help`."""

import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks._measure import OURS, Program, Work


def programs(*words: str) -> dict[str, Program]:
    command = [str(Path(sys.executable).with_name("attnsvm")), *words]
    run = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
    return {OURS: Program(run)}


WORKS = [Work("attnsvm", "command", ("--help",), programs, cores=None)]
