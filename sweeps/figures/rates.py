"""Rates: exponents of direction error, margin gap and loss against steps and the norm of W."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, _curves, history_of, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

QUANTITIES = {
    "one_minus_corr_frobenius": _curves.AXES["one_minus_corr_frobenius"],
    "margin_gap_frobenius": r"margin gap by $W_{\mathrm{mm}}$",
    "excess_risk": r"$L - L^\star$",
    "minus_log_excess_risk": r"$\log\,1/(L - L^\star)$",
}
"""Axis label of a quantity."""

NAMES = {
    "one_minus_corr_frobenius": "1-correlation",
    "margin_gap_frobenius": "margin gap",
    "excess_risk": "L - L*",
    "minus_log_excess_risk": "log 1/(L - L*)",
}
LOG_EXCESS = "excess_risk_log"
"""The quantity of the history from which both of the loss follow; L - L* itself underflows."""

SMALLEST_SHOWN = 1e-30
"""Curves end where they fall below: L - L* falls to e^-400000."""

AGAINST = {"step": "step", "W_norm": r"$\|W\|_F$"}
USED = ("ok", "unsaturated")
"""Statuses of instances whose training goes on: unsaturated are those with fixed steps."""

TOLERANCE = 0.02
"""Difference of the exponents of two decades up to which they count as equal, and its share of the
last exponent: that of a logarithm is small and still falls."""

SPAN = np.log(10)
"""Least change of log x, the median over the instances, over which a power law of x is told."""

POINTS = 3
"""Fewest snapshots of a decade from which an exponent is read."""

NOTE = (
    "Left and middle: median over instances with a certified SVM at the tokens that they end "
    "with; L* is the loss of attending to these alone. Right: exponent of each decade of steps, "
    "the slope of log y over log x of an instance; median over the instances with its 95 % "
    "bootstrap interval; filled against the steps, open against the norm of W. A power law holds "
    "over the last decades, at least two, whose exponents differ by at most "
    f"{TOLERANCE:g}, and by {TOLERANCE:.0%} of the last one: the interval of the median "
    "difference; of the norm only where it grows tenfold in them. Curves are drawn down to "
    f"{SMALLEST_SHOWN:g}; exponents are read from all numbers, L - L* from its logarithm."
)
CAPTION = (
    "1-correlation with W_mm, margin gap and loss over the steps and over the norm of W, and the "
    "exponents of every decade of steps, for gradient descent with a fixed step and for rules "
    "whose steps grow."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the medians over the steps, exponents by decade, the power laws, and counts.

    A row of `rates` says over how many `decades` a power law holds (0: none), and its exponent; one
    of `rates_left_out` how many numbers of a quantity and a decade have no logarithm.
    """
    by = frames.axes.besides()
    trials = frames.trials[frames.trials["status"].isin(USED)]
    if "frobenius_status" in trials:
        trials = trials[trials["frobenius_status"] == "solved"]
    history = history_of(frames, trials, by)
    keys = list(dict.fromkeys([*by, "run", "seed", "step"]))
    shown = [*(q for q in QUANTITIES if "excess" not in q), LOG_EXCESS, "W_norm"]
    wide = history[history["quantity"].isin(shown) & (history["step"] > 0)]
    wide = wide.pivot_table(index=keys, columns="quantity", values="value", dropna=False)
    wide = wide.reindex(columns=shown).dropna(how="all").reset_index()
    long = _long(wide, [*keys, "W_norm"])
    medians = statistics.summaries(long, [*by, "quantity", "step"], "value", "median")
    norms = statistics.summaries(wide, [*by, "step"], "W_norm", "median")
    norms = norms.rename(columns={"median": "W_norm"})[[*by, "step", "W_norm"]]
    slopes = _slopes(long, by)
    cells = [*by, "quantity", "against", "decade"]
    local = statistics.summaries(slopes, cells, "slope", "median")
    changes = statistics.summaries(_changes(slopes, by), cells, "change", "median")
    named = {name: f"change_{name}" for name in ("median", "low", "high")}
    local = local.merge(changes[[*cells, *named]].rename(columns=named), on=cells, how="left")
    spans = slopes.groupby(cells, dropna=False)["span"].median().reset_index()
    local = local.merge(spans, on=cells, how="left")
    return {
        "rates": _laws(local, by),
        "rates_by_decade": local,
        "rates_left_out": _left_out(long, by),
        "rates_curves": medians.merge(norms, on=[*by, "step"]),
        "rates_counts": outcomes(frames.trials, frames.axes),
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


def _slopes(long: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the exponent of each instance, quantity and decade of steps, against steps and norm.

    The decade k holds the steps from 10^k to 10^(k+1), ends included.
    """
    parts = []
    keys = list(dict.fromkeys([*by, "run", "seed", "quantity"]))
    for k, against, inside, valid in _decades(long):
        x, y = inside[against].to_numpy(float), inside["log"].to_numpy(float)
        logs = inside[keys].assign(x=np.log(np.where(valid, x, 1)), y=y)
        parts.append(_least_squares(logs[valid], keys).assign(against=against, decade=k))
    columns = [*by, "quantity", "against", "decade", "slope", "span"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _left_out(long: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return how many numbers have no logarithm, `left_out`, of how many, `of`.

    The decade k holds the steps from 10^k to below 10^(k+1): a number is counted once. A decade in
    which no number is left has no exponent, but a row here.
    """
    decade = np.floor(np.log10(long["step"].to_numpy(dtype=float)) + 1e-9).astype(int)
    cells = [*by, "quantity", "against", "decade"]
    parts = []
    for against in AGAINST:
        out = ~_has_logarithms(long, against)
        parts.append(long.assign(against=against, decade=decade, out=out))
    counts = pd.concat(parts).groupby(cells, dropna=False)["out"].agg(left_out="sum", of="size")
    return counts.reset_index()


def _has_logarithms(rows: pd.DataFrame, against: str) -> np.ndarray:
    """Return the rows whose quantity has a logarithm, and the number it is fitted against."""
    x, y = rows[against].to_numpy(float), rows["log"].to_numpy(float)
    return np.asarray((x > 0) & np.isfinite(x) & np.isfinite(y))


def _decades(long: pd.DataFrame) -> Iterator[tuple[int, str, pd.DataFrame, np.ndarray]]:
    """Yield each decade k, against what, its rows, and which of them have both logarithms."""
    exponent = np.log10(long["step"].to_numpy(dtype=float))
    last = int(np.floor(exponent.max() + 1e-9)) if len(long) else 0
    for k in range(last):
        inside = long[(exponent > k - 1e-9) & (exponent < k + 1 + 1e-9)]
        for against in AGAINST:
            yield k, against, inside, _has_logarithms(inside, against)


def _least_squares(logs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the slope of y over x of each group, and the span of x.

    The slope is NaN with fewer than POINTS points.
    """
    span = logs.groupby(keys, dropna=False)["x"].agg(np.ptp)
    centred = logs.assign(
        **{name: logs[name] - logs.groupby(keys, dropna=False)[name].transform("mean")
           for name in ("x", "y")}
    )  # fmt: skip
    centred = centred.assign(xy=centred["x"] * centred["y"], xx=centred["x"] ** 2)
    sums = centred.groupby(keys, dropna=False).agg(
        xy=("xy", "sum"), xx=("xx", "sum"), points=("x", "size")
    )
    slope = (sums["xy"] / sums["xx"].where(sums["xx"] > 0)).where(sums["points"] >= POINTS)
    return pd.DataFrame({"slope": slope, "span": span}).reset_index()


def _changes(slopes: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return by how much an instance's exponent differs from that of its last decade."""
    keys = list(dict.fromkeys([*by, "run", "seed", "quantity", "against"]))
    ordered = slopes.sort_values("decade")
    if ordered.empty:
        return ordered.assign(change=np.nan)
    last = ordered.groupby(keys, dropna=False)["slope"].transform("last")
    return ordered.assign(change=ordered["slope"] - last)


def _laws(local: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the number of last decades with equal exponents, and the exponent of the last one.

    Equal: the interval of the median difference to the last one lies in +-TOLERANCE, and in
    +-TOLERANCE of the last one. They have to span SPAN of log x.
    """
    rows = []
    keys = [*by, "quantity", "against"]
    for key, cells in local.groupby(keys, dropna=False, sort=True):
        known = cells[cells["used"] > 0].sort_values("decade")
        changes = known[["change_median", "change_low", "change_high"]].to_numpy(float)
        widest = np.nan_to_num(np.abs(changes)).max(axis=1)  # no interval with one instance
        allowed = TOLERANCE * min(1.0, abs(float(known["median"].iloc[-1]))) if len(known) else 0.0
        equal = int(np.logical_and.accumulate(widest[::-1] <= allowed).sum())
        law = equal >= 2 and known["span"].iloc[-equal:].sum() >= SPAN
        found = known.iloc[-1] if law else None
        rows.append(
            dict(zip(keys, key, strict=True))
            | {"decades": equal if law else 0, "of": len(known)}
            | {"used": int(known["used"].iloc[-1]) if len(known) else 0}
            | {name: np.nan if found is None else float(found[column])
               for name, column in (("exponent", "median"), ("low", "low"), ("high", "high"))}
        )  # fmt: skip
    return pd.DataFrame(rows, columns=[*keys, "decades", "of", "used", "exponent", "low", "high"])


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure, or several if there are too many curves."""
    return drawings(
        "rates", tables, axes, remarks, _figure, caption=CAPTION, room=_curves.CURVES,
        cells="rates_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a row for each quantity: over the steps, over the norm, exponents by decade."""
    medians, local = tables["rates_curves"], tables["rates_by_decade"]
    shown = [name for name in QUANTITIES if (medians["quantity"] == name).any()] or [*QUANTITIES][
        :1
    ]
    names = [name for name, _ in axes.split(tables["rates_counts"], axes.besides())]
    colours, markers = style.colours(names), style.markers(names)
    fig = style.figure(9.6 + style.legend_width(names), 0.6 + 2.5 * len(shown))
    grid = fig.subplots(len(shown), 3, squeeze=False, sharex="col")
    for line, quantity in zip(grid, shown, strict=True):
        for ax, x in zip(line, AGAINST, strict=False):
            for name, cells in axes.split(medians[medians["quantity"] == quantity], axes.besides()):
                rows = cells[cells["median"] > SMALLEST_SHOWN].sort_values("step")
                if rows.empty:
                    continue
                look = {"color": colours[name], "marker": markers[name], "markersize": 3}
                ax.plot(rows[x], rows["median"], label=style.plain(name), **look)
            if ax.lines:
                ax.set_xscale("log")
                ax.set_yscale("log")
            ax.set_ylabel(QUANTITIES[quantity])
        _exponents(line[2], axes, local[local["quantity"] == quantity], colours, markers)
        if quantity == "excess_risk":
            line[2].set_yscale("symlog", linthresh=1)
    for ax, text in zip(grid[-1], [*AGAINST.values(), "decade of steps, $10^k$"], strict=True):
        ax.set_xlabel(text)
    if len(medians):
        style.legend(grid[0, -1], grid.flat)
    else:
        style.empty(grid[0, 0], "no certified instance")
    counted = status_counts(tables["rates_counts"], axes)
    told = [*_told(tables["rates"], axes), *_told_left_out(tables["rates_left_out"])]
    style.note(fig, [NOTE, *told, counted, *remarks])
    return fig


def _exponents(
    ax: Axes,
    axes: CellAxes,
    local: pd.DataFrame,
    colours: dict[str, str],
    markers: dict[str, str],
) -> None:
    for against in AGAINST:
        for name, cells in axes.split(local[local["against"] == against], axes.besides()):
            rows = cells[cells["used"] > 0].sort_values("decade")
            if rows.empty:
                continue
            face = colours[name] if against == "step" else "white"
            ends = np.abs(rows[["low", "high"]].to_numpy(float).T - rows["median"].to_numpy(float))
            ax.errorbar(
                rows["decade"] + (0.0 if against == "step" else 0.12), rows["median"],
                yerr=np.nan_to_num(ends), color=colours[name], marker=markers[name],
                markerfacecolor=face, markeredgecolor=colours[name], markeredgewidth=1,
                markersize=4,
                linestyle="-" if against == "step" else ":", linewidth=1,
            )  # fmt: skip
    ax.set_ylabel("exponent")


def _told(laws: pd.DataFrame, axes: CellAxes) -> list[str]:
    """Return a sentence for each quantity with the exponents of the power laws."""
    lines = []
    for (quantity, against), rows in laws.groupby(["quantity", "against"], sort=False):
        told = [
            f"{name or 'all'} {row['exponent']:.3f} [{row['low']:.3f}, {row['high']:.3f}] "
            f"({row['decades']} of {row['of']} decades)"
            if row["decades"]
            else f"{name or 'all'} none"
            for name, part in axes.split(rows, axes.besides())
            for _, row in part.iterrows()
        ]
        over = {"step": "steps", "W_norm": "norm"}[str(against)]
        lines.append(f"{NAMES[str(quantity)]} over the {over}: {'; '.join(told)}.")
    return lines


def _told_left_out(counts: pd.DataFrame) -> list[str]:
    """Return a sentence with the counts of numbers without a logarithm, if there are any."""
    sums = counts[counts["against"] == "step"].groupby("quantity", sort=False)
    told = [
        f"{NAMES[str(name)]} {int(one['left_out'])} of {int(one['of'])}"
        for name, one in sums[["left_out", "of"]].sum().iterrows()
        if one["left_out"]
    ]
    return [f"Left out, not positive or not known: {', '.join(told)}."] if told else []
