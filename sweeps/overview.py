"""`python -m attnsvm.sweeps.overview`: the figures of all experiments in `multirun` on one page."""

import sys
from pathlib import Path
from typing import Any

from attnsvm.cli.help import experiments
from attnsvm.record import write_atomically

from . import aggregate
from .report import write_report
from .report.page import render


def _section(directory: Path, name: str) -> dict[str, Any]:
    """Return the part of the page on one experiment; `warning` says what is missing."""
    try:
        frames = aggregate.read_sweep(directory / name)
    except FileNotFoundError as error:
        return {"name": name, "warning": str(error), "question": "", "files": None}
    files = write_report(frames)
    missing = [frames.not_shown, *(f"Could not be drawn: {line}." for line in files.failed)]
    warning = " ".join(filter(None, [*missing, files.kept]))
    return {"name": name, "warning": warning, "question": frames.question, "files": files}


def main(directory: Path = Path("multirun")) -> None:
    """Write the page of the experiments that are in a folder; it says which are not."""
    sections = [_section(directory, name) for name in experiments()]
    page = directory / "overview.html"
    kept = [
        section["warning"] for section in sections if section["files"] and section["files"].kept
    ]
    if kept and page.exists():
        sys.exit("\n".join([*kept, f"{page}: stays"]))
    write_atomically(page, render("overview.html", sections=sections).encode())
    sys.stdout.write(f"overview {page}\n")


if __name__ == "__main__":
    main()
