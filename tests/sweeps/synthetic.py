"""Made-up sweeps with every ugly case that a real folder may hold, and words of their figures."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.cells import CellAxes, rows_of
from attnsvm.sweeps.figures import figure_module
from attnsvm.sweeps.loaded import LoadedSweep

HERE = Path("sweep")
RECORDS = Path(__file__).parents[2] / "docs/records"

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> $\\frac{ \u202e 'q' \"q\" \x07"
)


CELL = {
    "model": "cross_attention",
    "parameterization": "w",
    "head": "linear",
    "data": "sphere",
    "loss": "logistic",
    "optimizer": "normalized_gd",
    "selection.tokens": "optimal",
    "data.n": 5,
    "data.T": 5,
    "data.d": 5,
    "parameterization.m": np.nan,
    "optimizer.lr": 0.1,
    "optimizer.steps": 2000,
    "optimizer.gradient": "log_domain",
    "optimizer.p": np.nan,
    "optimizer.init": "uniform",
}


def sweep(name, cells, instance, history=lambda row: (), *, trials=12):
    """Return the frames of a run for each cell: its name -> how it differs from `CELL`.

    `instance` gives the row of a cell and a seed, ok by default; `history` step, quantity and value
    of such a row.
    """
    runs = pd.DataFrame(CELL | {"run": run, "state": "done"} | cells[run] for run in cells)
    rows = [
        run | {"seed": seed, "status": "ok", "reason": ""} | instance(run, seed)
        for run in runs.drop(columns="state").to_dict("records")
        for seed in range(trials)
    ]
    curves = [
        {"run": row["run"], "seed": row["seed"], "step": step, "quantity": quantity, "value": value}
        for row in rows
        for step, quantity, value in history(row)
    ]
    axes = CellAxes.of(runs[[key for key in CELL if runs[key].nunique(dropna=False) > 1]])
    folders = {run: Path(run) for run in cells}
    tables = runs, pd.DataFrame(rows), pd.DataFrame(curves)
    return LoadedSweep(name, HERE, *tables, axes, tuple(CELL), folders)


def only(table, **cell):
    """Return the one row of a table that has these values."""
    ((_, row),) = rows_of(table, cell).iterrows()
    return row


def text_of(drawing):
    artists = drawing.figure.findobj(lambda artist: hasattr(artist, "get_text"))
    words = [drawing.caption, *drawing.notes, *(artist.get_text() for artist in artists)]
    return "\n".join(words).replace("\n", " ")


def drawn(frames):
    """Return tables, figures and their words, by the module of the sweep."""
    module = figure_module(frames.name)
    with style.paper():
        tables = module.tables(frames)
        drawings = module.draw(tables, frames.cells, ["a remark"])
        assert len({drawing.name for drawing in drawings}) == len(drawings)
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
            assert round(2.54 * drawing.figure.get_figwidth(), 9) in (8.5, 17), drawing.name
            panels = [ax for ax in drawing.figure.axes if ax.get_label() != "<colorbar>"]
            assert len(panels) <= 4, drawing.name
            assert drawing.caption, drawing.name
        return tables, drawings, [*map(text_of, drawings)]


def rank_frames(directory=HERE, sizes=((15, 5), (10, 5), (15, 10))):
    """The record of a rank sweep at each of these n and T, with ugly instances and runs.

    Infeasible at d = 4. Of the first cell, d = 20, one instance is undecided, one tied and one
    failed; two runs are lost.
    """
    frames = read_sweep(RECORDS / "rank_vs_d")
    runs, rows = (
        pd.concat(
            table.assign(**{"data.n": n, "data.T": T}, run=f"n{n}_T{T}_" + table["run"].astype(str))
            for n, T in sizes
        ).reset_index(drop=True)
        for table in (frames.runs, frames.rows.dropna(axis="columns", how="all"))
    )
    ends = ["undecided", HOSTILE], ["tie", "two tokens of equal score"], ["failed", HOSTILE]
    rows.loc[:2, ["status", "reason"]] = ends
    rows.loc[0, ["nuclear_status", "nuclear_rank"]] = "undecided", pd.NA
    lost = {"run": ["lost", HOSTILE], "state": ["missing", "corrupt"], "data.d": 40}
    lost["reason"] = ["no record", f"sha256 differs {HOSTILE}"]
    runs = runs.assign(state="done", reason="")
    runs = pd.concat([runs, runs.iloc[:2].assign(**lost)], ignore_index=True)
    axes = CellAxes(("data.n", "data.T", "data.d"))
    return dataclasses.replace(frames, directory=directory, runs=runs, rows=rows, cells=axes)
