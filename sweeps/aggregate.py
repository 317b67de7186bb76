"""From a folder of runs to tidy frames: the recorded instances, and the state of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from attnsvm.record import (
    PLAN_FILE,
    RUN_FILE,
    UNREADABLE,
    CorruptRecordError,
    planned,
    read_tables,
    run_state,
)
from sweeps.cells import CELL_KEYS, FIELDS


@dataclass(frozen=True)
class SweepFrames:
    """The content of a sweep's folder.

    Attributes
    ----------
    name : str
        Name of the experiment, "" for an ad-hoc sweep.
    directory : Path
        The sweep's folder.
    runs : DataFrame
        One row per run: run (folder name), state (see `attnsvm.record.STATES`), reason, the
        options and cell keys of its config, counts, timings and provenance.
    trials, history : DataFrame
        The tables of all runs that are done, each row with its run and the run's cell keys. `run`
        is categorical, and so are all words and keys of `history`: one or two bytes per row.
    question : str
        The question of the experiment, "" if the records have none.
    elsewhere : int
        Number of records in the folder that are not in the present plan.
    """

    name: str
    directory: Path
    runs: pd.DataFrame
    trials: pd.DataFrame
    history: pd.DataFrame
    question: str = ""
    elsewhere: int = 0

    @property
    def incomplete(self) -> pd.DataFrame:
        """The runs that are not done."""
        return self.runs[self.runs["state"] != "done"]

    @property
    def statuses(self) -> dict[str, int]:
        """Status -> number of instances, the most frequent first."""
        if self.trials.empty:
            return {}
        return {str(s): int(n) for s, n in self.trials["status"].value_counts().items()}


def load(directory: Path) -> SweepFrames:
    """Return the content of a sweep's folder, complete or not.

    A folder with a plan (`sweep.json`) consists of the runs in the plan. Without a plan it consists
    of all its subfolders with a record. The folder of a single run is a sweep of one run.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or holds neither a plan nor a record.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such folder")
    folders, runs = _run_folders(directory)
    others = {p.parent for p in directory.glob(f"*/{RUN_FILE}")} - set(folders)
    trials, history = _Stack(["run"]), _Stack(["run", "quantity", *CELL_KEYS])
    for folder in folders:
        row, tables = _run(folder)
        runs.append(row)
        if tables is not None:
            trials.add(tables[0], row)
            history.add(tables[1], row)
    frame = pd.DataFrame(runs)
    return SweepFrames(
        name=_shared(frame, "sweep"),
        directory=directory,
        runs=frame,
        trials=trials.frame(),
        history=history.frame(),
        question=_shared(frame, "question"),
        elsewhere=len(others),
    )


def _shared(runs: pd.DataFrame, column: str) -> str:
    """Return the common value of all runs that have one, "" if there is none or several."""
    values = set(runs[column].dropna().astype(str)) if column in runs else set()
    return values.pop() if len(values) == 1 else ""


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


def _run(folder: Path) -> tuple[dict[str, Any], tuple[pa.Table, pa.Table] | None]:
    """Return the row of a run and, if it is done, its tables."""
    found = run_state(folder, verify=False)  # reading the tables verifies them
    row: dict[str, Any] = {"run": folder.name, **(_described(found.run) if found.run else {})}
    row |= {"state": found.state, "reason": found.reason}
    if found.state != "done":
        return row, None
    try:
        return row, read_tables(folder, found.run)
    except UNREADABLE as error:
        return row | {"state": "corrupt", "reason": f"{type(error).__name__}: {error}"}, None


def _described(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the frame of runs for the content of a `run.json`."""
    config = run["config"]
    keys = {field: config[group].get(field) for field, group in FIELDS.items()}
    timings = run.get("timings_s", {})
    return {
        **run["options"],
        **keys,
        "sweep": run["sweep"],
        "question": run.get("question"),
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


class _Stack:
    """Tables of many runs, concatenated; each row gets its run and the run's cell keys.

    Arrow tables are concatenated directly: a pandas frame for every run would take 20 times as
    long.

    Parameters
    ----------
    categories : sequence of str
        Columns to store as categories.
    """

    PARTS = 256  # number of tables that are copied together into one with contiguous columns

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
        keys = pd.DataFrame(self.rows, columns=["run", *CELL_KEYS], dtype=object)
        measured, runs = map(self._categorised, (measured, keys.infer_objects()))
        of_rows = runs.take(np.repeat(np.arange(len(runs)), self.counts))
        return pd.concat([measured, of_rows.set_axis(measured.index)], axis=1)

    def _categorised(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.astype({name: "category" for name in self.categories if name in table})
