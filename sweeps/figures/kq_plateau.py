"""(K, Q) without a ridge in exact arithmetic: a plateau beside the nuclear norm SVM, or none."""

from __future__ import annotations

import pandas as pd

from .. import statistics
from . import SweepFrames, _curves
from ._numbers import certified, history_of

FIGURE = _curves.OverSteps(
    name="kq_plateau",
    quantities=("one_minus_corr_nuclear", "margin_gap_nuclear", "balance_gap"),
    facet="init",
    statistic="median",
    log_x=True,
    room=2 * _curves.CURVES,
    apart="loss",
    caption=(
        "1-correlation of K Q^T with W_star_mm, nuclear margin gap and imbalance of the factors "
        "over the steps, without a ridge and in exact arithmetic, from four kinds of initial "
        "weights (rows), by step sizes; a figure for each loss."
    ),
)
FALLING = ("one_minus_corr_nuclear", "margin_gap_nuclear")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the curves, counts, and how the quantities change over the last decade of steps.

    A row of `kq_plateau_fall` has the median ratio of a quantity at the last step to the same
    instance's at the last snapshot no later than a tenth of the steps: 1 is a plateau.
    """
    by = frames.axes.besides()
    history = history_of(frames, certified(frames), by)
    history = history[history["quantity"].isin(FALLING)].sort_values("step")
    keys = list(dict.fromkeys([*by, "run", "seed", "quantity"]))
    last = history.groupby("run", observed=True)["step"].transform("max")
    moments = {"end": history["step"] == last, "before": history["step"] <= last / 10}
    parts = {
        name: history[rows].groupby(keys, observed=True, dropna=False)["value"].last()
        for name, rows in moments.items()
    }
    pairs = pd.DataFrame(parts).reset_index()
    pairs["ratio"] = pairs["end"] / pairs["before"].where(pairs["before"] > 0)
    falls = statistics.summaries(pairs, [*by, "quantity"], "ratio", "median")
    ends = statistics.summaries(pairs, [*by, "quantity"], "end", "median")
    named = {name: f"end_{name}" for name in ("median", "low", "high")}
    ends = ends.rename(columns=named)[[*by, "quantity", *named.values()]]
    return {**FIGURE.tables(frames), "kq_plateau_fall": falls.merge(ends, on=[*by, "quantity"])}


draw = FIGURE.draw
