"""The cells of a sweep: the config fields in which they differ, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from attnsvm.config import GROUPS

FIELDS = {
    "tokens": "selection",
    "n": "data",
    "T": "data",
    "d": "data",
    "m": "parameterization",
    "lam": "head",
    "train": "head",
    "causal": "model",
    "query": "model",
    "lr": "optimizer",
    "steps": "optimizer",
    "growth": "optimizer",
    "gradient": "optimizer",
    "ridge": "optimizer",
    "init": "optimizer",
}
"""Config field in which cells may differ -> its group."""

CELL_KEYS = (*GROUPS, *FIELDS)
"""Columns of a sweep's tables that name a cell: the option of each group, and `FIELDS`."""

ARITHMETIC = {"direct": " (published arithmetic)", "log_domain": " (exact)"}
"""Addition to the label of a gradient: the arithmetic of the curve."""


def varying(frame: pd.DataFrame, besides: Sequence[str] = ()) -> list[str]:
    """Return the cell keys that take more than one value in `frame`, except those `besides`."""
    present = [key for key in CELL_KEYS if key in frame and key not in besides]
    return [key for key in present if frame[key].nunique(dropna=False) > 1]


def split(frame: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the part of `frame` of each combination of `keys` with a label such as `head=relu`."""
    if not keys or frame.empty:
        yield "", frame
        return
    for values, part in frame.groupby(list(keys), dropna=False, sort=True):
        yield label(dict(zip(keys, values, strict=True))), part


def label(cell: dict[str, Any]) -> str:
    """Return a cell's keys as a user types them: `head=relu, d=4`."""
    return ", ".join(
        f"{key}={number(value)}{ARITHMETIC.get(value, '') if key == 'gradient' else ''}"
        for key, value in cell.items()
    )


def number(value: Any) -> str:
    """Return a value to four digits: 5 rather than 5.0, a dash for a missing one."""
    if value is None or value is pd.NA or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
