"""From values to HTML: one self-contained file, in which everything is escaped.

Jinja escapes every value that a template prints. A content security policy allows only the page's
own script and style, and nothing is loaded from other places.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attnsvm.record import one_line


@dataclass(frozen=True)
class Picture:
    """A figure on a page: its name, its caption and its files by their ending: png, pdf, gif."""

    name: str
    caption: str
    files: Mapping[str, bytes]


class Cell(NamedTuple):
    """A cell of a table: the text, and the value for sorting its column, "" if missing."""

    shown: str
    value: object


@dataclass(frozen=True)
class Table:
    """A table that can be sorted: its columns (name, whether they are numbers), and its rows."""

    columns: list[tuple[str, bool]]
    rows: list[list[Cell]]


def table(frame: pd.DataFrame, limit: int | None = None) -> Table:
    """Return the first `limit` rows of `frame` as a table that shows numbers to four digits."""
    columns = [(str(name), _is_number(frame[name])) for name in frame]
    rows = [
        [_cell(value, number) for value, (_, number) in zip(row, columns, strict=True)]
        for row in frame.head(limit or len(frame)).itertuples(index=False)
    ]
    return Table(columns, rows)


def render(template: str, **content: Any) -> str:
    """Return the page made from `content` by a file in `templates`; Markdown is not escaped."""
    return _environment().get_template(template).render(content)


@cache
def _environment() -> Environment:
    loader = PackageLoader("attnsvm.sweeps.report")
    made = Environment(
        loader=loader,
        autoescape=lambda name: name is None or not name.endswith(".md"),
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = (loader.get_source(made, name)[0] for name in ("page.css", "page.js"))
    made.globals |= {"style": Markup(style), "script": Markup(script), "policy": _policy(script)}
    made.filters["base64"] = _base64
    return made


def _policy(script: str) -> str:
    """Return the content security policy that allows this script, inline style and data images."""
    digest = "sha256-" + _base64(hashlib.sha256(script.encode()).digest())
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{digest}'"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _printable(value: object) -> object:
    """Return `value` as text with U+FFFD for every control character; markup is unchanged."""
    if isinstance(value, Markup):
        return value
    return "\n".join(one_line(line, mark="\ufffd") for line in str(value).split("\n"))


def _is_number(column: pd.Series[Any]) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def _cell(value: Any, number: bool) -> Cell:
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return Cell("–", "")
    return Cell(_four_digits(value) if number else str(value), value)


def _four_digits(value: Any) -> str:
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e7 else f"{number:.4g}"
