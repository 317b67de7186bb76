"""From a folder of runs to tidy frames; what is missing, failed or corrupt is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from attnsvm.record import read_tables
from attnsvm.state import PLAN_FILE, RUN_FILE, planned, run_state
from attnsvm.storage import CorruptRecordError

CELL_KEYS = {
    "tokens": ("selection", "tokens"),
    "n": ("data", "n"),
    "T": ("data", "T"),
    "d": ("data", "d"),
    "m": ("parameterization", "m"),
    "lam": ("head", "lambda"),
    "learned_head": ("head", "train"),
    "causal": ("model", "causal"),
    "query": ("model", "query"),
    "lr": ("optimizer", "lr"),
    "steps": ("optimizer", "steps"),
    "growth": ("optimizer", "growth"),
    "gradient": ("optimizer", "gradient"),
    "ridge": ("optimizer", "ridge"),
    "init": ("optimizer", "init"),
}
"""Column -> (group, field): what tells a run's cell from the others."""


@dataclass(frozen=True)
class SweepFrames:
    """All that a sweep's folder holds.

    Attributes
    ----------
    name : str
        Name of the experiment, "" for an ad-hoc sweep.
    directory : Path
        The sweep's folder.
    runs : DataFrame
        One row per run: run (folder name), state (see `attnsvm.state.STATES`), reason, the
        options and cell keys of its config, counts, timings and provenance.
    trials, history : DataFrame
        The tables of all runs that are done, each row with its run and the run's cell keys. `run`
        is a category, and so are all words and keys of `history`: a byte or two a row.
    elsewhere : int
        Records in the folder that are of another grid than the sweep's present one.
    """

    name: str
    directory: Path
    runs: pd.DataFrame
    trials: pd.DataFrame
    history: pd.DataFrame
    elsewhere: int = 0

    @property
    def incomplete(self) -> pd.DataFrame:
        """The runs that are not done."""
        return self.runs[self.runs["state"] != "done"]


def load(directory: Path) -> SweepFrames:
    """Return what is on disk in a sweep's folder, complete or not.

    A folder with a plan (`sweep.json`) consists of the runs that the plan names; without one, of
    all folders below it that hold a record. A single run's folder is a sweep of one.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or holds neither a plan nor a record.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such folder")
    folders, runs = _run_folders(directory)
    others = {p.parent for p in directory.glob(f"*/{RUN_FILE}")} - set(folders)
    trials, history = _Stack(["run"]), _Stack(["run", "quantity", *_key_columns()])
    for folder in folders:
        row, tables = _run(folder)
        runs.append(row)
        if tables is not None:
            trials.add(tables[0], row)
            history.add(tables[1], row)
    frame = pd.DataFrame(runs)
    names = sorted(set(frame.get("sweep", pd.Series(dtype=object)).dropna()))
    return SweepFrames(
        name=names[0] if len(names) == 1 else "",
        directory=directory,
        runs=frame,
        trials=trials.frame(),
        history=history.frame(),
        elsewhere=len(others),
    )


def _run_folders(directory: Path) -> tuple[list[Path], list[dict[str, Any]]]:
    """Return the folders of the sweep's runs, and a row for its plan if that is corrupt."""
    if (directory / RUN_FILE).exists():
        return [directory], []
    rows: list[dict[str, Any]] = []
    try:
        if (plan := planned(directory)) is not None:
            return [directory / name for name in plan], []
    except CorruptRecordError as error:
        rows = [{"run": PLAN_FILE, "state": "corrupt", "reason": str(error)}]
    found = sorted(path.parent for path in directory.glob(f"*/{RUN_FILE}"))
    if not found and not rows:
        raise FileNotFoundError(f"{directory}: holds no record of a run (no */{RUN_FILE})")
    return found, rows


UNREADABLE = (CorruptRecordError, OSError, KeyError, TypeError, ValueError, pa.ArrowInvalid)
"""What reading a record raises that is not what was written, or cannot be read at all."""


def _run(folder: Path) -> tuple[dict[str, Any], tuple[pa.Table, pa.Table] | None]:
    """Return the row of a run and, if it is done, its tables."""
    found = run_state(folder, verify=False)  # reading verifies
    row: dict[str, Any] = {"run": folder.name, **(_described(found.run) if found.run else {})}
    row |= {"state": found.state, "reason": found.reason}
    if found.state != "done":
        return row, None
    try:
        return row, read_tables(folder, found.run)
    except UNREADABLE as error:
        return row | {"state": "corrupt", "reason": f"{type(error).__name__}: {error}"}, None


def _described(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the runs' frame that a `run.json` describes."""
    config = run["config"]
    keys = {key: config[group].get(field) for key, (group, field) in CELL_KEYS.items()}
    timings = run.get("timings_s", {})
    return {
        **run["options"],
        **keys,
        "sweep": run["sweep"],
        "wanted": run.get("wanted", config["trials"]),
        "drawn": run.get("drawn", 0),
        "accepted": run.get("accepted", 0),
        "until_accepted": config["selection"]["until_accepted"],
        "seed": config["seed"],
        "place": run.get("place", ""),
        "wall_s": sum(timings.values()),
        **{f"{stage}_s": seconds for stage, seconds in timings.items()},
        "device": run["device"],
        "version": run["version"],
        "git_revision": run["git_revision"],
        "code": run.get("code", ""),
        "python": run["python"],
        "packages": ", ".join(f"{k} {v}" for k, v in sorted(run["packages"].items())),
        "hardware": ", ".join(f"{k} {v}" for k, v in sorted(run["hardware"].items())),
        "overrides": " ".join(run["overrides"]),
    }


def _key_columns() -> tuple[str, ...]:
    return ("model", "parameterization", "head", "data", "optimizer", "loss", *CELL_KEYS)


class _Stack:
    """Tables of many runs, one below the other; each row gets its run and the run's cell keys.

    Arrow tables are put together as they are: a pandas frame for every run would cost twenty times
    as much.

    Parameters
    ----------
    categories : sequence of str
        Columns to hold as categories.
    """

    PARTS = 256  # so many tables are copied into one, whose columns lie together

    def __init__(self, categories: Sequence[str]) -> None:
        self.categories = categories
        self.whole: list[pa.Table] = []
        self.parts: list[pa.Table] = []
        self.counts: list[int] = []
        self.rows: list[Mapping[str, Any]] = []

    def add(self, table: pa.Table, row: Mapping[str, Any]) -> None:
        self.parts.append(table)
        self.counts.append(len(table))
        self.rows.append(row)
        if len(self.parts) == self.PARTS:
            self._join()

    def _join(self) -> None:
        joined = pa.concat_tables(self.parts, promote_options="permissive")
        self.whole.append(joined.combine_chunks())
        self.parts = []

    def frame(self) -> pd.DataFrame:
        if not self.rows:
            return pd.DataFrame()
        if self.parts:
            self._join()
        measured = pa.concat_tables(self.whole, promote_options="permissive").to_pandas()
        keys = pd.DataFrame(self.rows, columns=["run", *_key_columns()], dtype=object)
        measured, runs = map(self._categorised, (measured, keys.infer_objects()))
        of_rows = runs.take(np.repeat(np.arange(len(runs)), self.counts))
        return pd.concat([measured, of_rows.set_axis(measured.index)], axis=1)

    def _categorised(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.astype({name: "category" for name in self.categories if name in table})
