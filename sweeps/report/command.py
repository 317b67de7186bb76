"""`attnsvm-report DIR`: tables, figures and one HTML page from the records of a sweep.

With `--x` and `--y` it draws one chart instead: any column against any other. With `--where` alone
it prints what came out of the cells with these values.

Incomplete or damaged sweeps are drawn from the records that exist; the page, the terminal and the
exit code show what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.config import ConfigError
from attnsvm.config.plugins import use_extensions
from attnsvm.config.words import rows
from attnsvm.display.pace import speaking
from attnsvm.record import one_line, shortened
from attnsvm.record.plan import or_latest

from .write import ReportFiles, write_report

if TYPE_CHECKING:
    from ..loaded import LoadedSweep


@speaking()
def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of the sweep in a folder.

    Returns 0 if every run has a record, 1 if some are missing, failed or corrupt (the report is
    written from the others) or a figure could not be drawn, 2 if no report could be written.
    """
    options = _parser().parse_args(argv)
    directory = or_latest(options.directory)
    others, paper = ("directory", "config_dir", "extension", "style"), options.style == "paper"
    parts = {name: value for name, value in vars(options).items() if name not in others and value}
    try:
        use_extensions(options.extension)
        if set(parts) - {"where"} and not {"x", "y"} <= set(parts):
            raise ConfigError("a chart must have --x and --y")
        from .. import aggregate  # import takes a second: not needed for --help

        frames = aggregate.read_sweep(directory)
    except (ValueError, FileNotFoundError) as error:
        return _refuse(str(error))
    if frames.runs.empty:
        return _refuse(f"{directory}: holds no record of a run; must be the folder of a sweep")
    if parts:
        if "x" not in parts:
            return _print_cells(frames, parts)
        return _chart(frames, parts, paper, options.config_dir)
    try:
        files = write_report(frames, options.config_dir, paper)
    except OSError as error:
        return _refuse(f"{directory}: the report cannot be written ({shortened(error)})")
    _print_summary(frames, files)
    return int(len(frames.unfinished) > 0 or len(files.failed) > 0 or files.kept != "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnsvm-report",
        description="Tables, figures and an HTML report from the records of a sweep; with --x and "
        "--y one chart of any column against any other.",
        epilog="Columns: attnsvm --columns. Fields of the config: attnsvm --help.",
    )
    add = parser.add_argument
    add("directory", type=Path, nargs="?", help="folder of a sweep, by default multirun/latest")
    more: dict[str, Any] = {"action": "append", "default": []}
    add(
        "--config-dir",
        metavar="DIR",
        type=Path,
        **more,
        help="folder of your own sweeps: DIR/sweep/NAME.py draws the sweep NAME",
    )
    add(
        "--extension",
        metavar="PACKAGE",
        **more,
        help="a package with figures that is not installed with entry points",
    )
    add(
        "--style",
        choices=("page", "paper"),
        default="page",
        help="page (default): all of it; paper: each figure as a PDF, 8.5 or 17 cm wide, and its "
        "caption and counts as a text",
    )
    chart = parser.add_argument_group(
        "a chart", "written to DIR/figures and DIR/tables"
    ).add_argument
    for row in rows(Path(__file__).with_name("chart.csv")):
        chart(row["option"], metavar=row["metavar"], help=row["help"].replace("%", "%%"))
    chart("--points", action="store_true", help="every instance too, as a point, jittered along x")
    chart(
        "--where",
        metavar="COLUMN=VALUE",
        action="append",
        help="only this value; repeatable; without --x its result is printed",
    )
    return parser


def _print_cells(frames: LoadedSweep, parts: dict[str, Any]) -> int:
    """Print the result of the cells with the values `where`, and where their instances end."""
    from ..chart import ChartError
    from ..conclusion import result
    from ..figures import figure_module

    try:
        few = frames.chosen(_values(parts))
    except ChartError as error:
        return _refuse(str(error))
    lines = result(few)
    if reached := getattr(figure_module(few.name), "reached", None):
        lines += reached(few).dropna(axis=1, how="all").to_string(index=False).splitlines()
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in [*lines, frames.not_shown] if line))
    return 1 if len(frames.unfinished) else 0


def _values(parts: dict[str, Any]) -> dict[str, str]:
    """Return column and value of each word of `--where`."""
    return dict(word.partition("=")[::2] for word in parts.pop("where", ()))


def _chart(frames: LoadedSweep, parts: dict[str, Any], paper: bool, folders: Sequence[Path]) -> int:
    """Write a chart: figures, its table and its counts, and the report that begins with it."""
    from ..chart import ChartError
    from .write import write_chart

    parts["where"] = _values(parts)
    try:
        chart, paths = write_chart(frames, parts, paper, folders)
    except (ChartError, FileExistsError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{frames.directory}: the chart cannot be written ({shortened(error)})")
    for line in (*chart.notes, *map(str, paths)):
        sys.stdout.write(f"{one_line(line)}\n")
    return 1 if len(frames.unfinished) else 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"attnsvm-report: {one_line(message)}\n")
    return 2


def _print_summary(frames: LoadedSweep, files: ReportFiles) -> None:
    from ..conclusion import conclusion

    lines = [*conclusion(frames), *filter(None, [frames.versions, frames.duplicates])]
    lines += [f"{row.state}: {row.run}: {row.reason}" for row in frames.incomplete.itertuples()]
    lines += [f"not drawn: {failure}" for failure in files.failed]
    lines += frames.next
    if files.kept:
        lines.append(files.kept)
    elif files.html:
        lines.append(f"report: {files.html}, figures and tables beside it")
    else:
        lines.append(f"figures of a paper, with captions: {frames.directory / 'figures'}")
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))
