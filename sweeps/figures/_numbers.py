"""What the tables of several figures need: outcomes, histories, stored arrays, and counts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.record.folder import read_solutions
from attnsvm.record.run import read_run

from .. import statistics, style
from ..aggregate import SweepFrames
from ..cells import CellAxes, row_key

SELECTED = style.CONVERGENCE[:5]
"""Types of convergence of instances that have selected one token in each sample."""

UNTYPED = ("tie", "diverged", "stalled", "rejected", "failed")
"""Statuses of instances whose last step does not show where training converges to."""

SAME = 1e-6
"""Difference of inner products of stored and drawn rows, relative to the largest, if they agree."""


def certified(frames: SweepFrames) -> pd.DataFrame:
    """Return the instances with status ok: saturated, with certified SVMs."""
    return frames.trials[frames.trials["status"] == "ok"]


def arrays_of(frames: SweepFrames, run: object) -> dict[str, np.ndarray]:
    """Return the stored arrays of a run; none if its folder is not known."""
    folder = frames.folders.get(str(run))
    return {} if folder is None else dict(read_solutions(folder))


def drawn_again(frames: SweepFrames, run: object, at: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
    """Return the data of a stored instance, and the instance with labels; None where it is another.

    Words and labels are in no record. Rows may be in another basis: their inner products count.
    """
    from attnsvm.data import sample  # torch, which no other figure needs

    stored_run = read_run(frames.folders[str(run)])
    given = {name: one for name, one in stored_run["config"]["data"].items() if name != "_target_"}
    try:
        data = named("data", stored_run["options"]["data"], **given)
        batch = sample(data, trials=1, seed=int(at["seeds"]))
        pairs = [(batch.X[0].flatten(0, 1), at["X"].reshape(-1, batch.d)), (batch.Z[0], at["Z"])]
        grams = [(np.asarray(V @ V.mT), stored @ stored.T) for V, stored in pairs]
        if all(np.allclose(*pair, rtol=0, atol=SAME * np.abs(pair[1]).max()) for pair in grams):
            return data, batch
    except (ConfigError, KeyError, ValueError):  # not here, or of another size
        pass
    return None, None


def joined(parts: Iterable[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all parts; a table without rows, with these columns, if there are none."""
    parts = list(parts)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*columns])


def means_of(
    trials: pd.DataFrame, by: Sequence[str], names: Iterable[str], key: str
) -> pd.DataFrame:
    """Return `statistics.summaries` of each of the columns that exist, its name in column `key`."""
    found = (name for name in names if name in trials)
    parts = (statistics.summaries(trials, by, name).assign(**{key: name}) for name in found)
    return joined(parts, [*by, key])


def ended(trials: pd.DataFrame) -> "pd.Series[str]":
    """Return how an instance ended: its type of convergence, the status where it has none."""
    typed = trials["convergence"].isin(style.CONVERGENCE) & ~trials["status"].isin(UNTYPED)
    return trials["convergence"].where(typed, trials["status"])


def outcomes(trials: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the number of instances of each cell by status, reason and how training ended."""
    trials = trials.assign(training=trials.get("training", ""))
    return statistics.counts(trials, [*axes.names, "status", "reason", "training"])


def status_counts(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence with the number of instances by status, usual ones even if zero."""
    found = outcomes.groupby("status")["count"].sum().sort_values(ascending=False)
    usual = ("ok", "infeasible", "undecided", "rejected", "stalled", "failed")
    by_status = dict(found.items()) | {s: 0 for s in usual if s not in found}
    listed = ", ".join(f"{n} {status}" for status, n in by_status.items())
    return f"Instances: {found.sum()} ({listed}).{stalled(outcomes, axes)}"


def stalled(outcomes: pd.DataFrame, axes: CellAxes) -> str:
    """Return a sentence on the instances that are drawn although their training stalled."""
    drawn = outcomes[outcomes["status"] == "ok"]
    if not (drawn["training"] == "stalled").any():
        return ""
    parts = [
        f"{part.loc[part['training'] == 'stalled', 'count'].sum()} of {part['count'].sum()} {name}"
        for name, part in axes.split(drawn, [key for key in ("gradient",) if key in axes.names])
    ]
    return f" Drawn although training stalled: {', '.join(part.strip() for part in parts)}."


def history_of(frames: SweepFrames, trials: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the history of the instances in `trials`, with the columns `keys` of these."""
    missing = [key for key in keys if key not in frames.history]
    key = row_key(trials)
    return frames.history.merge(trials[[*key, *missing]], on=key)
