"""From a folder of runs to tidy frames: the recorded instances, and the state of every run."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from attnsvm import record
from attnsvm.config.identity import recorded_fields
from attnsvm.config.words import MEANINGS
from attnsvm.display.pace import each
from attnsvm.record.folder import read_tables

from . import cells
from .cells import disagreements, first_rows, unrecorded

PROVENANCE = ("device", "version", "git_revision", "code", "python")
"""Fields of `run.json` that say what made the record."""


HIDDEN = ("unreadable", "other_version", "other_run", "too_large")
"""States of runs whose record may be whole: their instances can be shown at another time."""


@dataclass(frozen=True)
class SweepFrames:
    """The content of a sweep's folder.

    Attributes
    ----------
    name, question : str
        The experiment and what it asks; "" for an ad-hoc sweep.
    directory : Path
        The sweep's folder; the first one, if there are several.
    runs : DataFrame
        One row per run: run (folder name), state (see `attnsvm.record.STATES`), reason, the
        fields of its config, counts, timings and provenance.
    trials : DataFrame
        The tables of all runs that are done, every instance of a cell once, each row with its run
        and the fields of the run's config.
    history : DataFrame
        The histories of these instances, each row with its run and the axes. `run` is
        categorical, and so are all words and axes: one or two bytes per row.
    axes : CellAxes
        The config fields in which the runs differ, also those without a record; then layer and
        head of attention, where rows differ in them.
    typed, folders : mapping
        The columns that are fields of the config -> these as users type them; run -> its folder.
    command : str
        The command that began the sweep, as a shell takes it; "" if it is not known.
    elsewhere : int
        Number of records in the folder that are not in the present plan.
    repeated, disagreeing : int
        Number of rows that hold an instance of the same cell again and were left out; how many of
        them hold other results than the one that is kept.
    """

    name: str
    directory: Path
    runs: pd.DataFrame
    trials: pd.DataFrame
    history: pd.DataFrame
    axes: cells.CellAxes = field(default_factory=cells.CellAxes)
    typed: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    question: str = ""
    command: str = ""
    elsewhere: int = 0
    repeated: int = 0
    disagreeing: int = 0

    @property
    def incomplete(self) -> pd.DataFrame:
        """The runs that are not finished: neither done nor stale."""
        return self.runs[~self.runs["state"].isin(record.FINISHED)]

    @property
    def finished(self) -> pd.DataFrame:
        """The runs whose instances are in `trials`."""
        return self.runs[self.runs["state"].isin(record.FINISHED)]

    @property
    def hidden(self) -> int:
        """The number of runs whose record may be whole, but cannot be used here or now."""
        return int(self.runs["state"].isin(HIDDEN).sum())

    @property
    def statuses(self) -> dict[str, int]:
        """Status -> number of instances, the most frequent first.

        An instance without a record has the state of its run: failed, missing, ...
        """
        counted = unrecorded(self.runs, self.trials, self.axes.of_runs)
        counted.update(self.trials["status"] if len(self.trials) else ())
        return {status: n for status, n in counted.most_common() if n}

    @property
    def not_shown(self) -> str:
        """Which runs and instances are missing in the figures, as a note; empty if none."""
        states = self.incomplete["state"].value_counts()
        listed = ", ".join(f"{n} {state}" for state, n in states.items())
        lines = [f"Not shown: {listed} of {len(self.runs)} runs."] if listed else []
        if self.elsewhere:
            lines.append(f"Not shown: {self.elsewhere} records of other grids in the same folder.")
        done = self.finished
        if {"until_accepted", "accepted"} <= set(done):  # else no run.json could be read
            short = done[done["until_accepted"].eq(True) & (done["accepted"] < done["wanted"])]
            accepted, wanted = short["accepted"].sum(), short["wanted"].sum()
            stopped = (
                f"{len(short)} runs stopped: {accepted} accepted of {wanted} wanted instances."
            )
            lines += [stopped] if len(short) else []
        return " ".join(lines)

    @property
    def versions(self) -> str:
        """Which runs other code has made than this or than the others, as a note; empty if none."""
        count = int((self.runs["state"] == "stale").sum())
        words = f"{count} of {len(self.runs)} runs are stale, {record.STATES['stale']}."
        lines = [words] if count else []
        if "code" in self.runs and (codes := self.finished["code"].nunique()) > 1:
            lines.append(f"The records are of {codes} versions of the code.")
        return " ".join(lines)

    @property
    def next(self) -> list[str]:
        """What to do about the runs in states other than done, a line for each state."""
        states = self.runs["state"].value_counts().to_dict()
        return [
            f"{n} {state}: {MEANINGS['next'][state]}"
            for state, n in states.items()
            if state in MEANINGS["next"]
        ]

    @property
    def left_out(self) -> str:
        """How many rows hold an instance again, as a note; empty if none does."""
        words = f"{self.repeated} duplicate rows left out: the same instance in another run."
        if self.disagreeing:
            words += f" {self.disagreeing} of them hold other results than the row that is kept."
        return words if self.repeated else ""


def load(*directories: Path) -> SweepFrames:
    """Return the content of a sweep's folder, complete or not; of several as one sweep.

    Its runs are those of `attnsvm.record.sweep_folder`, which raises FileNotFoundError.
    """
    contents = [record.sweep_folder(directory) for directory in directories]
    damaged = {
        content.directory / record.PLAN_FILE: content.damage
        for content in contents
        if content.damage
    }
    planned = _each_once(contents)
    names = _names_of([*damaged, *planned])
    rows = [
        {"run": name, "state": damage.state, "reason": damage.reason}
        for name, damage in zip(names, damaged.values(), strict=False)
    ]
    names, configs = names[len(rows) :], list[Mapping[str, Any]]({} for _ in rows)
    trials, history = dict[int, pa.Table](), dict[int, pa.Table]()
    room, measured = record.usable_memory() // 2, set[str]()
    places = each("reading record", [*zip(names, planned.items(), strict=True)])
    for name, (folder, plan) in places:
        row, config, tables = _run(folder, room)
        if tables is not None:
            room -= sum(table.nbytes for table in tables)
            trials[len(rows)], curves = tables
            at = curves.column_names.index("quantity")
            encoded = curves["quantity"].dictionary_encode()
            history[len(rows)] = curves.set_column(at, "quantity", encoded)
            measured.update(trials[len(rows)].column_names, curves.column_names)
        rows.append({"run": name, **row})
        configs.append(config or plan.fields.get(folder.name, {}))
    runs = pd.DataFrame(rows)
    runs[cells.SEED] = pd.Series([cell.get(cells.SEED) for cell in configs])
    known = cells.in_order(
        {*cells.SCHEMA, *(name for cell in configs for name in cell if name != cells.SEED)}
    )
    short = cells.columns(known, {*runs, *measured})
    fields = cells.table_of(configs, short)
    typed = {column: name for name, column in short.items()}
    differ = cells.differing([cell for cell in configs if cell])
    axes = cells.CellAxes.of(fields[[short[name] for name in differ]], typed)
    runs = pd.concat([runs, fields], axis=1)
    # A copy holds columns of one type together: pandas warns where hundreds lie apart.
    rows_of_trials = _stacked(trials, runs[["run", *fields]], ["run"]).copy()
    axes = axes.with_rows(rows_of_trials)
    by = ["run", *axes.of_runs]
    frames = SweepFrames(
        name=_shared(runs, "sweep"),
        directory=directories[0],
        runs=runs,
        trials=rows_of_trials,
        history=_stacked(history, runs[by], by),
        axes=axes,
        typed=typed,
        folders=dict(zip(names, planned, strict=True)),
        question=_shared(runs, "question"),
        command=_command(contents[0].plan, runs) if len(contents) == 1 else "",
        elsewhere=sum(
            len(set(record.recorded(content.directory)) - set(content.runs)) for content in contents
        ),
    )
    return _each_instance_once(frames)


def _each_once(contents: Sequence[record.SweepFolder]) -> dict[Path, record.Plan]:
    """Return the folder of every run with its plan, once if a folder is given twice."""
    plans: dict[Path, tuple[Path, record.Plan]] = {}
    for content in contents:
        place = content.runs[0].parent.resolve() if content.runs else content.directory
        for run in content.runs:
            plans.setdefault(place / run.name, (run, content.plan))
    return dict(plans.values())


def _names_of(paths: Sequence[Path]) -> list[str]:
    """Return the last words of every path, as many as tell all apart."""
    names: list[str] = []
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        words = ("/".join(path.parts[-depth:]) for path in paths)
        names = [word.encode(errors="replace").decode() for word in words]  # need not be UTF-8
        if len(set(names)) == len(names):
            break
    return names


def _shared(runs: pd.DataFrame, column: str) -> str:
    """Return the common value of all runs that have one, "" if there is none or several."""
    values = set(runs[column].dropna().astype(str)) if column in runs else set()
    return values.pop() if len(values) == 1 else ""


def _run(
    folder: Path, room: int
) -> tuple[dict[str, Any], dict[str, Any], tuple[pa.Table, pa.Table] | None]:
    """Return the row of a run, the fields of its config and, if it is done, its tables.

    Tables of more than `room` bytes are refused: the report of the others is worth more.
    """
    stored = record.run_state(folder, verify=False)  # reading the tables verifies them
    row: dict[str, Any] = {"place": ""} | (_described(stored.run) if stored.run else {})
    row |= {"state": stored.state, "reason": stored.reason}
    fields = recorded_fields(stored.run["config"], stored.run["options"]) if stored.run else {}
    if not stored.finished:
        return row, fields, None
    try:
        return row, fields, read_tables(folder, stored.run, room)
    except record.CorruptRecordError as error:
        state, reason = error.state, record.shortened(error)
    except (OSError, KeyError, TypeError, ValueError) as error:
        state, reason = "corrupt", record.shortened(error)
    return row | {"state": state, "reason": reason}, fields, None


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


def _each_instance_once(frames: SweepFrames) -> SweepFrames:
    """Return the frames with the first row of every instance."""
    trials, history = frames.trials, frames.history
    if trials.empty:
        return frames
    first = first_rows(trials, frames.runs, frames.axes.names)
    again = trials.index != first
    if not again.any():
        return frames
    kept = trials[~again].reset_index(drop=True)
    return dataclasses.replace(
        frames,
        trials=kept,
        history=history.merge(kept[cells.row_key(kept)], on=cells.row_key(kept)),
        repeated=int(again.sum()),
        disagreeing=disagreements(trials, first),
    )


def _stacked(
    tables: dict[int, pa.Table], keys: pd.DataFrame, categories: Sequence[str]
) -> pd.DataFrame:
    """Return the tables of runs as one frame, each row with the row of `keys` at its run's place.

    Arrow tables are concatenated directly: a pandas frame for every run would take 20 times as
    long. `categories` are columns of `keys` to store as such. Leaves `tables` empty.
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
    of_runs = keys.astype(dict.fromkeys(categories, "category"))
    of_rows = of_runs.take(np.repeat(np.arange(len(keys)), counts))
    return pd.concat([measured, of_rows.set_axis(measured.index)], axis=1)
