"""The notation of the field, `notation.yaml`: what figures call solutions, columns, and cells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from .cells import DIGITS, CellAxes, number, word
from .style import plain

TABLES: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("notation.yaml")))

SVMS: dict[str, str] = TABLES["svms"]

DISTANCE = r"$1-\mathrm{{corr}}(W, {})$".format
"""Label of the 1-correlation with a solution, whose name in mathematics is given without $."""

COLUMNS: dict[str, str] = TABLES["columns"] | {
    **{f"one_minus_corr_{svm}": DISTANCE(name.strip("$")) for svm, name in SVMS.items()},
    **{f"{norm}_rank": f"rank of {SVMS[norm]}" for norm in ("frobenius", "nuclear")},
}

SYMBOLS: dict[str, str] = TABLES["symbols"]
VALUES: dict[str, dict[Any, str]] = TABLES["values"]
UNITS: dict[str, str] = TABLES["units"]
PANELS: dict[str, dict[str, Any]] = TABLES["panels"]
HEADINGS: dict[str, str] = TABLES["headings"]
MEASURED: dict[str, dict[str, str]] = TABLES["measured"]

SVM_QUANTITIES = {f"one_minus_corr_{svm}": name for svm, name in SVMS.items()}
SVM_COLOURS = {SVMS[svm]: colour for svm, colour in TABLES["colours"].items()}
"""Quantity -> the solution that it compares with; solution -> its colour in all figures."""

RULES = VALUES["parameterization"]
"""Parameterization -> what is trained."""


def label(axes: CellAxes, cell: Mapping[str, Any]) -> str:
    """Return the name of a cell in a figure: `$d=4$, exact`.

    Without the fields that its optimizer does not have, and values that go without saying unless
    nothing else is left.
    """
    parts = (_part(axes, name, value, "optimizer" in cell) for name, value in cell.items())
    return ", ".join(filter(None, parts)) or ", ".join(
        _typed(axes, name, value) for name, value in cell.items()
    )


def values(axes: CellAxes, cell: Mapping[str, Any]) -> str:
    """Return what the values of a cell are called in a figure: `4, exact`."""
    numbers = {key: number(value, axes.digits.get(key, DIGITS)) for key, value in cell.items()}
    words = {
        key: VALUES.get(word(key), {}).get(value)
        for key, value in cell.items()
        if isinstance(value, str | bool)
    }
    return ", ".join(words.get(name) or plain(numbers[name]) for name in cell)


def _part(axes: CellAxes, name: str, value: Any, of_optimizer: bool) -> str:
    missing = value is None or value != value
    if missing and of_optimizer and name.startswith("optimizer."):
        return ""
    words = {} if missing else VALUES.get(word(name), {})
    return words[value] if value in words else _typed(axes, name, value)


def _typed(axes: CellAxes, name: str, value: Any) -> str:
    shown, name = number(value, axes.digits.get(name, DIGITS)), word(name)
    if name in SYMBOLS and value == value and isinstance(value, int | float):
        return f"${SYMBOLS[name]}={shown}$"
    return plain(UNITS[name].format(shown) if name in UNITS else f"{name}={shown}")


def column(name: str) -> str:
    """Return the label of the axis of a column, as itself if it has no other name."""
    return COLUMNS.get(word(name), plain(name))


def heading(name: str) -> str:
    """Return what the terminal calls a column: `1-corr W_mm`."""
    shown = name.replace("one_minus_corr_", "1-corr ").replace("_margin_gap", " margin gap")
    return HEADINGS.get(name, shown)


def place(name: str, value: Any) -> int:
    """Return the place of a value among those of its field that have a word; others follow."""
    known = [*VALUES.get(word(name), {})]
    return known.index(value) if value in known else len(known)
