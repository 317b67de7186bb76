"""Made-up sweeps with every ugly case that a real folder may hold, and words of their figures."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from attnsvm.sweeps import style
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.cells import CellAxes, rows_of
from attnsvm.sweeps.figures import figure_module

HERE = Path("sweep")
Row = dict[str, object]

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> $\\frac{ \u202e 'q' \"q\" \x07"
)


def cell_keys(**changed):
    keys = {
        "model": "cross_attention",
        "parameterization": "w",
        "head": "linear",
        "data": "sphere",
        "loss": "logistic",
        "optimizer": "normalized_gd",
        "tokens": "optimal",
        "n": 5,
        "T": 5,
        "d": 5,
        "m": np.nan,
        "lam": np.nan,
        "lr": 0.1,
        "norm": np.nan,
        "steps": 2000,
        "growth": 0.0,
        "gradient": "log_domain",
        "ridge": 0.0,
        "init": "uniform",
    }
    return keys | changed


def axes_of(table):
    keys = [key for key in cell_keys() if key in table and table[key].nunique(dropna=False) > 1]
    return CellAxes.of(table[keys])


def with_rows(frames, trials, **other):
    """Return the frames of a sweep with these trials instead, and the axes of these."""
    return dataclasses.replace(frames, trials=trials, axes=axes_of(trials), **other)


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
    typed=None,
    lost=(),
):
    """Return the frames of a run for each cell: its name -> how it differs from `cell_keys`.

    `instance` gives the row of a cell and a seed, ok by default; `history` step, quantity and value
    of such a row; `typed` the axes with their fields; `lost` are rows of runs without a record.
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
            cell
            | {"run": run, "seed": row["seed"]}
            | {"step": step, "quantity": quantity, "value": value}
            for row in mine
            for step, quantity, value in history(row)
        )
        rows += mine
    tables = [pd.DataFrame(part) for part in ([*runs, *lost], rows, curves)]
    frames = SweepFrames(name, directory, *tables, axes=axes_of(tables[0]))
    if typed is None:
        return frames
    axes = CellAxes.of(tables[0][[n for n in typed if tables[0][n].nunique() > 1]], typed)
    folders = {run: Path(run) for run in cells}
    return dataclasses.replace(frames, axes=axes, folders=folders)


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
        drawings = module.draw(tables, frames.axes, ["a remark"])
        assert len({drawing.name for drawing in drawings}) == len(drawings)
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
            assert round(2.54 * drawing.figure.get_figwidth(), 9) in (8.5, 17)
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
        n, T, d = (int(str(cell[name])) for name in ("n", "T", "d"))
        feasible = rng.random() < np.clip((d - 1) / max(T - 1, n), 0, 1)
        row = {}
        ranks = {"frobenius": min(n, d), "nuclear": 1 + rng.binomial(min(n, d) - 1, 0.25)}
        for norm, rank in ranks.items():
            row |= {
                f"{norm}_status": "solved" if feasible else "infeasible",
                f"{norm}_rank": rank if feasible else pd.NA,
                f"{norm}_objective": 3.0 if feasible else np.nan,
                f"published_{norm}_status": "optimal" if feasible else "infeasible",
                f"published_{norm}_rank": min(n, d) if feasible else 1,
            }
        if not feasible:
            return row | {"status": "infeasible", "reason": "certified by a ray"}
        none = {"frobenius_status": None, "nuclear_status": None}
        none |= {"frobenius_rank": pd.NA, "nuclear_rank": pd.NA}
        return row | {
            3: {
                "status": "undecided",
                "nuclear_status": "undecided",
                "nuclear_rank": pd.NA,
                "reason": HOSTILE,
            },
            4: {"status": "tie", "reason": "two tokens of equal score"},
            5: {"status": "failed", "reason": HOSTILE} | none,
        }.get(seed, {})

    grid = {f"n{n}T{T}d{d}": {"n": n, "T": T, "d": d} for n, T in cells for d in ds}
    lost = cell_keys(n=5, T=5, d=40)
    broken = {"state": "corrupt", "reason": f"sha256 differs {HOSTILE}"}
    without = (
        run_row("lost", lost, trials, state="missing", reason="no record"),
        run_row(HOSTILE, lost, trials, **broken),
    )
    frames = sweep("rank_vs_d", grid, instance, trials=trials, directory=directory, lost=without)
    ranks = {f"{norm}_rank": "Int64" for norm in ("frobenius", "nuclear")}
    return dataclasses.replace(frames, trials=frames.trials.astype(ranks))


SVMS = ("svmeq", "svmeq_lsq", "frobenius", "1token")
QUANTITIES = tuple(f"one_minus_corr_{svm}" for svm in SVMS)


def correlation_frames(directory=HERE, ds=(4, 6, 8, 10), trials=40):
    """A correlation sweep: a fifth rejected for two reasons, at d=10 everything rejected."""
    rng = np.random.default_rng(1)

    def instance(cell, seed):
        row = {"max_masked_softmax": 10 ** rng.uniform(-12, -6), "frobenius_status": "solved"}
        last = 10 ** rng.normal([-1.6, -1.7, -1.3, -0.9], 0.5) / cell["d"]
        row |= dict(zip(QUANTITIES, last, strict=True)) | {"seed": seed + 1, "last": last}
        if cell["d"] == 10 or (seed + 1) % 5 == 0:
            row |= {"status": "rejected", "reason": "ambiguous softmax in (1e-06, 0.001]"}
            row |= dict.fromkeys(QUANTITIES, np.nan)
        elif (seed + 1) % 7 == 0:
            row |= {"status": "rejected", "reason": HOSTILE}
        return row

    def history(row):
        for step in range(0, 2001, 200):
            values = np.minimum(row["last"] * (1 + 20 * np.exp(-step / 300)), 1.2)
            for quantity, value in zip(QUANTITIES, values, strict=True):
                undefined = step == 0 and quantity == QUANTITIES[0]
                yield step, quantity, np.nan if undefined else value

    common = {"n": 3, "T": 4, "head": "relu", "tokens": "multi"}
    cells = {f"d{d}": common | {"d": d} for d in ds}
    frames = sweep("correlation_vs_d", cells, instance, history, trials=trials, directory=directory)
    return dataclasses.replace(frames, trials=frames.trials.drop(columns="last"))


def trained_frames(name="local_convergence"):
    """A sweep of trained instances with every outcome, and a history of all quantities."""
    rng = np.random.default_rng(3)
    kinds = ["global", "local", "not_local", "unsaturated", "infeasible", "undecided", ""]

    def instance(cell, seed):
        kind = kinds[seed % len(kinds)]
        status = kind if kind in kinds[3:6] else "ok" if kind else "diverged"
        return {
            "status": status,
            "reason": HOSTILE,
            "convergence": kind,
            "attended_tokens": 2.0,
            "assumption_b1": seed % 2 == 0,
            "one_minus_corr_frobenius": rng.random(),
            "frobenius_status": "infeasible" if kind == "infeasible" else "solved",
            "max_masked_softmax": 1e-9,
        }

    def history(row):
        for step in (0, 10, 100):
            for quantity in ("one_minus_corr_frobenius", "W_norm", "max_softmax"):
                yield step, quantity, np.nan if row["status"] == "diverged" else rng.random()

    common = {"tokens": "top", "lam": 0.1}
    cells = {
        f"{rule}{d}": common | {"d": d, "parameterization": rule}
        for rule in ("w", "kq")
        for d in (4, 8)
    }
    return sweep(name, cells, instance, history)


def phase_frames(planes, ds, decided_on_d=12):
    """Return twelve instances a cell; of the last nothing but B.1 is decided."""

    def instance(cell, seed):
        n, T, d = (int(str(cell[name])) for name in ("n", "T", "d"))
        feasible = d >= max(T - 1, n)
        status = "undecided" if seed == 11 else "ok" if feasible else "infeasible"
        return {
            "status": status,
            "optimum_feasible": pd.NA if seed == 11 else feasible,
            "assumption_b1": pd.NA if seed == 10 else False,
            "assumption_d": d > 1 if seed < min(decided_on_d, 11) else pd.NA,
            "frobenius_status": "solved" if status == "ok" else status,
            "convergence": "global" if feasible else "",
        }

    cells = {f"{n}{T}{d}": {"n": n, "T": T, "d": d, "tokens": "top"} for n, T in planes for d in ds}
    return sweep("phase_transition", cells, instance)
