"""A genuine record in memory, to be edited and written again with checksums that fit."""

import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import pandas as pd

from attnsvm.config.identity import digest_before_formats, folder_name
from attnsvm.record.folder import write
from attnsvm.record.schema import RunRecord
from attnsvm.record.stored import StoredRun
from attnsvm.verify.rerun import ABSOLUTE
from attnsvm.verify.run import prove
from tests.verify.kinds import recorded, written


@dataclass
class Forgery:
    """Tables, arrays and `run.json` of a record; edits change a copy.

    `rehash` recomputes signature and folder name from the edited config, as a careful forger does.
    """

    trials: pd.DataFrame
    history: pd.DataFrame
    arrays: dict[str, np.ndarray]
    run: dict[str, Any]
    rehash: bool = False

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the record in `folder`."""
        run = StoredRun(folder)
        stored = run.record()
        return cls(stored.trials, stored.history, dict(stored.solutions), dict(run.content))

    def cell(self, column: str, value: Any, row: int = 0) -> None:
        """Change a cell of the table: to a value, or by a function of it."""
        if callable(value):
            value = value(self.trials.loc[row, column])
            value = bool(value) if self.trials[column].dtype == "boolean" else value
        self.trials.loc[row, column] = value

    def everywhere(self) -> list[str]:
        """Change all cells of the first accepted row but those that hide others; say which."""
        hiding = ("seed", "status")
        row = self.trials.index[self.trials["status"] == "ok"][0]
        columns = [column for column in self.trials if column not in hiding]
        for column in columns:
            self.cell(column, changed, row)
        return columns

    def array(self, name: str, change: Any, instance: int = 0) -> None:
        """Change one instance of an array by a function of it."""
        self.arrays[name] = self.arrays[name].copy()
        self.arrays[name][instance] = change(self.arrays[name][instance])

    def keep(self, seeds: object) -> None:
        """Keep the rows, curves and arrays of these instances."""
        part = RunRecord(self.trials, self.history, self.arrays).of_seeds(seeds)
        self.trials, self.history, self.arrays = part.trials, part.history, dict(part.solutions)

    def config(self, *keys: str, value: object) -> None:
        """Change a field of the config."""
        part = self.run["config"]
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]], self.rehash = value, True

    def written(self, folder: Path) -> Path:
        """Write the record below `folder` with fitting checksums, and return its own folder."""
        run = self.run
        if self.rehash:
            code, version = run["extension_code"], run["version"]
            run["signature"] = digest_before_formats(run["config"], code, version)
        inside = folder / folder_name(run["options"], run["config"], run["signature"])
        inside.mkdir(parents=True)
        record = RunRecord(self.trials, self.history, self.arrays, run["timings_s"])
        known = {key: value for key, value in run.items() if key not in ("files", "checksum")}
        write(inside, [record], known)
        return inside


def changed(value: object) -> object:
    """Return another value of the type: another word, or a number that is a little away."""
    if value is pd.NA or value is None:
        return 1
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, str | np.str_):
        return "solved" if value != "solved" else "undecided"
    if isinstance(value, int | np.integer):
        return int(value) + 1
    if not np.isfinite(value):
        return 0.5
    smallest = 1e6 * ABSOLUTE  # changes of smaller numbers are within the absolute tolerance
    return value * (1 + 1e-5) if abs(value) > smallest else 1e-3


@lru_cache
def _genuine(name: str) -> Forgery:
    with TemporaryDirectory() as folder:
        return Forgery.of(written(Path(folder), *recorded(name)))


def genuine(name: str) -> Forgery:
    """Return a record of a kind, to be edited."""
    return copy.deepcopy(_genuine(name))


def refusal(folder: Path) -> str:
    """Return what differs in the record in `folder`; empty if nothing does."""
    try:
        proof = prove(folder, 10**6)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "; ".join(f"seed {seed}: {why}" for seed, why in proof.differences)
