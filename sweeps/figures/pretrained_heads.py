"""Heads of a pretrained transformer against the SVMs of the tokens that they attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from ..facets import Panel, facets, looks_of, matrix, whiskers
from . import Drawing, _head_attention, _head_optimality, outcomes
from ._pages import Pages, Tables

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
OF_POINTS = "The lean of every head against the entropy of its attention, its layer and its rank."
NOTE_POINTS = (
    "Every point is a head: filled if it leans, its 95 % interval as a line. See the map of all "
    "heads for what lean means."
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


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the maps of leans, the lean against other numbers of a head, and an example."""
    names = {"pretrained_heads": "one token", "pretrained_heads_gen_svm": "Gen-SVM"}
    pages = [
        Pages(name, CAPTION.format(SVMS[svm]), partial(_map, svm), partial(_map_notes, svm))
        for name, svm in names.items()
        if svm == "one token" or svm in set(tables["pretrained_heads"]["svm"])
    ]
    pages += [
        Pages("pretrained_heads_against", OF_POINTS, _against, NOTE_POINTS),
        Pages("pretrained_heads_attention", _head_attention.CAPTION, _head_attention.figure,
              _head_attention.notes),
    ]  # fmt: skip
    shown, counts = ("control", "tokens", *HEAD), "pretrained_heads_counts"
    return [
        one
        for page in pages
        for one in replace(page, x=shown, cells="pretrained_heads", counts=counts).draw(
            tables, axes, remarks
        )
    ]


def _map(svm: str, tables: Tables, axes: CellAxes) -> Figure:
    heads = tables["pretrained_heads"]
    heads = heads[heads["svm"] == svm]
    layers, columns = (heads[name].nunique() for name in HEAD)
    fig = style.figure(max(9.6, 1.5 + 0.78 * columns), 2.0 + 0.92 * max(layers, 1))
    grid = fig.subplots(2, 1, sharex=True)
    most = np.nanmax([0.05, *heads["lean"].abs()])
    for ax, norm in zip(grid, NORMS, strict=True):
        style.heading(ax, f"lean, {norm} norm, SVM of {SVMS[svm]}")
        part = heads[heads["svm_norm"] == norm]
        if not part["lean"].notna().any():
            style.empty(ax, "no head with all four controls and two samples")
            continue
        star = part["leans"].map({True: "*", False: ""})
        words = part["lean"].map("{:.3f}".format) + star
        words += "\n[" + part["low"].map("{:.2f}".format)
        words += ", " + part["high"].map("{:.2f}".format) + "]"
        part = part.assign(text=words.where(part["lean"].notna(), ""))
        leans, texts = (part.pivot_table(index=HEAD[0], columns=HEAD[1], values=value,
                                         aggfunc="first", dropna=False)
                        for value in ("lean", "text"))  # fmt: skip
        matrix(ax, leans, texts, cmap="RdBu_r", vmin=-most, vmax=most, cbar=True,
               cbar_kws={"shrink": 0.9, "aspect": 12, "pad": 0.01})  # fmt: skip
        ax.set_ylabel("layer")
    grid[-1].set_xlabel("head")
    return fig


def _map_notes(svm: str, tables: Tables, axes: CellAxes) -> list[str]:
    """Return what a lean is, and a sentence for each norm with the heads that lean."""
    total = tables["pretrained_heads_total"]
    return [NOTE, OF_GEN_SVM if svm == "Gen-SVM" else ""] + [
        f"{row['svm_norm']} norm: {row['lean']} of {row['tested']} heads lean"
        f"{': ' + row['which'] if row['which'] else ''} ({row['lean_any_dependence']} by the bound "
        "for any dependence of the tests, Benjamini and Yekutieli)."
        for _, row in total[total["svm"] == svm].iterrows()
    ]


def _against(tables: Tables, axes: CellAxes) -> Figure:
    heads = tables["pretrained_heads"]
    heads = heads[heads["lean"].notna()]
    shift = heads["svm_norm"].map({"frobenius": -0.12, "nuclear": 0.12})
    heads = heads.assign(at_layer=heads["at_layer"] + shift)
    leans = heads["leans"].map({True: "leans", False: "does not"})
    heads = heads.assign(curve=heads["svm_norm"] + ", " + leans)
    looks = {
        f"{norm}, {word}": {
            "color": look["color"], "marker": look["marker"], "linestyle": "", "elinewidth": 0.5,
            "markerfacecolor": look["color"] if word == "leans" else "white",
            "markeredgecolor": look["color"], "markeredgewidth": 0.8, "capsize": 0,
        }
        for norm, look in looks_of(list(NORMS)).items() for word in ("leans", "does not")
    }  # fmt: skip
    parts = [heads.assign(x=heads[name].astype(float), column=label)
             for name, label in SHOWN.items()]  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    svms = [svm for svm in SVMS if svm in set(heads["svm"])]
    table = table.assign(
        column=pd.Categorical(table["column"], list(SHOWN.values())),
        curve=pd.Categorical(
            table["curve"], [name for name in looks if name in set(heads["curve"])]
        ),
    )
    fig, grid = facets(
        table, "x", "lean", hue="curve", row="svm", col="column", looks=looks, size=(2.6, 2.5),
        panels={svm: Panel(f"lean, {svm}", line=0.0) for svm in svms}, mark=whiskers, share_y=True,
        nothing="no head with a lean", title="norm",
    )  # fmt: skip
    for ax, label in zip(grid[-1], SHOWN.values(), strict=True):
        ax.set_xlabel(label)
    return fig
