"""`attnsvm.load`: from folders of runs to the tidy tables of `LoadedSweep`."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from attnsvm import record
from attnsvm.config.identity import recorded_fields
from attnsvm.display.pace import each
from attnsvm.record import one_line
from attnsvm.record.files import refused
from attnsvm.record.stored import StoredRun

from . import cells
from .loaded import LoadedSweep

PROVENANCE = ("device", "version", "git_revision", "code", "python")
"""Fields of `run.json` that say what made the record."""


log = logging.getLogger(__name__)


def load(*paths: str | PathLike[str]) -> LoadedSweep:
    """Return the runs of folders: each of a sweep or of a single run; several as one sweep.

    How many runs have no rows, and why, is logged as a warning; `left_out` lists them.

    Parameters
    ----------
    *paths : str or path
        The folders.

    Raises
    ------
    FileNotFoundError
        If a folder does not exist or holds neither a plan nor a record.
    TypeError
        Without a folder.
    """
    if not paths:
        raise TypeError("load: must be given the folder of a sweep or of a run")
    sweep = read_sweep(*map(Path, paths))
    for line in filter(None, (sweep.not_shown, sweep.versions, *sweep.next)):
        log.warning("%s: %s", record.shortened(", ".join(map(str, paths))), one_line(line))
    return sweep


def read_sweep(*directories: Path) -> LoadedSweep:
    """Return the content of a sweep's folder, complete or not; of several as one sweep.

    Its runs are those of `attnsvm.record.sweep_folder`, which raises FileNotFoundError.
    """
    contents = [record.sweep_folder(directory) for directory in directories]
    places: dict[tuple[str, ...], tuple[record.Plan, record.RunState | None]] = {}
    for content in contents:
        parent = (content.runs[0].parent if content.runs else content.directory).resolve().parts
        for name, damage in content.without_folder.items():
            places.setdefault((*parent, name), (content.plan, damage))
        for run in content.runs:
            places.setdefault((*parent, run.name), (content.plan, None))
    names, rows, configs = _names_of([*places]), list[dict[str, Any]](), list[Mapping[str, Any]]()
    trials, history, folders = dict[int, pa.Table](), dict[int, pa.Table](), dict[str, Path]()
    room = record.usable_memory() // 2
    for name, place in zip(each("reading record", names), places, strict=True):
        plan, state = places[place]
        row, config, tables = _run(Path(*place), room, state)
        if tables is not None:
            room -= sum(table.nbytes for table in tables)
            trials[len(rows)], curves = tables
            at = curves.column_names.index("quantity")
            encoded = curves["quantity"].dictionary_encode()
            history[len(rows)] = curves.set_column(at, "quantity", encoded)
        if state is None:
            folders[name] = Path(*place)
        rows.append({"run": name, **row})
        configs.append(config or plan.fields.get(place[-1], {}))
    runs = pd.DataFrame(rows)
    runs[cells.SEED] = pd.Series([cell.get(cells.SEED) for cell in configs])
    known = cells.in_order(
        {*cells.SCHEMA, *(name for cell in configs for name in cell if name != cells.SEED)}
    )
    fields = cells.table_of(configs, known)
    differ = cells.differing([cell for cell in configs if cell])
    runs = pd.concat([runs, fields], axis=1)
    # A copy holds columns of one type together: pandas warns where hundreds lie apart.
    rows_of_trials = _stacked(trials, runs[["run", *fields]]).copy()
    sweep = LoadedSweep(
        name=_shared(runs, "sweep"),
        directory=directories[0],
        runs=runs,
        rows=rows_of_trials,
        curves=_stacked(history, runs[["run"]]),
        cells=cells.CellAxes.of(fields[differ]).with_rows(rows_of_trials),
        fields=tuple(known),
        folders=folders,
        question=_shared(runs, "question"),
        command=_command(contents[0].plan, runs) if len(contents) == 1 else "",
        elsewhere=sum(
            len(set(record.recorded(content.directory)) - set(content.runs)) for content in contents
        ),
    )
    return _each_instance_once(sweep)


def _names_of(places: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the last parts of every place, as many as tell all apart."""
    for depth in range(1, max(map(len, places), default=0) + 1):
        words = ("/".join(parts[-depth:]) for parts in places)
        names = [word.encode(errors="replace").decode() for word in words]  # need not be UTF-8
        if len(set(names)) == len(names):
            return names
    return []


def _shared(runs: pd.DataFrame, column: str) -> str:
    """Return the common value of all runs that have one, "" if there is none or several."""
    values = set(runs[column].dropna().astype(str)) if column in runs else set()
    return values.pop() if len(values) == 1 else ""


def _run(
    folder: Path, room: int, known: record.RunState | None
) -> tuple[dict[str, Any], dict[str, Any], tuple[pa.Table, pa.Table] | None]:
    """Return the row of a run, the fields of its config and, if it is done, its tables.

    The state is `known` if it has no folder. Tables of more than `room` bytes are refused: the
    report of the others is worth more.
    """
    stored = known or record.run_state(folder, verify=False)  # reading the tables verifies them
    row: dict[str, Any] = {"place": ""} | (_described(stored.run) if stored.run else {})
    row |= {"state": stored.state, "reason": stored.reason}
    fields = recorded_fields(stored.run["config"], stored.run["options"]) if stored.run else {}
    if not stored.finished:
        return row, fields, None
    try:
        with refused("", OSError, KeyError, TypeError, ValueError):
            return row, fields, StoredRun(folder, stored.run).tables(room)
    except record.CorruptRecordError as error:
        return row | {"state": error.state, "reason": record.shortened(error)}, fields, None


def _described(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the frame of runs for the content of a `run.json`, besides its config."""
    timings = run.get("timings_s", {})
    return {
        "sweep": run["sweep"],
        "question": run.get("question"),
        "wanted": run.get("wanted", run["config"]["trials"]),
        "drawn": run.get("drawn", 0),
        "accepted": run.get("accepted", 0),
        "place": run.get("place", ""),
        "wall_s": sum(timings.values()),
        **{f"{stage}_s": seconds for stage, seconds in timings.items()},
        **{name: run[name] for name in PROVENANCE},
        **{
            name: ", ".join(f"{k} {v}" for k, v in sorted(run[name].items()))
            for name in ("packages", "hardware")
        },
        "overrides": shlex.join(run["overrides"]),
    }


def _command(plan: record.Plan, runs: pd.DataFrame) -> str:
    """Return the command that begins the sweep or the single run again, "" if it is not known."""
    if plan.command is not None:
        return shlex.join(["attnsvm", *plan.command])
    if not plan.runs and len(runs) == 1 and "overrides" in runs:
        return f"attnsvm {runs['overrides'].iloc[0]}"
    return ""


def _each_instance_once(sweep: LoadedSweep) -> LoadedSweep:
    """Return the sweep with the first row of every instance."""
    rows = sweep.rows
    if rows.empty:
        return sweep
    again, disagreeing = cells.repeated(rows, sweep.runs, sweep.axes)
    kept = rows[~again].reset_index(drop=True)
    key = cells.row_key(kept)
    curves = sweep.curves.merge(kept[key], on=key) if again.any() else sweep.curves
    count = int(again.sum())
    return replace(sweep, rows=kept, curves=curves, repeated=count, disagreeing=disagreeing)


def _stacked(tables: dict[int, pa.Table], keys: pd.DataFrame) -> pd.DataFrame:
    """Return the tables of runs as one frame, each row with the row of `keys` at its run's place.

    Arrow tables are concatenated directly: a pandas frame for every run would take 20 times as
    long. The run and words of the tables are categories. Leaves `tables` empty.
    """
    if not tables:
        return pd.DataFrame()
    counts, keys = [*map(len, tables.values())], keys.iloc[[*tables]].reset_index(drop=True)
    whole = pa.concat_tables(list(tables.values()), promote_options="permissive")
    whole = whole.unify_dictionaries()
    tables.clear()  # each Arrow column is freed as soon as it is copied
    measured = whole.to_pandas(self_destruct=True, split_blocks=True)
    del whole
    measured = measured.drop(columns=[name for name in keys if name in measured])
    for name in measured.select_dtypes("category"):
        words = measured[name].cat
        measured[name] = words.reorder_categories(sorted(words.categories))
    of_rows = keys.astype({"run": "category"}).take(np.repeat(np.arange(len(keys)), counts))
    return pd.concat([measured, of_rows.set_axis(measured.index)], axis=1)
