"""The files of a report: figures, their tables and the HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pandas and matplotlib take a second to import: not for `--help`
    from sweeps.aggregate import SweepFrames
    from sweeps.figures import Drawing
    from sweeps.report.render import Picture


@dataclass(frozen=True)
class ReportFiles:
    """Paths of a report's files, and the pictures that its page shows."""

    html: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    pictures: tuple[Picture, ...]


def write_report(frames: SweepFrames) -> ReportFiles:
    """Write figures, their tables and the HTML page into the sweep's folder.

    Every file is replaced atomically: DIR/figures/NAME.png and .pdf (.gif if animated),
    DIR/tables/NAME.csv and DIR/report.html.

    Parameters
    ----------
    frames : SweepFrames
        The content of the folder `frames.directory`.

    Returns
    -------
    ReportFiles
        The paths written.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    from sweeps import style
    from sweeps.figures import figure_module
    from sweeps.report.page import not_shown, report_page

    module = figure_module(frames.name)
    tables = module.tables(frames) if len(frames.trials) else {}
    csvs = {f"{name}.csv": t.to_csv(index=False).encode() for name, t in tables.items()}
    table_paths = _write_into(frames.directory / "tables", csvs)
    with style.paper():
        drawings = module.draw(tables, [not_shown(frames)]) if tables else []
        pictures = tuple(_picture(drawing) for drawing in drawings)
    images = {f"{p.name}.{kind}": data for p in pictures for kind, data in p.files.items()}
    figure_paths = _write_into(frames.directory / "figures", images)
    html = report_page(frames, pictures, tables).encode()
    (page,) = _write_into(frames.directory, {"report.html": html})
    return ReportFiles(page, figure_paths, table_paths, pictures)


def _picture(drawing: Drawing) -> Picture:
    from sweeps import style
    from sweeps.report.render import Picture

    files = {"png": style.png(drawing.figure), "pdf": style.pdf(drawing.figure)}
    if drawing.frames:
        files["gif"] = style.gif(drawing.frames)
    return Picture(drawing.name, drawing.caption, files)


def _write_into(folder: Path, files: dict[str, bytes]) -> tuple[Path, ...]:
    from attnsvm.record import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return tuple(folder / name for name in files)
