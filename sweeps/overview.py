"""`python -m attnsvm.sweeps.overview`: every experiment at full size, and a page of all figures.

Existing records are not computed again, so a second call only draws.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnsvm.cli.help import experiments
from attnsvm.record import duration, write_atomically

from . import aggregate
from .report import write_report
from .report.page import render


def run_experiment(name: str, directory: Path, overrides: Sequence[str]) -> tuple[int, float]:
    """Run the sweep `name` into `directory`/name in its own process, with its log on the screen.

    Returns the exit code and the wall seconds.
    """
    command = [sys.executable, "-m", "attnsvm", f"sweep={name}"]
    command += [f"hydra.sweep.dir={directory / name}", *overrides]
    begin = time.perf_counter()
    code = subprocess.run(command, check=False).returncode
    return code, time.perf_counter() - begin


def _section(directory: Path, name: str, wall_s: float) -> dict[str, Any]:
    """Return the part of the page on one experiment; `warning` says what is missing."""
    section = {"name": name, "wall": duration(wall_s)}
    try:
        frames = aggregate.load(directory / name)
    except FileNotFoundError as error:
        empty = {"question": "", "pictures": (), "has_report": False}
        return section | empty | {"warning": str(error)}
    files = write_report(frames)
    missing = [frames.not_shown, *(f"Could not be drawn: {line}." for line in files.failed)]
    return section | {
        "question": frames.question, "pictures": files.pictures, "has_report": True,
        "warning": " ".join(missing).strip(),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments, write the page; return 1 if one is not complete: the page shows it."""
    parser = argparse.ArgumentParser(
        prog="python -m attnsvm.sweeps.overview",
        description="Run every experiment, draw all on one page.",
    )
    every, add = experiments(), parser.add_argument
    add("--directory", type=Path, default=Path("multirun"), help="folder of runs")
    add("--only", nargs="+", choices=every, metavar="NAME", help="these experiments only")
    add("overrides", nargs="*", help="for all of them, e.g. trials=20")
    chosen = parser.parse_args(argv)
    names = chosen.only or every
    ended = [run_experiment(name, chosen.directory, chosen.overrides) for name in names]
    codes, walls = zip(*ended, strict=True)
    sections = [_section(chosen.directory, *one) for one in zip(names, walls, strict=True)]
    chosen.directory.mkdir(parents=True, exist_ok=True)
    page = chosen.directory / "overview.html"
    html = render("overview.html", sections=sections, total=duration(sum(walls)))
    write_atomically(page, html.encode())
    for name, code, wall_s in zip(names, codes, walls, strict=True):
        state = "complete" if code == 0 else f"exit code {code}"
        sys.stdout.write(f"{name:24} {wall_s:7.1f} s  {state}\n")
    sys.stdout.write(f"overview {page}\n")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
