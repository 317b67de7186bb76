"""`attnsvm-report DIR`: tables, figures and one HTML page from what a sweep left on disk.

Incomplete or damaged sweeps are drawn as far as they go; what is missing is named on the page, in
the terminal and by the exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.aggregate import SweepFrames
    from sweeps.figures import Drawing
    from sweeps.page import Markup

ROWS_ON_PAGE = 400


@dataclass(frozen=True)
class ReportFiles:
    """Where a report lies."""

    html: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    captions: dict[str, str]


def write_report(frames: SweepFrames) -> ReportFiles:
    """Write figures, their tables and the HTML page into the sweep's folder.

    Every file is replaced whole: DIR/figures/NAME.png and .pdf, DIR/tables/NAME.csv and
    DIR/report.html.

    Parameters
    ----------
    frames : SweepFrames
        What was read from the folder `frames.directory`.

    Returns
    -------
    ReportFiles
        The paths written.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    from attnsvm.storage import write_atomically
    from sweeps import style
    from sweeps.figures import figure_module

    for folder in ("figures", "tables"):
        (frames.directory / folder).mkdir(parents=True, exist_ok=True)
    module = figure_module(frames.name)
    tables = module.tables(frames) if len(frames.trials) else {}
    csvs = []
    for name, table in tables.items():
        csvs.append(frames.directory / "tables" / f"{name}.csv")
        write_atomically(csvs[-1], table.to_csv(index=False).encode())
    images: list[Path] = []
    sections = []
    captions = {}
    with style.paper():
        for drawing in module.draw(tables, [lost_runs(frames)]) if tables else ():
            content = _files_of(drawing)
            for kind, data in content.items():
                images.append(frames.directory / "figures" / f"{drawing.name}.{kind}")
                write_atomically(images[-1], data)
            captions[drawing.name] = drawing.caption
            sections.append(figure_section(drawing.name, drawing.caption, content))
    page = frames.directory / "report.html"
    write_atomically(page, _html(frames, module.QUESTION, sections, tables).encode())
    return ReportFiles(page, tuple(images), tuple(csvs), captions)


def _files_of(drawing: Drawing) -> dict[str, bytes]:
    """Return the files of a drawing by their ending."""
    from sweeps import style

    files = {"png": style.png(drawing.figure), "pdf": style.pdf(drawing.figure)}
    return files | ({"gif": style.gif(drawing.frames)} if drawing.frames else {})


def _statuses(frames: SweepFrames) -> dict[str, int]:
    if frames.trials.empty:
        return {}
    return {str(s): int(n) for s, n in frames.trials["status"].value_counts().items()}


def lost_runs(frames: SweepFrames) -> str:
    """Return what a figure must say of runs that it does not show; empty if it shows all."""
    lost = frames.incomplete["state"].value_counts()
    listed = ", ".join(f"{n} {state}" for state, n in lost.items())
    lines = [f"Not shown, no record: {listed} of {len(frames.runs)} runs."] if listed else []
    if frames.elsewhere:
        lines.append(f"Not shown: {frames.elsewhere} records of other grids in the same folder.")
    if len(short := _short_of_accepted(frames)):
        wanted, found = short["wanted"].sum(), short["accepted"].sum()
        lines.append(f"{len(short)} runs gave up: {found} accepted instances of {wanted} wanted.")
    return " ".join(lines)


def _short_of_accepted(frames: SweepFrames) -> pd.DataFrame:
    done = frames.runs[frames.runs["state"] == "done"]
    if "until_accepted" not in done:
        return done.iloc[:0]
    return done[(done["until_accepted"] == True) & (done["accepted"] < done["wanted"])]  # noqa: E712


# --- the page ------------------------------------------------------------------------------------


def _html(
    frames: SweepFrames,
    question: str,
    sections: list[Markup],
    tables: dict[str, pd.DataFrame],
) -> str:
    from sweeps import page

    title = frames.name or frames.directory.resolve().name
    return page.document(
        f"{title} - attnsvm",
        [
            page.element("h1", title),
            page.element("p", question, class_="lead"),
            *_overview(frames),
            *sections,
            page.element("h2", "Tables"),
            *(_table(name, table) for name, table in tables.items()),
            *_fates(frames),
            *_runs(frames),
            *_provenance(frames),
            *_how_to_repeat(frames),
        ],
    )


def _overview(frames: SweepFrames) -> list[Markup]:
    from sweeps import page

    done = int((frames.runs["state"] == "done").sum())
    counts = _statuses(frames)
    wall = float(frames.runs["wall_s"].sum()) if "wall_s" in frames.runs else float("nan")
    pairs = [(f"{done} of {len(frames.runs)}", " runs done"), (len(frames.trials), " instances")]
    pairs += [(counts.get(s, 0), f" {s}") for s in ("ok", "infeasible", "undecided", "failed")]
    parts = [page.facts([*pairs, (page.seconds(wall), " of computing")])]
    if lost := lost_runs(frames):
        note = f"{lost} The reasons stand below, under Runs."
        parts.append(page.element("p", note, class_="warning", role="note"))
    if not len(frames.trials):
        note = "No run of this sweep has a complete record, so there is nothing to draw yet."
        parts.append(page.element("p", note, class_="warning", role="note"))
    return parts


def figure_section(name: str, caption: str, files: dict[str, bytes], folder: str = "") -> Markup:
    """Return a figure of the page with its animation, its caption and links to its files."""
    from sweeps import page

    shown = [page.picture(files[kind], caption, kind) for kind in ("png", "gif") if kind in files]
    links = page.joined(
        page.element("a", kind.upper(), href=f"{folder}figures/{name}.{kind}") for kind in files
    )
    below = page.element("figcaption", caption, " ", links)
    return page.element("figure", *shown, below, id=name)


def _table(name: str, table: pd.DataFrame) -> Markup:
    from sweeps import page

    file = page.element("a", f"tables/{name}.csv", href=f"tables/{name}.csv")
    cut = f"The first {ROWS_ON_PAGE} rows; all of them: " if len(table) > ROWS_ON_PAGE else "File: "
    rows = f"{name} ({len(table)} rows)"
    return page.element(
        "details",
        page.element("summary", rows),
        page.element("p", cut, file),
        page.table(table, ROWS_ON_PAGE),
        open="" if len(table) <= 60 else None,
    )


def _fates(frames: SweepFrames) -> list[Markup]:
    from sweeps import page
    from sweeps.statistics import counts

    parts = [page.element("h2", "What became of every instance")]
    if not len(frames.trials):
        return [*parts, page.element("p", "No instance is on record.")]
    parts.append(page.table(counts(frames.trials, ["status", "reason"]), ROWS_ON_PAGE))
    verdicts = [c for c in frames.trials if c in ("frobenius_status", "nuclear_status")]
    if verdicts:
        parts.append(page.element("h3", "Verdict on the attention SVM, by norm"))
        parts.append(page.table(counts(frames.trials, verdicts), ROWS_ON_PAGE))
    return parts


def _runs(frames: SweepFrames) -> list[Markup]:
    from sweeps import page

    parts = [page.element("h2", "Runs")]
    lost = frames.incomplete[["run", "state", "reason"]]
    if len(lost):
        parts += [page.element("h3", "Missing, failed or damaged"), page.table(lost)]
    else:
        parts.append(page.element("p", "Every run has a complete record whose checksums fit."))
    every = page.element("summary", f"All {len(frames.runs)} runs")
    return [*parts, page.element("details", every, page.table(_short(frames.runs), ROWS_ON_PAGE))]


def _short(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `runs` that say something, those that vary between runs last."""
    from sweeps.figures import CELL_KEYS, varying

    first = [c for c in ("run", "state", "wall_s", "wanted", "accepted", "drawn") if c in runs]
    return runs[[*first, *varying(runs)]] if set(CELL_KEYS) & set(runs) else runs[first]


def _provenance(frames: SweepFrames) -> list[Markup]:
    import pandas as pd

    from sweeps import page
    from sweeps.figures import CELL_KEYS, varying

    told = {
        "run",
        "state",
        "reason",
        "wall_s",
        "wanted",
        "accepted",
        "drawn",
        *varying(frames.runs),
    }
    rows = []
    for name in sorted(set(frames.runs) - told, key=lambda name: (name in CELL_KEYS, name)):
        values = frames.runs[name].dropna().astype(str)
        distinct = values[values != ""].unique()
        if len(distinct):
            shown = "; ".join(distinct[:5]) + ("; ..." if len(distinct) > 5 else "")
            rows.append({"field": name, "value": shown, "runs": int((values != "").sum())})
    table = pd.DataFrame(rows, columns=["field", "value", "runs"])
    intro = "The same in all runs unless several values stand here."
    return [page.element("h2", "Provenance"), page.element("p", intro), page.table(table)]


def _how_to_repeat(frames: SweepFrames) -> list[Markup]:
    from sweeps import page

    commands = [f"attnsvm-report {frames.directory}"]
    if frames.name:
        commands.insert(0, f"attnsvm sweep={frames.name}")
    intro = "Runs with a complete record are kept; what is missing or failed is computed again."
    return [
        page.element("h2", "Run it again"),
        page.element("p", intro),
        page.element("pre", "\n".join(commands)),
    ]


# --- the command ---------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of the sweep in a folder.

    Returns
    -------
    int
        0 if every run is on record, 1 if some are missing, failed or corrupt (the report is
        written from the others), 2 if no report could be written.
    """
    parser = argparse.ArgumentParser(
        prog="attnsvm-report",
        description="Tables, figures and an HTML report from what a sweep left on disk.",
    )
    parser.add_argument("directory", type=Path, help="folder of a sweep, e.g. multirun/rank_vs_d")
    directory = parser.parse_args(argv).directory
    if not directory.is_dir():
        return _refuse(f"{directory}: no such folder; give the folder of a sweep")
    from sweeps.aggregate import load

    try:
        frames = load(directory)
    except (ValueError, FileNotFoundError) as error:
        return _refuse(str(error))
    if frames.runs.empty:
        return _refuse(f"{directory}: holds no record of a run; give the folder of a sweep")
    try:
        files = write_report(frames)
    except OSError as error:
        return _refuse(f"{directory}: the report cannot be written there ({error})")
    _tell(frames, files)
    return int(len(frames.incomplete) > 0)


def _refuse(message: str) -> int:
    sys.stderr.write(f"attnsvm-report: {message}\n")
    return 2


def _tell(frames: SweepFrames, files: ReportFiles) -> None:
    fates = ", ".join(f"{n} {status}" for status, n in _statuses(frames).items())
    lines = [f"{len(frames.trials)} instances: {fates}"] if fates else ["no instance on record"]
    for row in frames.incomplete.itertuples():
        lines.append(f"{row.state}: {one_line(row.run)}: {one_line(row.reason)}")
    if files.figures:
        lines.append(f"figures  {files.figures[0].parent}")
        lines.append(f"tables   {files.tables[0].parent}")
    lines.append(f"report   {files.html}")
    sys.stdout.write("\n".join(lines) + "\n")


def one_line(text: object) -> str:
    """Return `text` on one line without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in str(text))


if __name__ == "__main__":
    sys.exit(main())
