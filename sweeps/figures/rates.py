"""Rates: exponents of direction error, margin gap and loss against steps and the norm of W."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from .. import statistics, style
from ..facets import curves, labels, panels_of
from ..notation import MEASURED
from . import MOST_CURVES, CellAxes, Figure, LoadedSweep, Tables, paged
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

    A row of `rates` says over how many `decades` a power law holds (0: none), and its exponent.
    """
    by = frames.cells.besides()
    trials = frames.rows[frames.rows["status"].isin(USED)]
    trials = trials[trials["frobenius_status"] == "solved"]
    history = history_of(frames, trials, by)
    instance = list(dict.fromkeys([*by, "run", "seed"]))
    shown = [*(q for q in QUANTITIES if "excess" not in q), LOG_EXCESS, "W_norm"]
    wide = history[history["quantity"].isin(shown) & (history["step"] > 0)]
    wide = wide.pivot_table("value", [*instance, "step"], "quantity", dropna=False)
    wide = wide.reindex(columns=shown).dropna(how="all").reset_index()
    long = _long(wide, [*instance, "step", "W_norm"])
    medians = statistics.summaries(long, [*by, "quantity", "step"], "value", "median")
    norms = statistics.summaries(wide, [*by, "step"], "W_norm", "median")
    norms = norms.rename(columns={"median": "W_norm"})[[*by, "step", "W_norm"]]
    local = _exponents(long, [*instance, "quantity", "against"], [*by, "quantity", "against"])
    return {
        "rates": _laws(local, by),
        "rates_by_decade": local,
        "rates_curves": medians.merge(norms, on=[*by, "step"]),
        "rates_counts": outcomes(frames),
    }


def _long(wide: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, step and quantity that is known: `value`, and `log` of it.

    L - L* may be 0 as a value, but not its logarithm.
    """
    excess = wide[LOG_EXCESS]
    parts = []
    for name in QUANTITIES:
        value = np.exp(excess) if name == "excess_risk" else wide.get(name, -excess)
        log = excess if name == "excess_risk" else np.log(value.where(value > 0))
        parts.append(wide[keys].assign(quantity=name, value=value, log=log))
    known = [part for part in parts if part["value"].notna().any()]
    return pd.concat(known or parts[:1], ignore_index=True)


def _exponents(long: pd.DataFrame, keys: list[str], cells: list[str]) -> pd.DataFrame:
    """Return the median exponent of every cell and decade, and of its change to the last decade.

    The exponent of an instance is the slope of `log` over log x, steps or norm, by least squares in
    the decade of steps from 10^k to 10^(k+1), ends included; NaN with fewer than POINTS points.
    """
    logs = pd.concat(
        [long.assign(against=name, x=np.log(long[name].where(long[name] > 0))) for name in AGAINST],
        ignore_index=True,
    )
    exponent = np.log10(logs["step"])
    decade = np.floor(exponent + 1e-9).astype(int)
    is_end = (decade > 0) & (exponent - decade < 1e-9)
    both = pd.concat([logs.assign(decade=decade), logs[is_end].assign(decade=decade - 1)])
    both = both[np.isfinite(both[["x", "log"]]).all(axis=1) & (both["decade"] < decade.max())]
    both = both.sort_index(kind="stable")
    decades, cells = [*keys, "decade"], [*cells, "decade"]
    means = both.groupby(decades, dropna=False)[["x", "log"]].transform("mean")
    x, y = both["x"] - means["x"], both["log"] - means["log"]
    sums = both.assign(xy=x * y, xx=x**2).groupby(decades, dropna=False)
    sums = sums.agg(xy=("xy", "sum"), xx=("xx", "sum"), points=("x", "size"), span=("x", np.ptp))
    slope = (sums["xy"] / sums["xx"].where(sums["xx"] > 0)).where(sums["points"] >= POINTS)
    slopes = pd.DataFrame({"slope": slope, "span": sums["span"]}).reset_index()
    last = slopes.groupby(keys, dropna=False)["slope"].transform("last")  # decades are in order
    slopes["change"] = slopes["slope"] - last
    local, changes = (
        statistics.summaries(slopes, cells, name, "median") for name in ("slope", "change")
    )
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
        known = cells[cells["used"] > 0].sort_values("decade", ascending=False)
        last = known[["median", "low", "high"]].head(1).to_numpy(float).ravel()
        widest = known[["change_median", "change_low", "change_high"]].abs().max(axis=1).fillna(0)
        allowed = TOLERANCE * min(1.0, *np.abs(last[:1]), 1.0)
        equal = int((widest <= allowed).cummin().sum())
        law = equal >= 2 and known["span"].head(equal).sum() >= SPAN
        used = int(known["used"].head(1).sum())
        exponent = last if law else [np.nan] * 3
        rows.append([*key, equal if law else 0, len(known), used, *exponent])
    columns = [*keys, "decades", "of", "used", "exponent", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _figure(x: str, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each quantity, over the norm with lines of the slopes of theory."""
    table = tables["rates_curves"]
    table = table[(table["median"] > SMALLEST_SHOWN) & table["quantity"].isin(quantities)]
    fig = curves(
        table.assign(hue=labels(axes, table, axes.besides()), col=table["quantity"]),
        x,
        "median",
        panels=panels_of(*quantities),
        bands={},
        log_x=True,
    )
    for ax, quantity in zip(fig.axes, quantities if x == "W_norm" else (), strict=False):
        ends = table[table["quantity"] == quantity].sort_values("W_norm").tail(1)
        for _, end in ends[ends["W_norm"] > 1e3].iterrows():
            part, exponent = np.array([1e-3, 1]), GUIDES[quantity]
            y = 6 * end["median"] * part**exponent
            ax.plot(part * end["W_norm"], y, ":", color=style.INK)
            ax.text(end["W_norm"] / 1e3, y[0], rf"$\|W\|^{{{exponent:.0f}}}$", va="bottom")
    return fig


FIGURES = {
    "rates": partial(_figure, "W_norm", [*GUIDES]),
    "rates_steps": partial(_figure, "step", [*QUANTITIES]),
}
draw = partial(paged, FIGURES, room=MOST_CURVES)
