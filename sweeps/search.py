"""What a search by Optuna found: the best run, and the objective over runs and parameters."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from yaml import YAMLError  # type: ignore[import-untyped]

from attnsvm.cli.objective import FORM, Objective
from attnsvm.record import CorruptRecordError, one_line, read_run
from attnsvm.record.files import open_regular

from . import statistics
from .cells import word
from .chart.chart import figure_of
from .chart.spec import ChartSpec
from .figures import Drawing
from .loaded import LoadedSweep

RESULTS = "optimization_results.yaml"
"""What Optuna's sweeper writes into the folder of its runs."""

MAX_BYTES = 2**20
"""Largest size of that file."""

WIDE = 30.0
"""Ratio of the largest to the least objective from which its axis is logarithmic."""


@dataclass(frozen=True)
class Search:
    """The runs of a search, in their order, with the column `objective`.

    `name` is the objective as it was given, `log` the parameters that were sampled on a
    logarithmic scale, and `best` the line on the best run.
    """

    name: str
    table: pd.DataFrame
    parameters: Sequence[str]
    log: Sequence[str]
    best: str

    def drawings(self) -> list[Drawing]:
        """Return the figures: the objective over the trials, and over each parameter."""
        values = self.table["objective"]
        y = ("y",) if values.min() > 0 and values.max() > WIDE * values.min() else ()
        return [self._drawing(name, y) for name in ("trial", *self.parameters)]

    def _drawing(self, name: str, log: tuple[str, ...]) -> Drawing:
        known = self.table.dropna(subset="objective")
        if pd.api.types.is_numeric_dtype(known[name]):
            log += ("x",) * (name in self.log)
            make = partial(figure_of, known, ChartSpec(name, "objective", kind="scatter", log=log))
        else:
            medians = statistics.summaries(known, [name], "objective", "median")
            spec = ChartSpec(name, "objective", kind="box", log=log)
            make = partial(figure_of, medians, spec, None, known)
        caption = f"Objective {self.name} over {word(name)}, a point for each trial."
        return Drawing(f"search_{word(name)}", caption, make, lambda: [self.best])


def search_of(sweep: LoadedSweep) -> Search | None:
    """Return the search whose runs are in a sweep's folder; None if it has no result."""
    try:
        with open_regular(sweep.directory / RESULTS, MAX_BYTES) as stream:
            results: Any = OmegaConf.to_container(OmegaConf.create(stream.read().decode()))
        best_value, parameters = float(results["best_value"]), results["best_params"]
    except (OSError, CorruptRecordError, YAMLError, KeyError, TypeError, ValueError):
        return None
    runs = sweep.finished
    words = [part.lstrip("+") for line in runs["overrides"] for part in shlex.split(line)]
    texts = [part.partition("=")[2] for part in words if part.startswith("objective=")]
    match = FORM.fullmatch(texts[0].strip("\"'")) if texts else None
    if match is None or match[2] not in sweep.rows:
        return None
    objective = Objective(match[0], *match.groups())
    values = {run: objective.value(part)[0] for run, part in sweep.rows.groupby("run")}
    began = {run: read_run(sweep.folders[run])["started_s"] for run in runs["run"]}
    table = runs.assign(objective=runs["run"].map(values), began=runs["run"].map(began))
    table = table.sort_values("began", ignore_index=True).assign(trial=lambda rows: rows.index + 1)
    table = table[["trial", "run", *sweep.cells.of_runs, "objective"]]
    table["objective"] = table["objective"].astype(float)
    distance = (table["objective"] - best_value).abs()
    if distance.isna().all():
        return None
    best = table["run"].iloc[int(distance.argmin())]
    chosen = " ".join(f"{name}={value}" for name, value in parameters.items())
    line = f"best of {len(runs)} trials: {chosen}: {match[0]} = {best_value:.4g}, in {best}"
    undefined = int(distance.isna().sum())
    line += f"; {undefined} trials have no number" if undefined else ""
    log = [part.partition("=")[0] for part in shlex.split(sweep.command) if "tag(log" in part]
    return Search(match[0], table, sweep.cells.of_runs, log, one_line(line))
