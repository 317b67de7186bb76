"""What the tables of several figures need: outcomes, histories, stored arrays, and counts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from scipy.special import softmax

from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.record.columns import WORDS
from attnsvm.record.run import read_run
from attnsvm.record.stored import StoredRun

from .. import statistics
from ..cells import GRADIENT, CellAxes, row_key
from ..loaded import LoadedSweep

CONVERGENCE = WORDS["convergence"]
"""Types of convergence from best to worst."""

UNTYPED = ("tie", "diverged", "stalled", "rejected", "failed")
"""Statuses of instances whose last step does not show where training converges to."""

TRAINED = ("ok", "unsaturated", "infeasible", "undecided")
"""Statuses of the instances whose training ended with finite weights."""

USUAL = ("ok", "infeasible", "undecided", "rejected", "stalled", "failed")
"""Statuses that are counted even if no instance has them."""

OWN_NORM = {"w": "frobenius", "kq": "nuclear"}
"""Norm of the SVM that gradient descent of a parameterization goes to."""

OWN = {"correlation": "one_minus_corr_{}", "margin_gap": "margin_gap_{}", "svm_rank": "{}_rank"}
"""What compares with that SVM -> its column, or its quantity of the history."""

SAME = 1e-6
"""Difference of inner products of stored and drawn rows, relative to the largest, if they agree."""


def certified(frames: LoadedSweep) -> pd.DataFrame:
    """Return the instances with status ok: saturated, with certified SVMs."""
    return frames.rows[frames.rows["status"] == "ok"]


def of_norms(table: pd.DataFrame, norms: "pd.Series[Any]", name: str) -> "pd.Series[float]":
    """Return the column `name`, which has {} for the norm, of each row's own norm; NaN without."""
    values = pd.Series(np.nan, index=table.index)
    for norm, rows in table.groupby(norms):
        values[rows.index] = rows.get(name.format(norm), np.nan)
    return values


def of_own_norm(table: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return the column of `OWN` in the norm of each row's parameterization, NaN without."""
    return of_norms(table, table["parameterization"].map(OWN_NORM), OWN[name])


def history_of(frames: LoadedSweep, trials: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the history of the instances in `trials`, with the columns `keys` of these."""
    key = row_key(trials)
    keys = [name for name in keys if name not in key]
    columns = trials[[*key, *keys]].astype(dict.fromkeys(keys, "category"))
    return frames.curves.merge(columns, on=key)


def quantities_of(history: pd.DataFrame, quantities: Iterable[str]) -> pd.DataFrame:
    """Return the rows of a history with these quantities, also those of `OWN`."""
    parts = [history[history["quantity"].isin([*quantities])]]
    for name in OWN.keys() & {*quantities}:
        norms = history["parameterization"].map(OWN_NORM).astype(str)
        rows = history["quantity"].astype(str) == norms.map(OWN[name].format)
        parts.append(history[rows].assign(quantity=name))
    return pd.concat(parts, ignore_index=True)


def joined(parts: Iterable[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all parts; a table without rows, with these columns, if there are none."""
    parts = list(parts)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*columns])


def tidy(axes: Sequence[str], **arrays: np.ndarray) -> pd.DataFrame:
    """Return arrays as columns, of the shape of the first one, with the place on each axis."""
    shape = next(iter(arrays.values())).shape
    columns = dict(zip(axes, np.indices(shape).reshape(len(shape), -1), strict=True))
    columns |= {name: np.broadcast_to(of, shape).ravel() for name, of in arrays.items()}
    return pd.DataFrame(columns)


def ended(trials: pd.DataFrame) -> "pd.Series[str]":
    """Return how an instance ended: its type of convergence, the status where it has none."""
    if "convergence" not in trials:
        return trials["status"]
    typed = trials["convergence"].isin(CONVERGENCE) & ~trials["status"].isin(UNTYPED)
    return trials["convergence"].where(typed, trials["status"])


def outcome_shares(trials: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the share of each `kind` in which instances ended, in each group of `by`."""
    how = ended(trials)
    return joined(
        (
            statistics.shares(trials.assign(flag=how == kind), by, "flag").assign(kind=kind)
            for kind in (*CONVERGENCE, *sorted({*how} - {*CONVERGENCE}))
        ),
        [*by, "kind"],
    )


# --- stored arrays --------------------------------------------------------------------------------


def arrays_of(frames: LoadedSweep, run: object) -> dict[str, np.ndarray]:
    """Return the stored arrays of a run; none if its folder is not known."""
    folder = frames.folders.get(str(run))
    return {} if folder is None else StoredRun(folder).arrays()


def attention(at: Mapping[str, np.ndarray], W: np.ndarray) -> np.ndarray:
    """Return the softmax of X W z over the tokens of an instance, (..., n, T), of W (..., d, d)."""
    logits = np.einsum("ntd,...de,ne->...nt", at["X"], W, at["Z"])
    return np.asarray(softmax(np.where(at.get("mask", True), logits, -np.inf), axis=-1))


def drawn_again(frames: LoadedSweep, run: object, at: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
    """Return the data of a stored instance, and the instance with labels; None where it is another.

    Words and labels are in no record. Rows may be in another basis: their inner products count.
    """
    from attnsvm.data import sample  # torch, which no other figure needs

    record = read_run(frames.folders[str(run)])
    fields = {key: value for key, value in record["config"]["data"].items() if key != "_target_"}
    try:
        data = named("data", record["options"]["data"], **fields)
        batch = sample(data, trials=1, seed=int(at["seeds"]))
        pairs = [(batch.X[0].flatten(0, 1), at["X"].reshape(-1, batch.d)), (batch.Z[0], at["Z"])]
        grams = [(np.asarray(V @ V.mT), stored @ stored.T) for V, stored in pairs]
        if all(np.allclose(*pair, rtol=0, atol=SAME * np.abs(pair[1]).max()) for pair in grams):
            return data, batch
    except (ConfigError, KeyError, ValueError):  # not here, or of another size
        pass
    return None, None


def frame_fields(ax: Axes, columns: Iterable[int], rows: Iterable[int], colour: str) -> None:
    """Frame fields of a map."""
    for column, row in zip(columns, rows, strict=True):
        corner = column + 0.03, row + 0.04
        ax.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, lw=1.4, zorder=3, ec=colour))


# --- counts ---------------------------------------------------------------------------------------


def outcomes(frames: LoadedSweep) -> pd.DataFrame:
    """Return the number of instances of each cell by status, reason and how training ended."""
    trials = frames.rows.assign(training=frames.rows.get("training", ""))
    return statistics.counts(trials, [*frames.cells.names, "status", "reason", "training"])


def status_counts(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence with the number of instances by status, usual ones even if zero."""
    sums = outcomes.groupby("status")["count"].sum().sort_values(ascending=False)
    by_status = sums.to_dict() | {status: 0 for status in USUAL if status not in sums}
    listed = ", ".join(f"{n} {status}" for status, n in by_status.items())
    return f"Instances: {sums.sum()} ({listed}).{stalled(outcomes, axes)}"


def stalled(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence on the instances that are drawn although their training stalled."""
    drawn = outcomes[outcomes["status"] == "ok"]
    drawn = drawn.assign(stalled=drawn["count"].where(drawn["training"] == "stalled", 0))
    if not drawn["stalled"].any():
        return ""
    parts = [
        f"{part['stalled'].sum()} of {part['count'].sum()} {name}".strip()
        for name, part in axes.split(drawn, [key for key in axes.names if key == GRADIENT])
    ]
    return f" Drawn although training stalled: {', '.join(parts)}."
