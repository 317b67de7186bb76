"""The files of a report: figures, their tables and the HTML page."""

from __future__ import annotations

import errno
import glob
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.display.pace import doing
from attnsvm.record import CorruptRecordError, kind_of, one_line, write_atomically
from attnsvm.record.files import open_regular

if TYPE_CHECKING:  # pandas and matplotlib take a second to import: not for `--help`
    import pandas as pd

    from ..chart import Chart
    from ..figures import Drawing
    from ..loaded import LoadedSweep
    from .page import Picture


@dataclass(frozen=True)
class ReportFiles:
    """Paths of a report's files, the pictures that its page shows, and what could not be drawn.

    `failed` has a line for each figure or set of tables that ended in an error: its name and why.
    Figures for a paper have no page. If `kept` is not "", it says why an earlier report stays, and
    nothing was written.
    """

    html: Path | None
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    pictures: tuple[Picture, ...]
    failed: tuple[str, ...] = ()
    kept: str = ""


def write_report(
    frames: LoadedSweep, folders: Sequence[Path] = (), paper: bool = False, **evidence: Any
) -> ReportFiles:
    """Write figures, their tables and the HTML page into the sweep's folder.

    Every file is replaced atomically: DIR/figures/NAME.png and .pdf (.gif if animated),
    DIR/tables/NAME.csv and DIR/report.html. Figures are 8.5 or 17 cm wide. For a paper: only
    NAME.pdf, and NAME.txt with caption and counts. A figure that cannot be drawn costs no other.
    `folders` are those of the user's own config files, as for `figure_module`; `evidence` is what
    the page of an export says besides. A report of more instances is not replaced where records
    cannot be read now, or none has any. OSError: the folder cannot be written.
    """
    from ..figures import figure_module
    from .page import report_page

    page = frames.directory / "report.html"
    if kept := _kept(frames, page):
        return ReportFiles(page, (), (), (), kept=kept)
    failed: list[str] = []
    tables: dict[str, pd.DataFrame] = {}
    pictures: list[Picture] = []
    if len(frames.rows):
        with doing("tables"), _noting("tables", failed):
            module = figure_module(frames.name, folders)
            tables = module.tables(frames)
    csvs = () if paper else _write_tables(frames.directory, tables)
    if tables:
        pictures = _pictures(module, tables, frames, failed, paper)
    images = {f"{p.name}.{kind}": data for p in pictures for kind, data in p.files.items()}
    figures = _write_into(frames.directory / "figures", images)
    if paper:
        return ReportFiles(None, figures, csvs, tuple(pictures), tuple(failed))
    _remove_other_pages(figures)
    write_atomically(page, report_page(frames, pictures, tables, failed, **evidence).encode())
    return ReportFiles(page, figures, csvs, tuple(pictures), tuple(failed))


MAX_PAGE_BYTES = 2**31
"""Largest report that is read, in bytes."""


def _kept(frames: LoadedSweep, page: Path) -> str:
    """Return why the report at `page` is not to be replaced by one of fewer instances, or ""."""
    try:
        with open_regular(page, MAX_PAGE_BYTES) as stream:
            stated = re.search(rb'<meta name="attnsvm-instances" content="(\d+)">', stream.read())
    except (OSError, CorruptRecordError):
        return ""
    earlier, now = int(stated[1]) if stated else 1, len(frames.rows)
    if now < earlier and (frames.hidden or not now):
        shows = f"it shows {earlier} instances" if stated else "it shows instances"
        return f"{page}: stays, {shows}, and there are {now} now; remove it for one of these"
    return ""


def _words(caption: str, notes: Sequence[str]) -> bytes:
    """Return the text that stands beside a figure."""
    return "\n\n".join([caption, *notes, ""]).encode()


def write_chart(directory: Path, chart: Chart, paper: bool = False) -> tuple[Path, ...]:
    """Write PNG, PDF, caption and tables of a chart into a sweep's folder; return their paths.

    For a paper: without the PNG. OSError: the folder cannot be written.
    """
    from .. import style

    with style.paper():
        figure = chart.figure()
        files = {} if paper else {f"{chart.name}.png": style.png(figure)}
        files[f"{chart.name}.pdf"] = style.pdf(figure)
        files[f"{chart.name}.txt"] = _words(chart.caption, chart.notes)
    tables = {chart.name: chart.table, f"{chart.name}_counts": chart.counts}
    return _write_into(directory / "figures", files) + _write_tables(directory, tables)


def _remove_other_pages(written: Iterable[Path]) -> None:
    """Remove NAME_k of an earlier report that had more pages of a figure NAME."""
    kept = set(written)
    for folder, name in {(path.parent, re.sub(r"_\d+$", "", path.stem)) for path in kept}:
        for path in folder.glob(f"{glob.escape(name)}*"):
            page = re.fullmatch(rf"{re.escape(name)}(_\d+)?\.(png|pdf|gif|txt)", path.name)
            if page and path not in kept:
                path.unlink()


def _pictures(
    module: Any,
    tables: dict[str, pd.DataFrame],
    frames: LoadedSweep,
    failed: list[str],
    paper: bool,
) -> list[Picture]:
    """Return the pictures of the sweep; add a line to `failed` for each that cannot be drawn."""
    from .. import style

    pictures: list[Picture] = []
    remarks = [frames.not_shown, frames.versions]
    with doing("figures"), style.paper(), _noting("figures", failed):
        for drawing in module.draw(tables, frames.cells, remarks):
            before = len(failed)
            with doing(drawing.name), _noting(drawing.name, failed):
                pictures.append(_picture(drawing, paper))
            for path in frames.directory.glob(f"figures/{drawing.name}.*"):
                if len(failed) > before:
                    path.unlink()  # of an earlier report: it does not show these tables
    return pictures


def _picture(drawing: Drawing, paper: bool) -> Picture:
    from .. import style
    from .page import Picture

    files = {} if paper else {"png": style.png(drawing.figure)}
    files["pdf"] = style.pdf(drawing.figure)
    if paper:
        files["txt"] = _words(drawing.caption, drawing.notes)
    elif drawing.frames:
        files["gif"] = style.gif(drawing.frames)
    return Picture(drawing.name, drawing.caption, files, drawing.notes)


@contextmanager
def _noting(name: str, failed: list[str]) -> Iterator[None]:
    """In the block an error becomes a line of `failed`: what failed, why and where."""
    try:
        yield
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = one_line(f"{type(error).__name__}: {error}")
        failed.append(f"{name}: {reason} ({Path(place.filename).name}:{place.lineno})")


def _write_tables(directory: Path, tables: dict[str, pd.DataFrame]) -> tuple[Path, ...]:
    csvs = {f"{name}.csv": table.to_csv(index=False).encode() for name, table in tables.items()}
    return _write_into(directory / "tables", csvs)


def _write_into(folder: Path, files: dict[str, bytes]) -> tuple[Path, ...]:
    if (kind := kind_of(folder)) not in ("a folder", "nothing"):
        raise NotADirectoryError(errno.ENOTDIR, f"is {kind}; must be a folder", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return tuple(folder / name for name in files)
