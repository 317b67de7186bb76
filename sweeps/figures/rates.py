"""Rates: exponents of direction error, margin gap and loss against steps and the norm of W."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..facets import curves, labels, panels_of
from ..notation import MEASURED
from . import MOST_CURVES, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import history_of, outcomes

QUANTITIES = MEASURED["rates"]
"""Quantity -> what a sentence calls it."""

LOG_EXCESS = "excess_risk_log"
"""The quantity of the history from which both of the loss follow; L - L* itself underflows."""

SMALLEST_SHOWN = 1e-30
"""Curves end where they fall below: L - L* falls to e^-400000."""

AGAINST = ("step", "W_norm")
GUIDES = {"one_minus_corr_frobenius": -2.0, "margin_gap_frobenius": -1.0}
"""Quantity of the main figure -> exponent of the dotted line beside its curves."""

USED = ("ok", "unsaturated")
"""Statuses of instances whose training goes on: unsaturated are those with fixed steps."""

TOLERANCE = 0.02
"""Difference of the exponents of two decades up to which they count as equal, and its share of the
last exponent: that of a logarithm is small and still falls."""

SPAN = np.log(10)
"""Least change of log x, the median over the instances, over which a power law of x is told."""

POINTS = 3
"""Fewest snapshots of a decade from which an exponent is read."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the medians over the steps, exponents by decade, the power laws, and counts.

    A row of `rates` says over how many `decades` a power law holds (0: none), and its exponent; one
    of `rates_left_out` how many numbers of a quantity and a decade have no logarithm. There a
    decade k holds the steps from 10^k to below 10^(k+1): a number is counted once.
    """
    by = frames.cells.besides()
    trials = frames.rows[frames.rows["status"].isin(USED)]
    trials = trials[trials["frobenius_status"] == "solved"]
    history = history_of(frames, trials, by)
    instance = list(dict.fromkeys([*by, "run", "seed"]))
    shown = [*(q for q in QUANTITIES if "excess" not in q), LOG_EXCESS, "W_norm"]
    wide = history[history["quantity"].isin(shown) & (history["step"] > 0)]
    wide = wide.pivot_table(
        index=[*instance, "step"], columns="quantity", values="value", dropna=False
    )
    wide = wide.reindex(columns=shown).dropna(how="all").reset_index()
    long = _long(wide, [*instance, "step", "W_norm"])
    medians = statistics.summaries(long, [*by, "quantity", "step"], "value", "median")
    norms = statistics.summaries(wide, [*by, "step"], "W_norm", "median")
    norms = norms.rename(columns={"median": "W_norm"})[[*by, "step", "W_norm"]]
    logs = _logarithms(long)
    cells = [*by, "quantity", "against", "decade"]
    left_out = logs.assign(out=~logs["known"].astype(bool)).groupby(cells, dropna=False)["out"]
    local = _exponents(logs, [*instance, "quantity", "against"], cells)
    return {
        "rates": _laws(local, by),
        "rates_by_decade": local,
        "rates_left_out": left_out.agg(left_out="sum", of="size").reset_index(),
        "rates_curves": medians.merge(norms, on=[*by, "step"]),
        "rates_counts": outcomes(frames.rows, frames.cells),
    }


def _long(wide: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, step and quantity that is known: `value`, and `log` of it.

    L - L* may be 0 as a value, but not its logarithm.
    """
    excess = wide[LOG_EXCESS]
    parts = []
    for name in QUANTITIES:
        value = wide.get(name, -excess)
        log = np.log(value.where(value > 0))
        if name == "excess_risk":
            value, log = np.exp(excess), excess
        parts.append(wide[keys].assign(quantity=name, value=value, log=log))
    known = [part for part in parts if part["value"].notna().any()]
    return pd.concat(known or parts[:1], ignore_index=True)


def _logarithms(long: pd.DataFrame) -> pd.DataFrame:
    """Return rows against steps and norm: log `x`, `decade` of steps, `known` with both logs."""
    parts = []
    for against in AGAINST:
        x = long[against].to_numpy(float)
        known = (x > 0) & np.isfinite(x) & np.isfinite(long["log"].to_numpy(float))
        parts.append(long.assign(against=against, x=np.log(np.where(known, x, 1)), known=known))
    logs = pd.concat(parts, ignore_index=True)
    exponent = np.log10(logs["step"].to_numpy(float))
    return logs.assign(decade=np.floor(exponent + 1e-9).astype(int), exponent=exponent)


def _exponents(logs: pd.DataFrame, keys: list[str], cells: list[str]) -> pd.DataFrame:
    """Return the median exponent of every cell, and of its change to the last decade.

    The exponent of an instance is the slope of `log` over x by least squares in the decade from
    10^k to 10^(k+1), ends included; NaN with fewer than POINTS points.
    """
    ends = logs[(logs["decade"] > 0) & (logs["exponent"] - logs["decade"] < 1e-9)]
    both = pd.concat([logs, ends.assign(decade=ends["decade"] - 1)]).sort_index(kind="stable")
    both = both[both["known"].astype(bool) & (both["decade"] < logs["decade"].max())]
    decades = [*keys, "decade"]
    means = both.groupby(decades, dropna=False)[["x", "log"]].transform("mean")
    x, y = both["x"] - means["x"], both["log"] - means["log"]
    sums = both.assign(xy=x * y, xx=x**2).groupby(decades, dropna=False)
    sums = sums.agg(xy=("xy", "sum"), xx=("xx", "sum"), points=("x", "size"), span=("x", np.ptp))
    slope = (sums["xy"] / sums["xx"].where(sums["xx"] > 0)).where(sums["points"] >= POINTS)
    slopes = pd.DataFrame({"slope": slope, "span": sums["span"]}).reset_index()
    last = slopes.groupby(keys, dropna=False)["slope"].transform("last")  # decades are in order
    slopes["change"] = slopes["slope"] - last
    local = statistics.summaries(slopes, cells, "slope", "median")
    changes = statistics.summaries(slopes, cells, "change", "median")  # of the same groups
    local = local.join(changes[["median", "low", "high"]].add_prefix("change_"))
    spans = slopes.groupby(cells, dropna=False)["span"].median().reset_index()
    return local.merge(spans, on=cells, how="left")


def _laws(local: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the number of last decades with equal exponents, and the exponent of the last one.

    Equal: the interval of the median difference to the last one lies in +-TOLERANCE, and in
    +-TOLERANCE of the last one. They have to span SPAN of log x.
    """
    rows = []
    keys = [*by, "quantity", "against"]
    for key, cells in local.groupby(keys, dropna=False, sort=True):
        known = cells[cells["used"] > 0].sort_values("decade")
        widest = known[["change_median", "change_low", "change_high"]].abs().max(axis=1).fillna(0)
        last = known[["median", "low", "high", "used"]].iloc[-1:].to_numpy(float).ravel()
        allowed = TOLERANCE * min(1.0, abs(last[0])) if len(known) else 0.0
        equal = int(np.logical_and.accumulate(widest.to_numpy()[::-1] <= allowed).sum())
        law = equal >= 2 and known["span"].iloc[-equal:].sum() >= SPAN
        exponent = last[:3] if law else [np.nan] * 3
        used = int(last[3]) if len(known) else 0
        rows.append([*key, equal if law else 0, len(known), used, *exponent])
    columns = [*keys, "decades", "of", "used", "exponent", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the curves over the norm of W, and over the steps."""
    figures: dict[str, Any] = {
        "rates": _over_norm,
        "rates_steps": partial(_figure, "step", [*QUANTITIES]),
    }
    return paged(figures, tables, axes, remarks, notes=notes, room=MOST_CURVES)


def _over_norm(tables: Tables, axes: CellAxes) -> Figure:
    """Return the curves over the norm, with lines of the slopes that theory gives."""
    fig = _figure("W_norm", [*GUIDES], tables, axes)
    table = tables["rates_curves"]
    largest = table.loc[table["quantity"].isin(GUIDES), "W_norm"].max()
    for ax, (quantity, exponent) in zip(fig.axes, GUIDES.items(), strict=False):
        if largest > 1e3:
            end = table[(table["quantity"] == quantity) & (table["W_norm"] == largest)].iloc[0]
            x = np.array([largest / 1e3, largest])
            y = 6 * end["median"] * (x / largest) ** exponent
            ax.plot(x, y, ":", color=style.INK)
            ax.text(x[0], y[0], rf"$\|W\|^{{{exponent:.0f}}}$", va="bottom")
    return fig


def _figure(x: str, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each quantity, with a curve for each cell."""
    table = tables["rates_curves"]
    table = table[(table["median"] > SMALLEST_SHOWN) & table["quantity"].isin(quantities)]
    return curves(
        table.assign(hue=labels(axes, table, axes.besides()), col=table["quantity"]),
        x,
        "median",
        panels=panels_of(*quantities),
        bands={},
        log_x=True,
    )


def notes(tables: Tables, axes: CellAxes) -> list[str]:
    """Return a sentence with the counts of numbers without a logarithm, if there are any."""
    counts = tables["rates_left_out"]
    sums = counts[counts["against"] == "step"].groupby("quantity", sort=False)
    listed = [
        f"{QUANTITIES[str(name)]} {int(row['left_out'])} of {int(row['of'])}"
        for name, row in sums[["left_out", "of"]].sum().iterrows()
        if row["left_out"]
    ]
    return [f"Left out, not positive or not known: {', '.join(listed)}."] if listed else []
