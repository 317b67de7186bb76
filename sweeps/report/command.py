"""`attnsvm-report DIR`: tables, figures and one HTML page from the records of a sweep.

Incomplete or damaged sweeps are drawn from the records that exist; the page, the terminal and the
exit code show what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnsvm.record import one_line
from sweeps.report.write import ReportFiles, write_report

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of the sweep in a folder.

    Returns
    -------
    int
        0 if every run has a record, 1 if some are missing, failed or corrupt (the report is
        written from the others) or a figure could not be drawn, 2 if no report could be written.
    """
    parser = argparse.ArgumentParser(
        prog="attnsvm-report",
        description="Tables, figures and an HTML report from the records of a sweep.",
    )
    parser.add_argument("directory", type=Path, help="folder of a sweep, e.g. multirun/rank_vs_d")
    directory = parser.parse_args(argv).directory
    if not directory.is_dir():
        return _refuse(f"{directory}: no such folder; give the folder of a sweep")
    from sweeps import aggregate  # import takes a second: not needed for --help

    try:
        frames = aggregate.load(directory)
    except (ValueError, FileNotFoundError) as error:
        return _refuse(str(error))
    if frames.runs.empty:
        return _refuse(f"{directory}: holds no record of a run; give the folder of a sweep")
    try:
        files = write_report(frames)
    except OSError as error:
        return _refuse(f"{directory}: the report cannot be written ({error})")
    _print_summary(frames, files)
    return int(len(frames.incomplete) > 0 or len(files.failed) > 0)


def _refuse(message: str) -> int:
    sys.stderr.write(f"attnsvm-report: {one_line(message)}\n")
    return 2


def _print_summary(frames: SweepFrames, files: ReportFiles) -> None:
    from sweeps.report.page import repeated

    statuses = frames.statuses
    counted = ", ".join(f"{n} {status}" for status, n in statuses.items())
    lines = [f"{sum(statuses.values())} instances: {counted}" if counted else "no instance known"]
    lines += [repeated(frames)] if frames.repeated else []
    lines += [f"{row.state}: {row.run}: {row.reason}" for row in frames.incomplete.itertuples()]
    lines += [f"not drawn: {failure}" for failure in files.failed]
    if files.figures:
        lines.append(f"figures  {files.figures[0].parent}")
    if files.tables:
        lines.append(f"tables   {files.tables[0].parent}")
    lines.append(f"report   {files.html}")
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))
