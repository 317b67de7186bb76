"""The report of a sweep besides its figures, and from values to HTML.

A page is one self-contained file, in which everything is escaped: Jinja escapes every value that a
template prints. A content security policy allows only the page's own script and style, and nothing
is loaded from other places.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from attnsvm.record import duration, one_line

from ..cells import SEED, CellAxes
from ..loaded import LoadedSweep
from ..statistics import counts


@dataclass(frozen=True)
class Picture:
    """A figure on a page: name, caption, small print, and files by their ending: png, pdf, gif."""

    name: str
    caption: str
    files: Mapping[str, bytes]
    notes: Sequence[str] = ()


def render(template: str, **content: Any) -> str:
    """Return the page made from `content` by a file in `templates`; only HTML is escaped."""
    return _environment().get_template(template).render(content)


FIGURES = "<!-- figures -->\n"
"""Line of a report after which its pictures are."""


def with_picture(page: str, picture: Picture) -> str:
    """Return a report, which has the line `FIGURES`, with a picture ahead of the others, once."""
    begin, mark, others = page.partition(FIGURES)
    same = rf'<figure id="{re.escape(str(escape(picture.name)))}">.*?</figure>\n'
    figure = render("picture.html", drawn=picture)
    return f"{begin}{mark}{figure}{re.sub(same, '', others, flags=re.DOTALL)}"


@cache
def _environment() -> Environment:
    loader = PackageLoader("attnsvm.sweeps.report")
    environment = Environment(
        loader=loader,
        autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = (loader.get_source(environment, name)[0] for name in ("page.css", "page.js"))
    digest = "sha256-" + _base64(hashlib.sha256(script.encode()).digest())
    allowed = f"img-src data:; style-src 'unsafe-inline'; script-src '{digest}'"
    environment.globals |= {"style": Markup(style), "script": Markup(script)}
    environment.globals["policy"] = f"default-src 'none'; {allowed}"
    environment.filters |= {"base64": _base64, "four_digits": _four_digits}
    environment.tests["missing"] = pd.isna
    return environment


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _printable(value: object) -> object:
    """Return `value` as text with U+FFFD for every control character; markup is unchanged."""
    if isinstance(value, Markup):
        return value
    return "\n".join(one_line(line, mark="\ufffd") for line in str(value).split("\n"))


def _four_digits(value: Any, is_number: bool) -> str:
    """Return a field of a table as text: a number to four digits, a dash if it is missing."""
    if pd.isna(value):
        return "–"
    if not is_number:
        return str(value)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e7 else f"{number:.4g}"


QUESTION = "In each cell of the sweep: how did training end, and which SVM does W agree with?"
"""The question of an ad-hoc sweep."""

USUAL = ("ok", "infeasible", "undecided", "failed")
"""Statuses that are told even if no instance has them."""

RUN_COLUMNS = ("run", "state", "wall_s", "wanted", "accepted", "drawn")


def report_page(
    frames: LoadedSweep,
    pictures: Sequence[Picture],
    tables: Mapping[str, pd.DataFrame],
    failed: Sequence[str] = (),
    **evidence: Any,
) -> str:
    """Return the HTML page of a sweep; `failed` says which figures could not be drawn, and why.

    Of its runs the page shows the columns that a reader needs, the axes, and seeds that differ.
    With `evidence` it is the page of an export.
    """
    shown = [column for column in RUN_COLUMNS if column in frames.runs]
    shown += [*frames.cells.of_runs, *([SEED] if frames.runs[SEED].nunique() > 1 else [])]
    return render(
        "export.html" if evidence else "report.html",
        title=frames.name or frames.directory.resolve().name,
        question=frames.question or ("" if frames.name else QUESTION),
        facts=_facts(frames),
        frames=frames,
        failed=failed,
        pictures=pictures,
        tables=tables,
        by_status=_counts(frames, ("status", "reason")),
        by_norm=_counts(frames, ("frobenius_status", "nuclear_status")),
        runs=frames.runs[shown],
        provenance=_provenance(frames.runs, frames.cells),
        directory=shlex.quote(str(frames.directory)),
        **evidence,
    )


def _facts(frames: LoadedSweep) -> list[tuple[object, str]]:
    """Return the counts at the top of the page; those of the statuses sum to all instances."""
    done = len(frames.runs) - len(frames.incomplete)
    statuses = dict.fromkeys(USUAL, 0) | frames.statuses
    wall_s = float(frames.runs["wall_s"].sum()) if "wall_s" in frames.runs else float("nan")
    return [
        (f"{done} of {len(frames.runs)}", "runs done"),
        (sum(statuses.values()), "instances"),
        *((count, status) for status, count in statuses.items()),
        *([(frames.repeated, "duplicate rows left out")] if frames.repeated else []),
        (duration(wall_s), "of computing time"),
    ]


def _counts(frames: LoadedSweep, columns: Sequence[str]) -> pd.DataFrame:
    """Return the number of instances by those of the columns that the records have."""
    present = [column for column in columns if column in frames.rows]
    return counts(frames.rows, present) if present else pd.DataFrame()


def _provenance(runs: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the values of all other columns of `runs`: the fields of the config last."""
    elsewhere = {*RUN_COLUMNS, "reason", *axes.names}
    rows: list[dict[str, Any]] = []
    for name in (name for name in runs if name not in elsewhere):
        values = runs[name].dropna().astype(str)
        distinct = values[values != ""].unique()
        if len(distinct):
            shown = "; ".join(distinct[:5]) + ("; ..." if len(distinct) > 5 else "")
            rows.append({"field": name, "value": shown, "runs": int((values != "").sum())})
    return pd.DataFrame(rows, columns=["field", "value", "runs"])
