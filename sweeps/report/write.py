"""The files of a report: figures, their tables and the HTML page."""

from __future__ import annotations

import errno
import glob
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.display.pace import doing
from attnsvm.record import (
    CorruptRecordError,
    kind_of,
    one_line,
    read_json,
    write_atomically,
    write_json,
)
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

    Every file is replaced atomically: DIR/figures/NAME.png and .pdf (.gif if animated), NAME.txt
    with caption and counts, DIR/tables/NAME.csv and DIR/report.html, which begins with the charts
    that were asked for (`write_chart`). Figures are 8.5 or 17 cm wide. For a paper: only NAME.pdf
    and NAME.txt. A figure that cannot be drawn costs no other.
    `folders` are those of the user's own config files, as for `figure_module`; `evidence` is what
    the page of an export says besides. A report of more instances is not replaced where records
    cannot be read now, or none has any. OSError: the folder cannot be written.
    """
    from .. import style
    from ..figures import figure_module
    from ..search import search_of
    from .page import report_page

    directory, page = frames.directory, frames.directory / "report.html"
    if kept := _kept(frames, page):
        return ReportFiles(page, (), (), (), kept=kept)
    failed: list[str] = []
    tables: dict[str, pd.DataFrame] = {}
    charts: list[Chart] = []
    drawings: list[Drawing] = []
    pictures: list[Picture] = []
    with style.paper():
        if len(frames.rows):
            with doing("tables"), _noting("tables", failed):
                module = figure_module(frames.name, folders)
                tables |= module.tables(frames)
                if search := search_of(frames):
                    tables |= {"search": search.table}
                    drawings += search.drawings
            charts = [] if paper else _charts(frames, failed)
            drawings = [*map(_drawing, charts), *drawings]
        if tables:
            with doing("figures"), _noting("figures", failed):
                drawings += module.draw(tables, frames.cells, [frames.not_shown, frames.versions])
        for drawing in drawings:
            before = len(failed)
            with doing(drawing.name), _noting(drawing.name, failed):
                pictures.append(_picture(drawing, paper))
            old = directory.glob(f"figures/{glob.escape(drawing.name)}.*")
            for path in old if len(failed) > before else ():
                path.unlink()  # of an earlier report: it does not show these tables
    of_charts = {name: table for chart in charts for name, table in _tables(chart).items()}
    figures, csvs = _write(directory, pictures, {} if paper else of_charts | tables)
    if not paper:
        _remove_other_pages(figures)
        write_atomically(page, report_page(frames, pictures, tables, failed, **evidence).encode())
    return ReportFiles(None if paper else page, figures, csvs, tuple(pictures), tuple(failed))


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


CHARTS = "charts.json"
"""File of a sweep's folder with the charts that were asked for, the latest first."""


def asked(directory: Path) -> list[dict[str, Any]]:
    """Return the arguments of the charts that were asked for in a folder, without damaged ones."""
    try:
        charts = read_json(directory / CHARTS)["charts"]
        return [parts for parts in charts if isinstance(parts, dict)]
    except (OSError, CorruptRecordError, KeyError, TypeError):
        return []


def write_chart(
    frames: LoadedSweep,
    parts: Mapping[str, Any],
    paper: bool = False,
    folders: Sequence[Path] = (),
) -> tuple[Chart, tuple[Path, ...]]:
    """Write a chart and its tables into a sweep's folder; the report then begins with it.

    Returns the chart and the paths of its files. For a paper: the chart only. `folders` are those
    of `write_report`. ChartError: it cannot be drawn. OSError: the folder cannot be written, or a
    chart of more records stays.
    """
    from .. import style
    from .page import FIGURES, with_picture

    directory, chart = frames.directory, frames.chart(**parts)
    if frames.hidden and (earlier := directory / "tables" / f"{chart.name}.csv").exists():
        raise FileExistsError(f"{earlier}: stays, as is its figure. {frames.not_shown}")
    with style.paper():
        picture = _picture(_drawing(chart), paper)
    figures, csvs = _write(directory, [picture], _tables(chart))
    if not paper:
        others = [other for other in asked(directory) if other != parts]
        write_json(directory / CHARTS, {"charts": [parts, *others]})
        page = directory / "report.html"
        text = page.read_text() if page.exists() else ""
        if FIGURES in text:
            write_atomically(page, with_picture(text, picture).encode())
        else:
            write_report(frames, folders)
    return chart, figures + csvs


def _tables(chart: Chart) -> dict[str, pd.DataFrame]:
    return {chart.name: chart.table, f"{chart.name}_counts": chart.counts}


def _charts(frames: LoadedSweep, failed: list[str]) -> list[Chart]:
    """Return the charts that were asked for, of equal names the latest."""
    charts: dict[str, Chart] = {}
    for parts in asked(frames.directory):
        with _noting(f"chart {' '.join(map(str, parts.values()))}", failed):
            chart = frames.chart(**parts)
            charts.setdefault(chart.name, chart)
    return [*charts.values()]


def _remove_other_pages(written: Iterable[Path]) -> None:
    """Remove NAME_k of an earlier report that had more pages of a figure NAME."""
    kept = set(written)
    for folder, name in {(path.parent, re.sub(r"_\d+$", "", path.stem)) for path in kept}:
        for path in folder.glob(f"{glob.escape(name)}*"):
            page = re.fullmatch(rf"{re.escape(name)}(_\d+)?\.(png|pdf|gif|txt)", path.name)
            if page and path not in kept:
                path.unlink()


def _drawing(chart: Chart) -> Drawing:
    from ..figures import Drawing

    return Drawing(chart.name, chart.caption, chart.figure, lambda: chart.notes)


def _picture(drawing: Drawing, paper: bool) -> Picture:
    from .. import style
    from .page import Picture

    files = {"pdf": style.pdf(drawing.figure)}
    files["txt"] = "\n\n".join([drawing.caption, *drawing.notes, ""]).encode()
    if not paper:
        files = {"png": style.png(drawing.figure)} | files
        files |= {"gif": style.gif(drawing.frames)} if drawing.frames else {}
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


def _write(
    directory: Path, pictures: Sequence[Picture], tables: Mapping[str, pd.DataFrame]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Write the files of pictures and tables; return their paths."""
    images = {f"{p.name}.{kind}": data for p in pictures for kind, data in p.files.items()}
    csvs = {f"{name}.csv": table.to_csv(index=False).encode() for name, table in tables.items()}
    for folder, files in ((directory / "figures", images), (directory / "tables", csvs)):
        if (kind := kind_of(folder)) not in ("a folder", "nothing"):
            raise NotADirectoryError(errno.ENOTDIR, f"is {kind}; must be a folder", str(folder))
        for name, content in files.items():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, content)
    return tuple(directory / "figures" / n for n in images), tuple(
        directory / "tables" / n for n in csvs
    )
