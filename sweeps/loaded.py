"""`attnsvm.load`: the runs of folders as tidy tables, columns named as on the command line."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.config.names import did_you_mean
from attnsvm.display.results import Summarized
from attnsvm.record import one_line, shortened
from attnsvm.record.folder import read_solutions

from .aggregate import SweepFrames
from .aggregate import load as frames_of
from .chart import Chart, Tables, chart_of, chosen_rows, spec_of

log = logging.getLogger(__name__)


class LoadedSweep(Summarized):
    """The runs of one or several folders.

    Runs that are missing, failed or damaged are in `runs` with their state and reason. What each
    column says: `attnsvm --columns`, docs/columns.md; the fields of the config: `attnsvm --help`.

    Attributes
    ----------
    frames : SweepFrames
        The tables from which reports are made; columns of the config have their last words only.
    """

    def __init__(self, frames: SweepFrames) -> None:
        self.frames = frames

    @property
    def axes(self) -> tuple[str, ...]:
        """What tells cells apart, config fields, layer and head, named as on the command line."""
        typed = self.frames.typed
        return tuple(typed.get(name, name) for name in self.frames.axes.names)

    @property
    def left_out(self) -> pd.DataFrame:
        """The runs without rows in `trials`: run, state and reason; `load` says how many."""
        return self.frames.incomplete[["run", "state", "reason"]].reset_index(drop=True)

    @property
    def statuses(self) -> dict[str, int]:
        """Status -> number of instances; those without a record have the state of their run."""
        return self.frames.statuses

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row for each instance, with its run, the fields in which runs differ, its numbers.

        An instance that several runs of a cell hold is there once.
        """
        kept = {"run", *self.frames.axes.names}
        dropped = [name for name in self.frames.typed if name not in kept]
        return self._typed(self.frames.trials.drop(columns=dropped, errors="ignore"))

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row for each instance, `step` and `quantity`, with its `value`.

        Words, such as the run and the quantity, are categories: two bytes a row.
        """
        history = self.frames.history
        axes = {name: _plain(history[name]) for name in self.frames.axes.of_runs if name in history}
        return self._typed(history.assign(**axes))

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each run with state, reason, counts, timings, provenance, all config fields."""
        return self.frames.runs.rename(columns=self.frames.typed)

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
        if run not in self.frames.folders:
            near = one_line(did_you_mean(str(run), self.frames.folders))
            raise ValueError(f"run={one_line(str(run))!r}: {near}must be a name in the column run")
        return read_solutions(self.frames.folders[run])

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
        remarks = [self.frames.not_shown, self.frames.versions, self.frames.left_out]
        return chart_of(self._tables, spec_of(x, y, parts), remarks)

    def chosen(self, where: Mapping[str, str]) -> SweepFrames:
        """Return the records of the instances with these values of columns.

        ChartError if there are none, or no such column.
        """
        rows, frames = chosen_rows(self._tables, self.trials, where), self.frames
        runs, history = (
            table[table["run"].isin(set(rows["run"]))] for table in (frames.runs, frames.history)
        )
        return replace(frames, trials=frames.trials.loc[rows.index], runs=runs, history=history)

    @property
    def _tables(self) -> Tables:
        return Tables(self.trials, self.history, self.runs, self.axes)

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
        frames = self.frames
        lines = {
            "sweep": one_line(frames.name or frames.directory.resolve().name),
            "runs": _counted(frames.runs["state"].value_counts().to_dict()),
            "instances": _counted(self.statuses),
            "differ": ", ".join(map(one_line, self.axes)) or "nothing",
        }
        again = {"repeated": frames.repeated, "repeated and different": frames.disagreeing}
        again |= {"records of other plans": frames.elsewhere}
        return lines | {name: count for name, count in again.items() if count}

    def _typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with run and axes first, columns named as on the command line."""
        first = [name for name in ("run", *self.frames.axes.names) if name in table]
        ordered = table[[*first, *(name for name in table if name not in first)]]
        return ordered.rename(columns=self.frames.typed)


def _plain(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of categories that are numbers as numbers."""
    kind = column.cat.categories.dtype
    if not pd.api.types.is_numeric_dtype(kind):
        return column
    return column.astype(float if column.hasnans else kind)


def _counted(counts: dict[Any, int]) -> str:
    return ", ".join(f"{count} {one_line(str(name))}" for name, count in counts.items()) or "none"


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
    frames = frames_of(*map(Path, paths))
    for line in filter(None, (frames.not_shown, frames.versions, *frames.next)):
        log.warning("%s: %s", shortened(", ".join(map(str, paths))), one_line(line))
    return LoadedSweep(frames)
