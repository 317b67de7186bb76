"""A genuine record in memory, to be edited and written again with checksums that fit."""

import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from attnsvm import record
from attnsvm.config.identity import folder_name
from attnsvm.experiment import svms
from attnsvm.record import write_json
from attnsvm.record.folder import read_record, write
from attnsvm.record.schema import RunRecord
from attnsvm.svm import solve_svm
from attnsvm.verify.run import prove


@dataclass
class Forgery:
    """Tables, arrays and `run.json` of a record; edits change a copy.

    `rehash` recomputes signature and folder name from the edited config, as a careful forger does.
    """

    trials: pd.DataFrame
    history: pd.DataFrame
    arrays: dict[str, np.ndarray]
    run: dict[str, Any]
    recount: bool = True
    rehash: bool = False

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the record in `folder`."""
        found, run = read_record(folder)
        return cls(found.trials, found.history, dict(found.solutions), run)

    def copy(self) -> Self:
        """Return a copy to be edited."""
        return copy.deepcopy(self)

    def cell(self, column: str, value: Any, row: int = 0) -> None:
        """Change a cell of the table: to a value, or by a function of it."""
        old = self.trials.loc[row, column]
        self.trials.loc[row, column] = value(old) if callable(value) else value

    def everywhere(self) -> list[str]:
        """Change all cells of the first accepted row but those that hide others; say which."""
        hiding, random = ("seed", "status", "reason", "training"), np.random.default_rng(0)
        row = self.trials.index[self.trials["status"] == "ok"][0]
        columns = [column for column in self.trials if column not in hiding]
        for column in columns:
            old = self.trials[column]
            self.cell(column, changed(old[row], old.dtype, random, 1, 1e-5), row)
        return columns

    def curve(self, quantity: str, at: int, change: Any) -> None:
        """Change the value of a quantity at its snapshot `at`, for the first instance."""
        curve = self.history[self.history["quantity"] == quantity]
        row = curve.index[curve["seed"] == self.seeds[0]][at]
        self.history.loc[row, "value"] = change(self.history.loc[row, "value"])

    def array(self, name: str, change: Any, instance: int = 0) -> None:
        """Change one instance of an array by a function of it."""
        self.arrays[name] = self.arrays[name].copy()
        self.arrays[name][instance] = change(self.arrays[name][instance])

    @property
    def seeds(self) -> np.ndarray:
        """The seeds of the stored arrays."""
        return self.arrays["seeds"]

    def keep(self, rows: list[int]) -> None:
        """Keep, double or reorder rows, with their curves and arrays."""
        seeds = self.trials["seed"].to_numpy()[rows]
        self.trials = self.trials.iloc[rows].reset_index(drop=True)
        curves = [self.history[self.history["seed"] == seed] for seed in seeds]
        self.history = pd.concat([self.history.iloc[:0], *curves], ignore_index=True)
        self.arrays = {name: array[rows] for name, array in self.arrays.items()}

    def renumber(self, shift: int) -> None:
        """Add to every seed."""
        self.trials["seed"] += shift
        self.history["seed"] += shift
        self.arrays["seeds"] = self.arrays["seeds"] + shift

    def select(self, tokens: np.ndarray, instance: int = 0) -> None:
        """Let an instance select other tokens, with a consistent and proved SVM in both norms."""
        self.array("selected", lambda _: tokens, instance)
        names = ("X", "Z", "selected", "mask")
        X, Z, chosen, mask = (torch.from_numpy(self.arrays[name][[instance]]) for name in names)
        for norm in ("frobenius", "nuclear"):
            found = solve_svm(X, Z, chosen, norm, mask)
            for name, value in svms.arrays(norm, found).items():
                self.array(name, lambda _, v=value: np.asarray(v)[0], instance)
            for name, value in svms.columns(norm, found).items():
                self.cell(name, np.asarray(value)[0], instance)

    def written(self, folder: Path) -> Path:
        """Write the record below `folder` with fitting checksums, and return its own folder."""
        run = self.run
        if self.rehash:
            config = {**run["config"], "extensions": run["extension_code"]}
            text = json.dumps([run["version"], config], sort_keys=True)
            run["signature"] = hashlib.sha256(text.encode()).hexdigest()
        inside = folder / folder_name(run["options"], run["config"], run["signature"])
        inside.mkdir(parents=True)
        made = RunRecord(self.trials, self.history, self.arrays, run["timings_s"])
        known = {key: value for key, value in run.items() if key not in ("files", "checksum")}
        write(inside, [made], known)
        if not self.recount:
            for name in ("state", "wanted", "drawn", "accepted", "statuses"):
                stated = record.read_json(inside / "run.json")
                stated.pop("checksum", None)
                write_json(inside / "run.json", {**stated, name: run[name]})
        return inside


def changed(
    value: object, dtype: object, random: np.random.Generator, size: float = 1.0,
    by: float = 1e-3, zero: float = 1e-12,
) -> object:  # fmt: skip
    """Return another value of the type: another word, or a number that is relatively `by` away.

    Zero, and what is at most `zero` beside values of this size, becomes 1e-3 of it.
    """
    if value is pd.NA or value is None:
        return True if str(dtype) == "boolean" else 1
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, str | np.str_):
        return "solved" if value != "solved" else "undecided"
    if isinstance(value, int | np.integer):
        return int(value) + 1
    if np.isnan(value):
        return 0.5
    if not np.isfinite(value):
        return 1.0
    return value * (1 + by * random.choice([-1, 1])) if abs(value) > zero * size else 1e-3 * size


def config_of(group: str, field: str, value: object, rehash: bool = True):
    return stated("config", *filter(None, [group]), field, value=value, rehash=rehash)


def _edit(name: str):
    return lambda *given: lambda forgery: getattr(forgery, name)(*given)


cell, curve, array = map(_edit, ("cell", "curve", "array"))
"""Forgeries by one edit of these methods."""


def stated(*keys: str, value: object, recount: bool = True, rehash: bool = False):
    """Change a field of `run.json`; without `recount` also one that the writer counts."""

    def forge(f: Forgery) -> None:
        place = f.run
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        f.recount, f.rehash = recount, rehash

    return forge


def refusal(folder: Path) -> str:
    """Return why the record in `folder` is refused; empty if it is not."""
    try:
        found = prove(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "; ".join(f"{what} {seed}: {why}" for what, seed, why in found.refusals)
