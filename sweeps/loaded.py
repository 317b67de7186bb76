"""The runs of folders as tidy tables, columns named as on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from attnsvm import record
from attnsvm.config.names import did_you_mean
from attnsvm.config.words import MEANINGS
from attnsvm.display.results import Summarized
from attnsvm.record import one_line
from attnsvm.record.stored import StoredRun

from .cells import CellAxes, unrecorded
from .chart import Chart, chart_of, chosen_rows, spec_of

UNTIL_ACCEPTED = "selection.until_accepted"

HIDDEN = ("unreadable", "other_version", "other_run", "too_large")
"""States of runs whose record may be whole: their instances can be shown at another time."""


@dataclass(frozen=True, repr=False, eq=False)
class LoadedSweep(Summarized):
    """The runs of one or several folders.

    Runs that are missing, failed or damaged are in `runs` with their state and reason. What each
    column says: `attnsvm --columns`; the fields of the config: `attnsvm --help`.

    Attributes
    ----------
    name, question : str
        The experiment and what it asks; "" for an ad-hoc sweep.
    directory : Path
        The sweep's folder; the first one, if there are several.
    runs : DataFrame
        A row for each run with state, reason, counts, timings, provenance, all config fields.
    rows : DataFrame
        A row for each instance, as in `trials`, with all fields of its run's config.
    curves : DataFrame
        A row for each instance, `step` and `quantity`, with its `value`. Words, such as the run and
        the quantity, are categories: two bytes a row.
    cells : CellAxes
        What tells cells apart: the config fields in which the runs differ, also those without a
        record; then layer and head of attention, where rows differ in them.
    fields : tuple of str
        The columns of `runs` and `rows` that are fields of the config.
    folders : mapping
        Run -> its folder.
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
    rows: pd.DataFrame
    curves: pd.DataFrame
    cells: CellAxes = field(default_factory=CellAxes)
    fields: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    question: str = ""
    command: str = ""
    elsewhere: int = 0
    repeated: int = 0
    disagreeing: int = 0

    @property
    def axes(self) -> tuple[str, ...]:
        """What tells cells apart, config fields, layer and head, named as on the command line."""
        return self.cells.names

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row for each instance, with its run, the fields in which runs differ, its numbers.

        An instance that several runs of a cell hold is there once.
        """
        first = [name for name in ("run", *self.axes) if name in self.rows]
        return self.rows[
            [*first, *self.rows.columns.difference([*first, *self.fields], sort=False)]
        ]

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row for each instance, `step` and `quantity`, with its `value` and the axes."""
        if "run" not in self.curves:
            return self.curves
        axes = self.runs[["run", *self.cells.of_runs]]
        words = axes.select_dtypes(exclude=["number", "bool"])
        types = dict.fromkeys(words, "category") | {"run": self.curves["run"].dtype}
        history = self.curves.merge(axes.astype(types), "left", on="run")
        first = [*axes, *self.cells.of_rows]
        return history[[*first, *history.columns.difference(first, sort=False)]]

    @property
    def incomplete(self) -> pd.DataFrame:
        """The runs that are neither done nor stale."""
        return self.runs[~self.runs["state"].isin(record.FINISHED)]

    @property
    def unfinished(self) -> pd.DataFrame:
        """The runs that are neither done nor stale, without skipped cells, which cannot be."""
        return self.incomplete[self.incomplete["state"] != "skipped"]

    @property
    def finished(self) -> pd.DataFrame:
        """The runs whose instances are in `rows`."""
        return self.runs[self.runs["state"].isin(record.FINISHED)]

    @property
    def hidden(self) -> int:
        """The number of runs whose record may be whole, but cannot be used here or now."""
        return int(self.runs["state"].isin(HIDDEN).sum())

    @property
    def left_out(self) -> pd.DataFrame:
        """Run, state and reason of the runs without rows in `trials`; `load` says how many."""
        return self.incomplete[["run", "state", "reason"]].reset_index(drop=True)

    @property
    def statuses(self) -> dict[str, int]:
        """Status -> number of instances; those without a record have the state of their run.

        The most frequent comes first.
        """
        counted = unrecorded(self.runs, self.rows, self.cells.of_runs)
        counted.update(self.rows["status"] if len(self.rows) else ())
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
        if {UNTIL_ACCEPTED, "accepted"} <= set(done):  # else no run.json could be read
            short = done[done[UNTIL_ACCEPTED].eq(True) & (done["accepted"] < done["wanted"])]
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
    def duplicates(self) -> str:
        """How many rows hold an instance again, as a note; empty if none does."""
        words = f"{self.repeated} duplicate rows left out: the same instance in another run."
        if self.disagreeing:
            words += f" {self.disagreeing} of them hold other results than the row that is kept."
        return words if self.repeated else ""

    @property
    def next(self) -> list[str]:
        """What to do about the runs in states other than done, a line for each state."""
        known = MEANINGS["next"]
        states = self.runs["state"].value_counts().items()
        return [f"{n} {state}: {known[state]}" for state, n in states if state in known]

    def solutions(self, run: str) -> dict[str, np.ndarray]:
        """Return the arrays of a run, instance axis first; `seeds` says which instances.

        Parameters
        ----------
        run : str
            Its name in the column `run`.

        Raises
        ------
        ValueError
            If there is no such run.
        CorruptRecordError
            If it is not done, or a file differs from what was written.
        """
        if run not in self.folders:
            near = one_line(did_you_mean(str(run), self.folders))
            raise ValueError(f"run={one_line(str(run))!r}: {near}must be a name in the column run")
        return StoredRun(self.folders[run]).arrays()

    def chart(self, x: str, y: str, **parts: Any) -> Chart:
        """Return table, counts, notes and figure of any column against any other.

        Parameters
        ----------
        x, y, **parts
            The fields of `sweeps.chart.ChartSpec`: x, y, hue, col and row are columns of `trials`
            or fields of the config; with x="step", y is a quantity of `history`.

        Raises
        ------
        ChartError
            If it cannot be drawn; the message says what it must be.
        """
        remarks = [self.not_shown, self.versions, self.duplicates]
        return chart_of(self, spec_of(x, y, parts), remarks)

    def chosen(self, where: Mapping[str, str]) -> Self:
        """Return the records of the instances with these values of columns.

        ChartError if there are none, or no such column.
        """
        rows = chosen_rows(self, where)
        runs, curves = (
            table[table["run"].isin(set(rows["run"]))] for table in (self.runs, self.curves)
        )
        if "run" in curves:
            curves = curves.assign(run=curves["run"].cat.remove_unused_categories())
        return replace(self, rows=rows, runs=runs, curves=curves)

    def plot(self, x: str, y: str, **parts: Any) -> Any:
        """Draw any column against any other; return matplotlib axes, (row, col).

        Parameters
        ----------
        x, y, **parts
            As in `chart`, which gives the numbers too.

        Returns
        -------
        numpy.ndarray of matplotlib.axes.Axes
            One for each value of row and col; a notebook shows their figure.
        """
        return self.chart(x, y, **parts).show()

    def summary(self) -> dict[str, Any]:
        """Return what was swept, and the runs and instances counted by how they ended."""
        lines = {
            "sweep": one_line(self.name or self.directory.resolve().name),
            "runs": _counted(self.runs["state"].value_counts().to_dict()),
            "instances": _counted(self.statuses),
            "differ": ", ".join(map(one_line, self.axes)) or "nothing",
        }
        again = {"repeated": self.repeated, "repeated and different": self.disagreeing}
        again |= {"records of other plans": self.elsewhere}
        return lines | {name: count for name, count in again.items() if count}


def _counted(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} {one_line(str(name))}" for name, count in counts.items()) or "none"
