"""Heads of a pretrained transformer against the SVMs of the tokens that they attend to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, _head_attention, _head_optimality, outcomes, status_counts
from ._pages import Make, Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

HEAD = _head_attention.HEAD
NORMS = {"frobenius": "one_minus_corr_frobenius", "nuclear": "one_minus_corr_nuclear"}
SVMS = {
    "one token": "the token that it attends to most",
    "Gen-SVM": "all tokens that it attends to",
}
NULLS = {
    "spectrum": "random weights with its singular values",
    "queries": "queries of other sentences",
    "tokens": "tokens at each place shuffled among sentences",
    "other_heads": "the other heads of the layer, on its tokens",
}
SHOWN = {
    "entropy_mean": "attention entropy (nat)",
    "at_layer": "layer",
    "rank_stable": "stable rank",
}
USED = ("ok", "unsaturated")
RATE = 0.05
"""False discovery rate."""

NOTE = (
    "Lean: correlation of the head with the SVM of the tokens that it selects, less that of a "
    "control; mean over samples of sentences, of the four controls the one of least difference, "
    "with a 95 % interval of the least of the four (Student's t, the same sentences in both, "
    "Bonferroni over the controls). Controls: "
    + "; ".join(NULLS.values())
    + ". A star: more than all four, by one-sided t tests, at a false discovery rate of 5 % "
    "(Benjamini and Hochberg, over all heads, norms and SVMs)."
)
OF_GEN_SVM = (
    "Gen-SVM: equal logits within the tokens that have at least selection.attended of the "
    "attention, margins to all others. Of the head, what is left of W without its part W_fin, "
    "which these tokens fix by themselves."
)
CAPTION = (
    "How much more each head of a pretrained transformer correlates with the SVM of {}, "
    "than four controls, in the Frobenius and in the nuclear norm, with 95 % intervals."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the lean of every head in both norms, by control too, and an example's attention.

    And in how many samples a head selects tokens that are optimal, or locally so, by the loss.
    """
    by = frames.axes.besides("control", "tokens", *HEAD)
    keys = [*by, *HEAD, "svm", "svm_norm"]
    values = _correlations(frames.trials, [*by, *HEAD])
    own = values[values["control"] == "none"]
    differences = _differences(values, own, keys)
    controls = statistics.paired_means(differences, [*keys, "null"], "difference")
    heads = _heads(own, controls, differences, keys, by)
    return {
        "pretrained_heads": heads,
        "pretrained_heads_controls": controls,
        "pretrained_heads_total": _total(heads, by),
        "pretrained_heads_attention": _head_attention.table(
            frames, heads[heads["svm"] == "one token"], by
        ),
        "pretrained_heads_optimality": _head_optimality.table(frames.trials, by, HEAD, USED),
        "pretrained_heads_counts": outcomes(frames.trials, frames.axes),
    }


def _correlations(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance and norm: correlation, and what else is known of it."""
    parts = []
    needed = (*keys, "control", "seed", "status", "tokens", *NORMS.values())
    trials = trials.assign(**{name: np.nan for name in needed if name not in trials})
    of_gen_svm = trials["tokens"] == "multi"
    left = np.sqrt(1 - np.where(of_gen_svm, share_of_finite_part(trials), 0.0))
    for norm, column in NORMS.items():
        solved = (trials.get(f"{norm}_status", trials["status"]) == "solved") & trials[
            "status"
        ].isin(USED)
        part = trials[[*dict.fromkeys([*keys, "control", "seed"])]].assign(
            svm=np.where(of_gen_svm, "Gen-SVM", "one token"),
            svm_norm=norm,
            correlation=((1 - trials[column]) / left).where(solved),
            other_heads=_column(trials, f"other_heads_{norm}").where(solved),
            svm_rank=_column(trials, f"{norm}_rank").where(solved),
            margin_gap=_column(trials, f"{norm}_margin_gap").where(solved),
            **{name: _column(trials, name) for name in ("entropy_mean", "attended_tokens",
                                                        "rank_effective", "rank_stable")},
        )  # fmt: skip
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def share_of_finite_part(trials: pd.DataFrame) -> np.ndarray:
    """Return ||W_fin||^2 / ||W||^2 of weights W, from their correlations with Gen-SVM.

    Of least Frobenius norm, W_fin is the projection of W on the span of the differences within the
    attended tokens, with their queries, and W_mm is orthogonal to it. With the correlations c of W
    with W_mm and e with W_fin + C W_mm of the best C >= 0, e^2 = ||W_fin||^2 / ||W||^2 + c^2 if
    c > 0; without c^2 otherwise. W_fin = 0 if no sample attends to two tokens: then e = c.
    """
    c, e = (
        1 - _column(trials, name).to_numpy()
        for name in ("one_minus_corr_frobenius", "one_minus_corr_svmeq")
    )
    share = np.maximum(e, 0.0) ** 2 - np.maximum(c, 0.0) ** 2
    return np.asarray(np.clip(share, 0.0, 1.0))


def _column(trials: pd.DataFrame, name: str) -> pd.Series[float]:
    values = trials[name] if name in trials else pd.Series(np.nan, index=trials.index)
    return values.astype("float64")


def _differences(values: pd.DataFrame, own: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, norm and control: by how much the head correlates more."""
    kept = [*keys, "seed"]
    parts = [
        own[kept].assign(null="other_heads", difference=own["correlation"] - own["other_heads"])
    ]
    for null in _head_optimality.CONTROLS:
        other = values.loc[values["control"] == null, [*kept, "correlation"]]
        both = own[[*kept, "correlation"]].merge(other, on=kept, how="left", suffixes=("", "_null"))
        difference = both["correlation"] - both["correlation_null"]
        parts.append(both[kept].assign(null=null, difference=difference))
    return pd.concat(parts, ignore_index=True)


def _heads(
    own: pd.DataFrame,
    controls: pd.DataFrame,
    differences: pd.DataFrame,
    keys: list[str],
    by: list[str],
) -> pd.DataFrame:
    """Return a row for each head, SVM and norm: its lean, adjusted p-values, and its means.

    If the intervals of all controls hold, so does that from the least low to the least high end for
    the least of the means: each has coverage 1 - (1 - LEVEL) / 4.
    """
    level = 1 - (1 - statistics.LEVEL) / len(NULLS)
    together = statistics.paired_means(differences, [*keys, "null"], "difference", level)
    controls = controls.assign(low=together["low"], high=together["high"])
    rows = []
    for key, part in controls.groupby(keys, dropna=False, sort=True):
        known = part[part["used"] >= 2].sort_values("mean")
        least = known.iloc[0] if len(known) == len(NULLS) else None
        cell = dict(zip(keys, key, strict=True))
        rows.append(
            cell
            | {"used": int(part["used"].min()), "null": "" if least is None else least["null"]}
            | {"p_value": np.nan if least is None else known["p_value"].max()}
            | {new: np.nan if least is None else known[old].min()
               for new, old in (("lean", "mean"), ("low", "low"), ("high", "high"))}
        )  # fmt: skip
    columns = [*keys, "used", "null", "lean", "low", "high", "p_value"]
    heads = pd.DataFrame(rows, columns=columns)
    for name, any_dependence in (("", False), ("_any_dependence", True)):
        heads[f"adjusted{name}"] = np.nan
        for _, part in heads.groupby(by, dropna=False) if by else [((), heads)]:
            p = part["p_value"].to_numpy()
            adjusted = statistics.false_discovery(p, any_dependence)
            heads.loc[part.index, f"adjusted{name}"] = adjusted
        heads[f"leans{name}"] = (heads[f"adjusted{name}"] <= RATE) & (heads["lean"] > 0)
    means = ("correlation", "margin_gap", "svm_rank", "rank_effective", "rank_stable",
             "entropy_mean", "attended_tokens")  # fmt: skip
    for name in means:
        found = statistics.summaries(own, keys, name)[[*keys, "mean"]]
        heads = heads.merge(found.rename(columns={"mean": name}), on=keys, how="left")
    return heads


def _total(heads: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return for each SVM and norm how many heads there are, were tested, lean, and which."""
    rows, keys = [], [*by, "svm", "svm_norm"]
    for key, part in heads.groupby(keys, dropna=False, sort=True):
        leaning = part[part["leans"]]
        named = [f"{row['at_layer']}.{row['at_head']}" for _, row in leaning.iterrows()]
        rows.append(
            dict(zip(keys, key, strict=True))
            | {
                "asked": len(part),
                "tested": int(part["p_value"].notna().sum()),
                "lean": len(leaning),
                "lean_any_dependence": int(part["leans_any_dependence"].sum()),
            }
            | {"which": " ".join(named)}
        )
    columns = [*keys, "asked", "tested", "lean", "lean_any_dependence", "which"]
    return pd.DataFrame(rows, columns=columns)


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return the maps of leans, the lean against other numbers of a head, and an example."""
    shown = ("control", "tokens", *HEAD)
    made: list[tuple[str, Make, str]] = [
        (name, partial(_map_figure, svm), CAPTION.format(SVMS[svm]))
        for name, svm in (
            ("pretrained_heads", "one token"),
            ("pretrained_heads_gen_svm", "Gen-SVM"),
        )
        if svm == "one token" or svm in set(tables["pretrained_heads"]["svm"])
    ]
    made += [
        ("pretrained_heads_against", _against_figure,
         "The lean of every head against the entropy of its attention, its layer and its rank."),
        ("pretrained_heads_attention", _head_attention.figure,
         "Attention of the head that leans most, with the tokens that support its SVM."),
    ]  # fmt: skip
    return [
        one
        for name, make, caption in made
        for one in drawings(
            name, tables, axes, remarks, make, caption=caption, x=shown, cells="pretrained_heads"
        )
    ]


def _map_figure(svm: str, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    heads = tables["pretrained_heads"]
    heads = heads[heads["svm"] == svm]
    layers, columns = (sorted(heads[name].unique()) for name in HEAD)
    fig = style.figure(max(9.6, 1.5 + 0.78 * len(columns)), 2.0 + 0.92 * max(len(layers), 1))
    grid = fig.subplots(2, 1, sharex=True)
    total = tables["pretrained_heads_total"]
    notes = [NOTE, *([OF_GEN_SVM] if svm == "Gen-SVM" else []), *_told(total[total["svm"] == svm])]
    counts = status_counts(tables["pretrained_heads_counts"], axes)
    style.note(fig, [*notes, counts, *remarks])
    most = np.nanmax([0.05, *heads["lean"].abs()])
    for ax, norm in zip(grid, NORMS, strict=True):
        style.heading(ax, f"lean, {norm} norm, SVM of {SVMS[svm]}")
        part = heads[heads["svm_norm"] == norm]
        if not part["lean"].notna().any():
            style.empty(ax, "no head with all four controls and two samples")
            continue
        shades = _map(ax, part, layers, columns, most)
        fig.colorbar(shades, ax=ax, shrink=0.9, aspect=12, pad=0.01)
        ax.set_ylabel("layer")
    grid[-1].set_xlabel("head")
    return fig


def _map(ax: Axes, part: pd.DataFrame, layers: list[int], columns: list[int], most: float) -> Any:
    values = np.full((len(layers), len(columns)), np.nan)
    for _, row in part.iterrows():
        i, j = layers.index(row["at_layer"]), columns.index(row["at_head"])
        values[i, j] = row["lean"]
        if np.isfinite(row["lean"]):
            ends = f"[{row['low']:.2f}, {row['high']:.2f}]"
            text = f"{row['lean']:.3f}{'*' if row['leans'] else ''}\n{ends}"
            dark = abs(row["lean"]) > 0.6 * most
            ax.text(j, i, text, ha="center", va="center", fontsize=6.5,
                    color="white" if dark else style.INK)  # fmt: skip
    shades = ax.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    ax.set_xticks(range(len(columns)), [str(k) for k in columns])
    ax.set_yticks(range(len(layers)), [str(k) for k in layers])
    ax.grid(False)
    ax.tick_params(length=0)
    return shades


def _told(total: pd.DataFrame) -> list[str]:
    """Return a sentence for each norm with the heads that lean."""
    return [
        f"{row['svm_norm']} norm: {row['lean']} of {row['tested']} heads lean"
        f"{': ' + row['which'] if row['which'] else ''} ({row['lean_any_dependence']} by the bound "
        "for any dependence of the tests, Benjamini and Yekutieli)."
        for _, row in total.iterrows()
    ]


def _against_figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    heads = tables["pretrained_heads"]
    svms = [svm for svm in SVMS if svm in set(heads["svm"])] or ["one token"]
    fig = style.figure(9.6, 0.8 + 2.8 * len(svms))
    grid = fig.subplots(len(svms), len(SHOWN), sharey=True, sharex="col", squeeze=False)
    style.note(fig, ["Every point is a head: filled if it leans, its 95 % interval as a line. See "
                     "the map of all heads for what lean means.", *remarks])  # fmt: skip
    for row, svm in zip(grid, svms, strict=True):
        _against(row, heads[(heads["svm"] == svm) & heads["lean"].notna()])
        row[0].set_ylabel(f"lean, {svm}")
    for ax, label in zip(grid[-1], SHOWN.values(), strict=True):
        ax.set_xlabel(label)
    style.legend(grid[0, -1], [])
    return fig


def _against(row: Sequence[Axes], heads: pd.DataFrame) -> None:
    """Draw the lean against each number of a head, both norms in a panel."""
    looks = zip(NORMS, style.PALETTE, style.MARKERS, strict=False)
    for norm, colour, marker in looks:
        part = heads[heads["svm_norm"] == norm]
        for ax, name in zip(row, SHOWN, strict=True):
            shift = {"frobenius": -0.12, "nuclear": 0.12}[norm] if name == "at_layer" else 0.0
            x = part[name].to_numpy(float) + shift
            for leans, face in ((True, colour), (False, "white")):
                at = part["leans"].to_numpy() == leans
                some = part[at]
                if some.empty and leans:
                    continue
                ends = [some["lean"] - some["low"], some["high"] - some["lean"]]
                ax.errorbar(
                    x[at], some["lean"], yerr=np.array(ends, dtype=float), fmt=marker,
                    color=colour, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=0.8,
                    elinewidth=0.5, label=f"{norm}, {'leans' if leans else 'does not'}",
                )  # fmt: skip
    for ax in row:
        ax.axhline(0, color=style.FAINT, linewidth=0.8)
