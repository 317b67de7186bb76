"""`history.parquet`: which rows it must have, and the values that follow from stored weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.verify.exact import Array

COLUMNS = ["step", "quantity", "value"]
Key = tuple[int, ...]
"""Seed of an instance; of a network with layer and head."""

Curve = tuple[Array, Array]
"""Values and error bounds at the snapshots whose weights are known."""


NORMS = ("frobenius", "nuclear")
"""The norms whose margin gap the trials have and the history has not."""


def correlation(norm: str) -> str:
    """Return the column and quantity of 1 - correlation with the SVM of a norm."""
    return f"one_minus_corr_{norm}"


def svmeq_name(norm: str) -> str:
    """Return the column and quantity of 1 - correlation with W_fin + C W_mm of least `norm`."""
    return "one_minus_corr_svmeq" if norm == "frobenius" else f"one_minus_corr_svmeq_{norm}"


def quantities(config: Mapping[str, Any]) -> list[str]:
    """Return the quantities of a record's history, in their order."""
    tokens, norms = config["selection"]["tokens"], config["svm"]["norms"]
    if tokens == "optimal":
        return []
    names = ["risk", "max_softmax", "W_norm"]
    names += ["one_minus_corr_1token"] if tokens == "multi" else []
    for norm in norms:
        names.append(correlation(norm))
        names += [f"margin_gap_{norm}"] if tokens == "top" and norm not in NORMS else []
        if tokens == "multi":
            names.append(svmeq_name(norm))
            names += ["one_minus_corr_svmeq_lsq"] if norm == "frobenius" else []
    return names


class History:
    """The values of `history.parquet`, (Q, S) for each row of the trials.

    Parameters
    ----------
    table : DataFrame
        The stored table.
    key : list of str
        The columns that tell rows of the trials apart: seed, of a network also layer and head.
    rows : list of Key
        Their values in the rows that it must hold, in their order.
    names : list of str
        The quantities, in their order.
    steps : list of float
        The recorded steps or radii.
    ranges : mapping of str to (low, high)
        The possible values of the quantities of probes.

    Attributes
    ----------
    undecided : set of str
        Quantities of which `refusals` has accepted some value because its error bound is infinite.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        key: Sequence[str],
        rows: Sequence[Key],
        names: Sequence[str],
        steps: Sequence[float],
        ranges: Mapping[str, tuple[float, float]],
    ) -> None:
        self.ranges = ranges
        self.undecided: set[str] = set()
        self.key, self.rows = list(key), list(rows)
        self.names, self.steps, self.table = names, steps, table
        if list(table.columns) == [*self.key, *COLUMNS]:  # the order of the rows says nothing
            order = {name: k for k, name in enumerate(names)}
            at = table["quantity"].map(order).fillna(len(names)).to_numpy(dtype=np.int64)
            keys = [table[name].to_numpy() for name in reversed(self.key)]
            self.table = table.iloc[np.lexsort((table["step"].to_numpy(), at, *keys))]
        self.place = {row: k for k, row in enumerate(self.rows)}
        self.values: Array | None = None
        if not self.refusal():
            whole = (len(rows), len(names), len(steps))
            self.values = self.table["value"].to_numpy(dtype=np.float64).reshape(whole)

    def refusal(self) -> str:
        """Return what is wrong with the rows; empty if nothing is."""
        table, steps, names = self.table, np.array(self.steps), np.array(self.names, dtype=object)
        kinds = {**dict.fromkeys(self.key, "i"), "step": "f", "value": "f"}
        if list(table.columns) != [*self.key, *COLUMNS]:
            return f"its columns must be {', '.join([*self.key, *COLUMNS])}"
        if any(table[name].dtype.kind != kind for name, kind in kinds.items()):
            return "a column has another type"
        size = len(names) * len(steps)
        if len(table) != len(self.rows) * size:
            return f"it has {len(table)} rows, must have {len(self.rows) * size}"
        whole = np.array(self.rows, dtype=np.int64).reshape(len(self.rows), len(self.key))
        wanted = (
            *zip(self.key, np.repeat(whole, size, axis=0).T, strict=True),
            ("step", np.tile(steps, len(self.rows) * len(names))),
            ("quantity", np.tile(np.repeat(names, len(steps)), len(self.rows))),
        )
        for column, values in wanted:
            wrong = np.flatnonzero(table[column].to_numpy() != values)
            if wrong.size:
                k = int(wrong[0])
                return f"{column} of row {k} must be {values[k]}, is {table[column].iloc[k]}"
        return ""

    def refusals(
        self, row: Key, known: Sequence[int], curves: Mapping[str, Curve], T: int
    ) -> Iterator[str]:
        """Yield the values of a row that differ from `curves`, or are impossible.

        Parameters
        ----------
        row : Key
            The row.
        known : list of int
            Indices of the snapshots to which the values of `curves` belong.
        curves : mapping
            Quantity -> values and error bounds; those of a missing quantity are not known.
        T : int
            Number of tokens.
        """
        if self.values is None or row not in self.place:
            return
        found = self.values[self.place[row]]
        for name, values in zip(self.names, found, strict=True):
            allowed = _possible(name, values, T, self.ranges)
            if name in curves:
                value, apart = curves[name]
                stated = values[list(known)]
                same = np.abs(stated - value) <= apart
                if np.isinf(apart).any():
                    self.undecided.add(name)
                same |= np.isinf(apart) | (stated == value) | (np.isnan(stated) & np.isnan(value))
                allowed[list(known)] &= same
                missing = np.isnan(value)
                if missing.all() and name.startswith("one_minus_corr"):
                    allowed &= np.isnan(values)
            for k in np.flatnonzero(~allowed)[:1]:
                yield f"history: {name} at {self.steps[k]:g} is not {values[k]:.17g}"


def _possible(name: str, values: Array, T: int, ranges: Mapping[str, tuple[float, float]]) -> Any:
    """Return which values are possible at all."""
    others = (-1e-6, np.inf) if name.startswith("margin_gap_") else (0.0, 2.0 + 1e-12)
    low, high = {
        "risk": (-np.inf, np.inf),
        "max_softmax": (1 / T - 1e-12, 1 + 1e-12),
        "W_norm": (0.0, np.inf),
        **ranges,
    }.get(name, others)
    return np.isnan(values) | ((values >= low) & (values <= high))
