"""Made-up sweeps with every ugly case that a real folder may hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.cells import CellAxes

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> $\\frac{ \u202e 'q' \"q\" \x07"
)


def cell_keys(**given: object) -> dict[str, object]:
    keys: dict[str, object] = {
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
    return keys | given


def framed(name: str, directory: Path, *tables: pd.DataFrame) -> SweepFrames:
    """Return the frames of runs, trials and history, with the axes in which the runs differ."""
    return SweepFrames(name, directory, *tables, axes=axes_of(tables[0]))


def axes_of(table: pd.DataFrame) -> CellAxes:
    keys = [key for key in cell_keys() if key in table and table[key].nunique(dropna=False) > 1]
    return CellAxes.of(table[keys])


def with_rows(frames: SweepFrames, trials: pd.DataFrame, **other: pd.DataFrame) -> SweepFrames:
    """Return the frames of a sweep with these trials instead, and the axes of these."""
    return dataclasses.replace(frames, trials=trials, axes=axes_of(trials), **other)


def run_row(run: str, keys: dict[str, object], trials: int, **given: object) -> dict[str, object]:
    row = {"run": run, "state": "done", "reason": "", "wall_s": 1.5, "version": "0.1.0"}
    counts = {"wanted": trials, "accepted": trials, "drawn": trials, "trials": trials, "seed": 0}
    return row | counts | keys | given


def rank_frames(
    directory: Path,
    cells: list[tuple[int, int]] | None = None,
    ds: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 15, 20),
    trials: int = 30,
    **keys: object,
) -> SweepFrames:
    """A rank sweep: all infeasible at d=1, some undecided, tied and failed, one run corrupt."""
    rng = np.random.default_rng(0)
    cells = cells or [(5, 5), (10, 5), (15, 5), (5, 10), (5, 15)]
    runs, rows = [], []
    for n, T in cells:
        for d in ds:
            cell = cell_keys(n=n, T=T, d=d, **keys)
            run = f"n{n}T{T}d{d}"
            runs.append(run_row(run, cell, trials))
            feasible_share = np.clip((d - 1) / max(T - 1, n), 0, 1)
            for seed in range(trials):
                feasible = rng.random() < feasible_share
                row = cell | {"run": run, "seed": seed, "status": "ok", "reason": ""}
                for norm, rank in (
                    ("frobenius", min(n, d)),
                    ("nuclear", 1 + rng.binomial(min(n, d) - 1, 0.25)),
                ):
                    row |= {
                        f"{norm}_status": "solved" if feasible else "infeasible",
                        f"{norm}_rank": rank if feasible else pd.NA,
                        f"{norm}_objective": 3.0 if feasible else np.nan,
                        f"published_{norm}_status": "optimal" if feasible else "infeasible",
                        f"published_{norm}_rank": min(n, d) if feasible else 1,
                    }
                if not feasible:
                    row |= {"status": "infeasible", "reason": "certified by a ray"}
                elif seed == 3:
                    row |= {"status": "undecided", "nuclear_status": "undecided"}
                    row |= {"nuclear_rank": pd.NA, "reason": HOSTILE}
                elif seed == 4:
                    row |= {"status": "tie", "reason": "two tokens of equal score"}
                elif seed == 5:
                    row |= {"status": "failed", "reason": HOSTILE, "frobenius_status": None}
                    row |= {"nuclear_status": None, "frobenius_rank": pd.NA, "nuclear_rank": pd.NA}
                rows.append(row)
    lost = cell_keys(n=5, T=5, d=40, **keys)
    runs.append(run_row("lost", lost, trials, state="missing", reason="no record"))
    broken = {"state": "corrupt", "reason": f"sha256 differs {HOSTILE}"}
    runs.append(run_row(HOSTILE, lost, trials, **broken))
    table = pd.DataFrame(rows)
    for norm in ("frobenius", "nuclear"):
        table[f"{norm}_rank"] = table[f"{norm}_rank"].astype("Int64")
    return framed("rank_vs_d", directory, pd.DataFrame(runs), table, pd.DataFrame())


QUANTITIES = (
    "one_minus_corr_svmeq",
    "one_minus_corr_svmeq_lsq",
    "one_minus_corr_frobenius",
    "one_minus_corr_1token",
)


def correlation_frames(
    directory: Path, ds: tuple[int, ...] = (4, 6, 8, 10), trials: int = 40, **keys: object
) -> SweepFrames:
    """A correlation sweep: a fifth rejected for two reasons, at d=10 everything rejected."""
    rng = np.random.default_rng(1)
    runs, rows, history = [], [], []
    for d in ds:
        cell = cell_keys(n=3, T=4, d=d, head="relu", tokens="multi", **keys)
        run = f"d{d}"
        kept = 0
        for seed in range(1, trials + 1):
            row = cell | {"run": run, "seed": seed, "status": "ok", "reason": ""}
            masked = 10 ** rng.uniform(-12, -6)
            final = 10 ** rng.normal([-1.6, -1.7, -1.3, -0.9], 0.5) / d
            row |= {"max_masked_softmax": masked, "frobenius_status": "solved"}
            row |= dict(zip(QUANTITIES, final, strict=True))
            if d == 10 or seed % 5 == 0:
                row |= {"status": "rejected", "reason": "ambiguous softmax in (1e-06, 0.001]"}
                row |= dict.fromkeys(QUANTITIES, np.nan)
            elif seed % 7 == 0:
                row |= {"status": "rejected", "reason": HOSTILE}
            kept += row["status"] == "ok"
            rows.append(row)
            for step in range(0, 2001, 200):
                values = final * (1 + 20 * np.exp(-step / 300))
                values[0] = np.nan if step == 0 else values[0]
                history += [
                    cell | {"run": run, "seed": seed, "step": step, "quantity": q, "value": v}
                    for q, v in zip(QUANTITIES, np.minimum(values, 1.2), strict=True)
                ]
        runs.append(run_row(run, cell, trials, accepted=kept, drawn=trials))
    frames = (pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(history))
    return framed("correlation_vs_d", directory, *frames)


def adhoc_frames(directory: Path, trials: int = 20) -> SweepFrames:
    """A sweep over heads and dimensions without a name, with every type of convergence."""
    rng = np.random.default_rng(2)
    kinds = ["global", "local", "not_local", "unsaturated", "infeasible", "undecided"]
    runs, rows = [], []
    for head in ("linear", "relu"):
        for d in (4, 8):
            cell = cell_keys(head=head, d=d, tokens="top")
            runs.append(run_row(f"{head}{d}", cell, trials))
            for seed in range(trials):
                kind = rng.choice(kinds, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])
                status = kind if kind in ("unsaturated", "infeasible", "undecided") else "ok"
                value = 10 ** rng.normal(-3, 0.5) if status == "ok" else np.nan
                rows.append(
                    cell
                    | {"run": f"{head}{d}", "seed": seed, "status": status, "reason": ""}
                    | {"convergence": kind, "one_minus_corr_frobenius": value}
                )
    return framed("", directory, pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame())
