"""The HTML of a report: one file, nothing loaded from elsewhere, everything from a record escaped.

Markup is built by `element`, which escapes all text that is not markup itself. A content security
policy allows this page's own script and style only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #5f6368; --rule: #d9dbdf; --paper: #fff;
  --tint: #f4f5f7; --link: #0059a8; --warn: #9a3b00; --warn-tint: #fff3e8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a0a4aa; --rule: #3a3d42;
  --paper: #17181a; --tint: #212327; --link: #7db8f0; --warn: #ffb27a; --warn-tint: #33241a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 5rem; max-width: 74rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 Charter, "Bitstream Charter", "Source Serif Pro", Georgia,
  "DejaVu Serif", serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 3rem 0 .8rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.8rem 0 .5rem; }
p, figcaption, li { max-width: 46rem; overflow-wrap: anywhere; }
.lead { font-size: 1.12rem; color: var(--soft); margin: 0 0 1.2rem; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; padding: 0; margin: 0 0 1rem;
  list-style: none; }
.facts b { font-variant-numeric: tabular-nums; }
.warning { background: var(--warn-tint); border-left: 3px solid var(--warn); padding: .7rem 1rem; }
figure { margin: 1.6rem 0 2.6rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
@media (prefers-color-scheme: dark) { figure img { padding: .5rem; } }
figcaption { margin-top: .7rem; color: var(--soft); font-size: .93rem; }
a { color: var(--link); }
details { margin: .8rem 0; }
summary { cursor: pointer; font-weight: 600; }
.scroll { overflow-x: auto; max-height: 34rem; overflow-y: auto; border: 1px solid var(--rule);
  border-radius: 4px; margin: .6rem 0; }
table { border-collapse: collapse; font: .82rem/1.4 system-ui, "Segoe UI", "DejaVu Sans",
  sans-serif; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .28rem .7rem; text-align: left; border-bottom: 1px solid var(--rule);
  vertical-align: top; overflow-wrap: break-word; max-width: 34rem; }
td.number, th.number { text-align: right; white-space: nowrap; }
thead th { position: sticky; top: 0; background: var(--tint); padding: 0; }
th button { all: unset; cursor: pointer; padding: .35rem .7rem; display: block; width: 100%;
  font-weight: 600; white-space: nowrap; box-sizing: border-box; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: -2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tbody tr:hover { background: var(--tint); }
pre { background: var(--tint); padding: .8rem 1rem; overflow-x: auto; border-radius: 4px;
  font-size: .85rem; }
@media print { :root { --ink: #000; --paper: #fff; --soft: #333; --tint: #fff; --rule: #bbb; }
  body { max-width: none; padding: 0; font-size: 10pt; } figure { break-inside: avoid; }
  .scroll { max-height: none; overflow: visible; border: 0; } thead th { position: static; }
  details:not([open]) { display: none; } }
"""

SCRIPT = """
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[head.cellIndex].dataset.value ?? "";
    const numeric = head.classList.contains("number");
    const compare = (a, b) => numeric ? Number(a) - Number(b) : a.localeCompare(b);
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");  // what is missing goes last
      return down ? compare(y, x) : compare(x, y);
    });
    body.append(...rows);
  });
}
"""


class Markup(str):
    """Text that is HTML already; any other text is escaped before it enters a page."""


def escaped(content: object) -> Markup:
    """Return `content` as markup: unchanged if it is, else with every special character escaped."""
    if isinstance(content, Markup):
        return content
    shown = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(content))
    return Markup(html.escape(shown, quote=True))


def joined(parts: Iterable[object]) -> Markup:
    """Return the parts, escaped where they are not markup, one after the other."""
    return Markup("\n".join(escaped(part) for part in parts))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return `<tag ...>content</tag>`; a trailing underscore of an attribute's name is dropped."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>{joined(content)}</{tag}>")


def document(title: str, content: Iterable[object]) -> str:
    """Return a whole HTML page."""
    digest = "sha256-" + base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{joined(content)}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def picture(content: bytes, alternative: str, kind: str = "png") -> Markup:
    """Return an image that carries its bytes with it."""
    data = base64.b64encode(content).decode()
    return Markup(f'<img alt="{escaped(alternative)}" src="data:image/{kind};base64,{data}">')


def table(frame: pd.DataFrame, limit: int | None = None) -> Markup:
    """Return a sortable table of the first `limit` rows, numbers to four digits."""
    numeric = [pd.api.types.is_numeric_dtype(frame[c]) and not _is_truth(frame[c]) for c in frame]
    kinds = ["number" if n else None for n in numeric]
    head = [
        element("th", element("button", name, type="button"), scope="col", class_=kind)
        for name, kind in zip(frame.columns, kinds, strict=True)
    ]
    rows = [
        element("tr", *(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)))
        for row in frame.head(limit or len(frame)).itertuples(index=False)
    ]
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return element("div", whole, class_="scroll")


def _is_truth(column: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_bool_dtype(column))


def _cell(value: Any, kind: str | None) -> Markup:
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return element("td", "–", class_=kind, data_value="")
    shown = _four_digits(value) if kind else str(value)
    return element("td", shown, class_=kind, data_value=value)


def _four_digits(value: Any) -> str:
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e7 else f"{number:.4g}"


def facts(pairs: Sequence[tuple[object, str]]) -> Markup:
    """Return a line of counts: each a number and what it counts."""
    items = [element("li", element("b", value), what) for value, what in pairs]
    return element("ul", *items, class_="facts")


def seconds(value: float) -> str:
    """Return a duration as a reader says it: 3.2 s, 4 min 10 s, 2 h 5 min; a dash if unknown."""
    if not math.isfinite(value):
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
