"""Every optimizer against every norm: in which one its weights have the largest margin."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm

from .. import statistics, style
from ..cells import row_key
from ..facets import heatmap, labels
from ..notation import VALUES
from . import MOST_CURVES, CellAxes, Drawing, Figure, LoadedSweep, Tables, _selections, paged
from ._numbers import certified, frame_fields, history_of, outcomes

GAP, GAP_OVER_STEPS = "_margin_gap", "margin_gap_"
"""End of the column in trials, after the norm; beginning of the quantity in history, before it."""

EUCLIDEAN = ("normalized_gd", "gd", "momentum", "polyak", "regularization_path")
OWN = dict.fromkeys(EUCLIDEAN, "frobenius") | {"sign_gd": "max", "adam": "max", "muon": "spectral"}
"""Norm in which an optimizer of W has the largest margin in theory, for linear models."""

OF_FACTORS = {"frobenius": "nuclear", "spectral": "spectral", "schatten4": "frobenius"}
"""Norm of the steps of K and Q -> that of K Q^T which they make small together.

min ||K||_Sp ||Q||_Sp over K Q^T = W is ||W||_Sp/2, by Hoelder's inequality for singular values.
"""

NORMS = ("frobenius", "spectral", "max", "l1", "nuclear")
"""Norms in the order of rows and columns; others follow."""

RANGE = 1e-4, 1.0
"""Margin gaps of the ends of the colour scale."""

STEPS = tuple(f"optimizer.{name}" for name in ("lr", "growth", "decay", "steps", "schedule"))
"""Fields of the sizes and the number of steps."""

BALLS = ("frobenius", "spectral", "max", "nuclear")
"""Norms in whose balls `probe=[constrained]` measures W."""

REACHED, APART = 0.02, 1e-6
"""Largest gap of a norm that is reached, and least difference to the next one, above the errors of
both."""

STILL, SHRINK = 0.03, 0.75
"""Largest change of a gap, relative, while W doubles, if the gap is still; largest ratio of its
falls in two doublings if it comes to an end."""


@dataclass(frozen=True)
class Geometry:
    """The map of the sweep `name` over optimizers of W, or of K and Q, with `room` for settings."""

    name: str
    room: int = MOST_CURVES

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the gaps in every norm, tokens, and counts."""
        trials, keys = _with_own(certified(frames)), [*frames.cells.besides(), "own"]
        names = {name: name.removesuffix(GAP) for name in map(str, trials) if name.endswith(GAP)}
        balls = {f"constrained_{norm}": f"ball of {norm}" for norm in BALLS}
        names |= {name: words for name, words in balls.items() if name in trials}
        long = trials.rename(columns=names).melt(keys, [*names.values()], "margin_in", "value")
        return {
            self.name: statistics.summaries(long, [*keys, "margin_in"], "value", "median"),
            f"{self.name}_tokens": _selections.of_pairs(frames),
            f"{self.name}_counts": outcomes(frames),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return the map, or several."""
        return paged({self.name: partial(_map, self.name)}, tables, axes, remarks, room=self.room)


class Atlas(Geometry):
    """The map of many settings; beside each, how many of its instances end where."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the tables of the map, and where instances end."""
        return super().tables(frames) | {f"{self.name}_reached": self.reached(frames)}

    def reached(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the number of instances of each setting that end at the same."""
        trials = _with_own(certified(frames))
        ends = trials.assign(reached=_reached(frames, trials))
        return statistics.counts(ends, [*frames.cells.besides(), "own", "reached"])


def _with_own(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with the norm of each optimizer as `own`, "" where it is not known."""
    own = trials["optimizer"].map(OWN)
    if "optimizer.norm" in trials:
        own = own.where(trials["optimizer"] != "steepest", trials["optimizer.norm"])
    if {"optimizer.eps", "optimizer.schedule"} <= {*trials}:  # gradients far below eps
        small = (trials["optimizer.eps"] > 0) & (trials["optimizer.schedule"] == "geometric")
        own = own.mask(small, "frobenius")
    own = own.where(trials["parameterization"] != "kq", own.map(OF_FACTORS))
    return trials.assign(own=own.fillna(""))


def _reached(frames: LoadedSweep, trials: pd.DataFrame) -> list[str]:
    """Return where each of the trials ends: a norm, its ball, `none`, or `undecided`.

    A norm is reached, or its ball if weights decay, if W has a gap in it of REACHED at most, and a
    larger one in all others. `none` is reached if all gaps are larger and W nears no norm, see
    `away`. Weights that decay do not grow, and where eps > 0 a step depends on the size of the
    gradient: there all gaps must be `settled`, in balls since half of the steps. It is undecided
    whether weights reach the ball of their own norm where that is not measured.
    """
    keys = row_key(trials)
    history = history_of(frames, trials, keys)
    wide = history.pivot_table("value", [*keys, "step"], "quantity", observed=True)
    curves = dict(iter(wide.reset_index("step").groupby(keys, observed=True)))
    decays = trials.get("optimizer.weight_decay", pd.Series(0.0, trials.index)) > 0
    decays &= "constrained_nuclear" in trials
    return [
        ending(row, curves.get(tuple(row[keys]), pd.DataFrame()))
        for _, row in trials.assign(decays=decays).iterrows()
    ]


def ending(row: pd.Series, curve: pd.DataFrame) -> str:
    """Return where a trial with this curve ends."""
    gaps = {norm: row[norm + GAP] for norm in NORMS if pd.notna(row.get(norm + GAP))}
    names = [f"{GAP_OVER_STEPS}{norm}" for norm in gaps]
    if row["decays"]:
        gaps = {f"ball of {norm}": row[f"constrained_{norm}"] for norm in BALLS}
        names = [f"constrained_{norm}" for norm in BALLS]
    (norm, least), *others = sorted(gaps.items(), key=lambda item: item[1]) or [("", np.nan)]
    if least <= REACHED and others and others[0][1] - least > APART:
        return norm
    if not (least > REACHED and {"W_norm", *names} <= set(curve)):
        return "undecided"
    if row["decays"]:
        ended = row["own"] in ("", *BALLS) and settled(curve, [*names, "W_norm"], "step")
    else:
        ended = (settled if row.get("optimizer.eps", 0.0) > 0 else away)(curve, names, "W_norm")
    return "none" if ended else "undecided"


def settled(curve: pd.DataFrame, names: Sequence[str], growing: str) -> bool:
    """Return whether nothing differed by more than STILL since `growing` was half as large."""
    since = np.flatnonzero(curve[growing] <= curve[growing].iloc[-1] / 2)[-1:]
    values = curve[list(names)].to_numpy()
    return bool(since.size and (np.abs(values[since[0] :] / values[-1] - 1) <= STILL).all())


def away(curve: pd.DataFrame, names: Sequence[str], growing: str) -> bool:
    """Return whether gaps stay above REACHED, by how they fell while `growing` doubled twice.

    Each gap rises or is still, and ten more falls like the last one end above REACHED; or its falls
    shrink by SHRINK at least, and what is left of such a geometric series, taken twice, does.
    """
    curve = curve[curve[growing] > 0]  # no gap is defined at W = 0
    sizes = np.log2(curve[growing].cummax().to_numpy())
    if not sizes.size or sizes[0] > sizes[-1] - 2:
        return False
    quarter, half, now = (
        np.array([np.interp(sizes[-1] - k, sizes, curve[name]) for name in names])
        for k in (2, 1, 0)
    )
    before, fall = quarter - half, half - now
    ratio = np.clip(fall / np.where(before > 0, before, np.inf), 0.0, SHRINK)
    still = (fall <= STILL * now) & (now - 10 * fall > REACHED)
    ends = (fall <= SHRINK * before) & (now - 2 * fall * ratio / (1 - ratio) > REACHED)
    return bool((still | ends).all())


def decision(table: pd.DataFrame, counts: pd.DataFrame) -> str:
    """Return where a setting ends, from its medians and its counts: `one`, `several` or `open`.

    `one`: the interval of the least median, in balls if weights decay, is at most REACHED and below
    all others; or nine of ten instances end at the same. `several`: it is known of nine of ten
    instances where each of them ends.
    """
    of_balls = table["margin_in"].str.startswith("ball")
    decays = counts["reached"].str.startswith("ball").any()
    decays |= "optimizer.weight_decay" in table and bool(
        (table["optimizer.weight_decay"] > 0).any()
    )
    rows = table[of_balls == decays].sort_values("median")
    least, others = rows.iloc[:1], rows.iloc[1:]
    apart = (least["high"] <= REACHED) & (least["high"] < others["low"].min())
    ends = counts[counts["reached"] != "undecided"].groupby("reached")["count"].sum()
    known, least_known = 10 * ends, 9 * counts["count"].sum()
    if apart.any() or known.max() >= least_known:
        return "one"
    return "several" if known.sum() >= least_known else "open"


def _map(name: str, tables: Tables, axes: CellAxes) -> Figure:
    table, reached = tables[name], tables.get(f"{name}_reached")
    norms, words = sorted({*table["margin_in"]}, key=_place), _settings(table, axes)
    settings, balls = [*words.cat.categories], len(norms) - len(NORMS)
    names = [style.wrapped(word, 2.9) for word in settings]
    lines = sum(1 + word.count("\n") for word in names)
    fig = style.figure(style.PAGE, max(0.07 * len(names) + 0.1 * lines + 1.0, 3.4))
    ax = fig.subplots()
    if table["used"].sum() == 0:
        style.empty(ax, "no certified instance")
        return fig
    shown = table.assign(
        setting=words,
        margin_in=pd.Categorical(table["margin_in"], norms),
        shown=table["median"].clip(*RANGE),
        text=[f"{gap:.2g}" if gap >= 1e-3 else f"{gap:.0e}" for gap in table["median"]],  # fits
    ).dropna(subset="median")
    heatmap(
        ax,
        shown,
        "setting",
        "margin_in",
        "shown",
        "text",
        norm=LogNorm(*RANGE),
        cbar=True,
        cbar_kws={"label": "median gap", "pad": 0.02, "location": "top", "aspect": 40},
        xticklabels=[_word(norm) for norm in norms],
        yticklabels=names,
    )
    own = shown[shown["own"] == shown["margin_in"].astype(str)]
    frame_fields(ax, own["margin_in"].cat.codes, own["setting"].cat.codes, "#e31a1c")
    ax.set_xlabel(f"margin in a norm{', or ball' if balls > 0 else ''}; framed: norm of the steps")
    if balls > 0:
        ax.tick_params("x", rotation=90)
        ax.axvline(len(norms) - balls, color="white", linewidth=3)
    if reached is not None:
        counted = dict(iter(reached.groupby(_settings(reached, axes).astype(str))))
        for place, word in enumerate(settings):
            text = _ends(table[words == word], counted[word]) if word in counted else "-"
            ax.text(len(norms) + 0.07, place + 0.5, text, va="center", fontsize=6.5)
    return fig


def _ends(table: pd.DataFrame, counts: pd.DataFrame) -> str:
    """Return how many instances reach what, most first, and whether that is decided."""
    sums = counts.groupby("reached")["count"].sum().sort_values(ascending=False)
    listed = ", ".join(f"{_word(str(word))} {count}" for word, count in sums.items())
    decided = decision(table, counts)
    return listed if decided == "one" else f"{listed} ({decided})"


def _settings(table: pd.DataFrame, axes: CellAxes) -> "pd.Series[Any]":
    """Return the label of each row's optimizer, as categories in the order of the norms of steps.

    Of more than `MOST_CURVES` labels are without sizes and number of steps, if they differ then.
    """
    names = [name for name in axes.names if name in table]
    short = [name for name in names if name not in STEPS]
    settings, fewer = (len(table[keys].drop_duplicates()) for keys in (names, short))
    words = labels(axes, table, short if settings == fewer > MOST_CURVES else names)
    order = {*zip(table["own"].map(_place), words, strict=True)}
    return words.cat.set_categories([word for _, word in sorted(order)])


def _word(norm: str) -> str:
    """Return the name of a norm, or of its ball."""
    ball, of, name = norm.rpartition(" of ")
    return ball + of + VALUES["norm"].get(name, style.plain(name))


def _place(norm: str) -> tuple[int, str]:
    """Return the place of a norm: those with a name first, then balls."""
    return (NORMS.index(norm) if norm in NORMS else len(NORMS)), norm
