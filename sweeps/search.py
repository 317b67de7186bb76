"""What a search by Optuna found: the best run, and the objective over runs and parameters."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from pandas.api.types import is_numeric_dtype
from yaml import YAMLError  # type: ignore[import-untyped]

from attnsvm.cli.objective import FORM, Objective
from attnsvm.record import kind_of, one_line, read_run

from .cells import word
from .chart.chart import figure_of
from .chart.spec import ChartSpec
from .figures import Drawing
from .loaded import LoadedSweep
from .statistics import summaries

RESULTS = "optimization_results.yaml"
"""What Optuna's sweeper writes into the folder of its runs."""

WIDE = 30.0
"""Ratio of the largest to the least objective from which its axis is logarithmic."""


@dataclass(frozen=True)
class Search:
    """The runs in their order, with the column `objective`; the best one in words; the figures."""

    table: pd.DataFrame
    best: str
    drawings: list[Drawing]


def search_of(sweep: LoadedSweep) -> Search | None:
    """Return the search whose runs are in a sweep's folder; None if it has no result."""
    path, runs = sweep.directory / RESULTS, sweep.finished
    if kind_of(path) != "a file" or sweep.rows.empty:
        return None
    words = [part for line in runs["overrides"] for part in shlex.split(line)]
    texts = [part.partition("objective=")[2].strip("\"'") for part in words if "objective=" in part]
    match = FORM.fullmatch(texts[0]) if texts else None
    try:
        results: Any = OmegaConf.load(path)
        least, chosen = float(results["best_value"]), dict(results["best_params"])
    except (OSError, YAMLError, KeyError, TypeError, ValueError):
        return None
    if match is None or match[2] not in sweep.rows:
        return None
    value, parameters = Objective(match[0], *match.groups()).value, sweep.cells.of_runs
    table = runs.set_index("run").assign(
        objective=pd.Series({run: value(part)[0] for run, part in sweep.rows.groupby("run")}),
        began=pd.Series({run: read_run(sweep.folders[run])["started_s"] for run in runs["run"]}),
    )
    table = table.sort_values("began").reset_index()[["run", *parameters, "objective"]]
    table.insert(0, "trial", range(1, len(table) + 1))
    table["objective"] = table["objective"].astype(float)
    known = table.dropna(subset="objective")
    if known.empty:
        return None
    best = known["run"].iloc[int((known["objective"] - least).abs().argmin())]
    typed = " ".join(f"{name}={setting}" for name, setting in chosen.items())
    line = f"best of {len(table)} trials: {typed}: {match[0]} = {least:.4g}, in {best}"
    line += f"; {len(table) - len(known)} trials have no number" * (len(known) < len(table))
    ends = known["objective"].min(), known["objective"].max()
    log_y = ("y",) if 0 < ends[0] < ends[1] / WIDE else ()
    drawings = []
    for name in ("trial", *parameters):
        sampled_log = any(part.startswith(f"{name}=tag(log") for part in shlex.split(sweep.command))
        spec = partial(ChartSpec, name, "objective", log=log_y + ("x",) * sampled_log)
        make = partial(figure_of, known, spec(kind="scatter"))
        if not is_numeric_dtype(known[name]):
            medians = summaries(known, [name], "objective", "median")
            make = partial(figure_of, medians, spec(kind="box"), None, known)
        caption = f"{match[0]} over {word(name)}, a point for each trial."
        drawings.append(Drawing(f"search_{word(name)}", caption, make, partial(list, [line])))
    return Search(table, one_line(line), drawings)
