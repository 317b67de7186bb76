"""Made-up sweeps with every ugly case that a real folder may hold, and words of their figures."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from attnsvm.sweeps import style
from attnsvm.sweeps.cells import CellAxes, rows_of
from attnsvm.sweeps.figures import figure_module
from attnsvm.sweeps.loaded import LoadedSweep

HERE = Path("sweep")
RECORDS = Path(__file__).parents[2] / "docs/records"
Row = dict[str, object]

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> $\\frac{ \u202e 'q' \"q\" \x07"
)


def cell_keys():
    return {
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
        "head.lam": np.nan,
        "optimizer.lr": 0.1,
        "optimizer.norm": np.nan,
        "optimizer.steps": 2000,
        "optimizer.growth": 0.0,
        "optimizer.gradient": "log_domain",
        "optimizer.ridge": 0.0,
        "optimizer.p": np.nan,
        "optimizer.init": "uniform",
    }


def cell_of(n, T, d):
    return {"data.n": n, "data.T": T, "data.d": d}


def axes_of(table):
    keys = [key for key in cell_keys() if key in table and table[key].nunique(dropna=False) > 1]
    return CellAxes.of(table[keys])


def run_row(run, keys, trials, **changed):
    row = {"run": run, "state": "done", "reason": "", "wall_s": 1.5, "version": "0.1.0"}
    counts = {"wanted": trials, "accepted": trials, "drawn": trials, "trials": trials, "seed": 0}
    return row | counts | keys | changed


def sweep(
    name,
    cells,
    instance,
    history=lambda row: (),
    *,
    trials=12,
    directory=HERE,
    lost=(),
):
    """Return the frames of a run for each cell: its name -> how it differs from `cell_keys`.

    `instance` gives the row of a cell and a seed, ok by default; `history` step, quantity and value
    of such a row; `lost` are rows of runs without a record.
    """
    runs, rows, curves = list[Row](), list[Row](), list[Row]()
    for run, changed in cells.items():
        cell = cell_keys() | changed
        mine = [
            cell | {"run": run, "seed": seed, "status": "ok", "reason": ""} | instance(cell, seed)
            for seed in range(trials)
        ]
        accepted = sum(row["status"] == "ok" for row in mine)
        runs.append(run_row(run, cell, trials, accepted=accepted))
        curves += (
            {"run": run, "seed": row["seed"], "step": step, "quantity": quantity, "value": value}
            for row in mine
            for step, quantity, value in history(row)
        )
        rows += mine
    tables = [pd.DataFrame(part) for part in ([*runs, *lost], rows, curves)]
    folders = {run: Path(run) for run in cells}
    axes = axes_of(tables[0])
    return LoadedSweep(name, directory, *tables, axes, tuple(cell_keys()), folders)


def only(table, **cell):
    """Return the one row of a table that has these values."""
    ((_, row),) = rows_of(table, cell).iterrows()
    return row


def text_of(drawing):
    artists = drawing.figure.findobj(lambda artist: hasattr(artist, "get_text"))
    words = [artist.get_text() for artist in artists]
    return "\n".join([drawing.caption, *drawing.notes, *words])


def drawn(frames, name=None):
    """Return tables, figures and their words, by the module of the sweep or the one named."""
    module = figure_module(frames.name if name is None else name)
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
        return tables, drawings, [text_of(drawing).replace("\n", " ") for drawing in drawings]


def rank_frames(
    directory=HERE,
    cells=((5, 5), (10, 5), (15, 5), (5, 10), (5, 15)),
    ds=(1, 2, 3, 4, 5, 10, 15, 20),
    trials=30,
):
    """A rank sweep: all infeasible at d=1, some undecided, tied and failed, one run corrupt."""
    rng = np.random.default_rng(0)

    def instance(cell, seed):
        n, T, d = (int(str(cell[name])) for name in ("data.n", "data.T", "data.d"))
        feasible = rng.random() < np.clip((d - 1) / max(T - 1, n), 0, 1)
        certified, published, usual = (
            ("solved", "optimal", min(n, d)) if feasible else ("infeasible", "infeasible", 1)
        )
        row = {}
        for norm, rank in (
            ("frobenius", usual),
            ("nuclear", 1 + rng.binomial(min(n, d) - 1, 0.25)),
        ):
            row |= {f"{norm}_status": certified, f"{norm}_rank": rank if feasible else pd.NA}
            row |= {f"published_{norm}_status": published, f"published_{norm}_rank": usual}
        if not feasible:
            return row | {"status": "infeasible", "reason": "certified by a ray"}
        no_nuclear = {"nuclear_status": "undecided", "nuclear_rank": pd.NA}
        none = {"frobenius_status": None, "frobenius_rank": pd.NA, "nuclear_status": None}
        return row | {
            3: {"status": "undecided", "reason": HOSTILE} | no_nuclear,
            4: {"status": "tie", "reason": "two tokens of equal score"},
            5: {"status": "failed", "reason": HOSTILE} | no_nuclear | none,
        }.get(seed, {})

    grid = {f"n{n}T{T}d{d}": cell_of(n, T, d) for n, T in cells for d in ds}
    lost = cell_keys() | cell_of(5, 5, 40)
    broken = {"state": "corrupt", "reason": f"sha256 differs {HOSTILE}"}
    without = (
        run_row("lost", lost, trials, state="missing", reason="no record"),
        run_row(HOSTILE, lost, trials, **broken),
    )
    frames = sweep("rank_vs_d", grid, instance, trials=trials, directory=directory, lost=without)
    ranks = {f"{norm}_rank": "Int64" for norm in ("frobenius", "nuclear")}
    return dataclasses.replace(frames, rows=frames.rows.astype(ranks))
