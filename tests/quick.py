"""Tables of cases: which rows `make test` runs (`make test-all` runs all), and those in files."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml


def quick(*values: Any, count: int = 1) -> list[Any]:
    """Return values, of which all but the first ones are marked `full`."""
    rest = (pytest.param(value, marks=pytest.mark.full) for value in values[count:])
    return [*values[:count], *rest]


def quick_rows(*rows: tuple[Any, ...], count: int = 1) -> list[Any]:
    """Return rows of values, one for each name, of which all but the first are marked `full`."""
    return [*rows[:count], *(pytest.param(*row, marks=pytest.mark.full) for row in rows[count:])]


def refusals(of: str) -> list[tuple[str, str]]:
    """Return what is typed and what it is told in return, the rows of a test in `refusals.csv`."""
    with Path(__file__).with_name("refusals.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["of"] == of]
    return [(row["typed"], row["told"]) for row in rows]


def beside(test: str) -> Any:
    """Return the cases of a test file, which are in the .yaml of its name."""
    return yaml.safe_load(Path(test).with_suffix(".yaml").read_text())


def expressed(name: str, expression: str, **others: Any) -> Callable[[Any], Any]:
    """Return the function of `name` that an expression of a table says; it may use NumPy, np."""
    return eval(f"lambda {name}: {expression}", {"np": np, **others})
