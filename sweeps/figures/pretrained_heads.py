"""Heads of a pretrained transformer against the SVMs of the tokens that they attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from .. import statistics, style
from ..facets import Panel, facets, looks_of, matrix, whiskers
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, _head_attention, drawn
from ._numbers import groups, outcomes

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
CONTROLS = ("spectrum", "queries", "tokens")
OPTIMALITY = {
    "optimality_best": "best token",
    "optimality_frobenius": "locally optimal, frobenius norm",
    "optimality_nuclear": "locally optimal, nuclear norm",
}
USED = ("ok", "unsaturated")
OF_HEAD = ("rank_effective", "rank_stable", "entropy_mean", "attended_tokens")
MEANS = ("correlation", "margin_gap", "svm_rank", *OF_HEAD)
"""Columns of which a head has its mean over the samples."""

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
    heads = _heads(own, differences, keys, by)
    one_token = heads[heads["svm"] == "one token"]
    return {
        "pretrained_heads": heads,
        "pretrained_heads_controls": statistics.paired_means(
            differences, [*keys, "null"], "difference"
        ),
        "pretrained_heads_total": _total(heads, [*by, "svm", "svm_norm"]),
        "pretrained_heads_attention": _head_attention.table(frames, one_token, by),
        "pretrained_heads_optimality": _optimality(frames.trials, by),
        "pretrained_heads_counts": outcomes(frames.trials, frames.axes),
    }


def _correlations(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance and norm: correlation, and what else is known of it."""
    found = {
        norm: {"other_heads": f"other_heads_{norm}", "svm_rank": f"{norm}_rank",
               "margin_gap": f"{norm}_margin_gap"}
        for norm in NORMS
    }  # fmt: skip
    numbers = [*NORMS.values(), *(name for of in found.values() for name in of.values()), *OF_HEAD]
    words = dict.fromkeys([*keys, "control", "seed"])
    columns = dict.fromkeys([*trials, *words, "status", "tokens", *numbers])
    trials = trials.reindex(columns=list(columns)).astype(dict.fromkeys(numbers, float))
    of_gen_svm = trials["tokens"] == "multi"
    left = np.sqrt(1 - np.where(of_gen_svm, share_of_finite_part(trials), 0.0))
    parts = []
    for norm, column in NORMS.items():
        solved = trials.get(f"{norm}_status", trials["status"]) == "solved"
        measured = {new: trials[old] for new, old in found[norm].items()}
        measured["correlation"] = (1 - trials[column]) / left
        part = trials[[*words, *OF_HEAD]].assign(
            svm=np.where(of_gen_svm, "Gen-SVM", "one token"), svm_norm=norm
        )
        usable = solved & trials["status"].isin(USED)
        parts.append(part.join(pd.DataFrame(measured).where(usable)))
    return pd.concat(parts, ignore_index=True)


def share_of_finite_part(trials: pd.DataFrame) -> np.ndarray:
    """Return ||W_fin||^2 / ||W||^2 of weights W, from their correlations with Gen-SVM.

    Of least Frobenius norm, W_fin is the projection of W on the span of the differences within the
    attended tokens, with their queries, and W_mm is orthogonal to it. With the correlations c of W
    with W_mm and e with W_fin + C W_mm of the best C >= 0, e^2 = ||W_fin||^2 / ||W||^2 + c^2 if
    c > 0; without c^2 otherwise. W_fin = 0 if no sample attends to two tokens: then e = c.
    """
    names = ["one_minus_corr_frobenius", "one_minus_corr_svmeq"]
    c, e = 1 - trials.reindex(columns=names).to_numpy(float, na_value=np.nan).T
    share = np.maximum(e, 0.0) ** 2 - np.maximum(c, 0.0) ** 2
    return np.asarray(np.clip(share, 0.0, 1.0))


def _differences(values: pd.DataFrame, own: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, norm and control: by how much the head correlates more."""
    kept = [*keys, "seed"]
    parts = [
        own[kept].assign(null="other_heads", difference=own["correlation"] - own["other_heads"])
    ]
    for null in CONTROLS:
        other = values.loc[values["control"] == null, [*kept, "correlation"]]
        both = own[[*kept, "correlation"]].merge(other, on=kept, how="left", suffixes=("", "_null"))
        difference = both["correlation"] - both["correlation_null"]
        parts.append(both[kept].assign(null=null, difference=difference))
    return pd.concat(parts, ignore_index=True)


def _heads(
    own: pd.DataFrame, differences: pd.DataFrame, keys: list[str], by: list[str]
) -> pd.DataFrame:
    """Return a row for each head, SVM and norm: its lean, adjusted p-values, and its means.

    If the intervals of all controls hold, so does that from the least low to the least high end for
    the least of the means: each has coverage 1 - (1 - LEVEL) / 4.
    """
    level = 1 - (1 - statistics.LEVEL) / len(NULLS)
    controls = statistics.paired_means(differences, [*keys, "null"], "difference", level)
    rows = []
    for key, part in controls.groupby(keys, dropna=False, sort=True):
        known = part[part["used"] >= 2].sort_values("mean")
        least = [*known[["mean", "low", "high"]].min(), known["p_value"].max()]
        all_four = len(known) == len(NULLS)
        found = [known["null"].iloc[0], *least] if all_four else ["", *[np.nan] * 4]
        rows.append([*key, int(part["used"].min()), *found])
    columns = [*keys, "used", "null", "lean", "low", "high", "p_value"]
    heads = pd.DataFrame(rows, columns=columns)
    for name, any_dependence in (("", False), ("_any_dependence", True)):
        heads[f"adjusted{name}"] = np.nan
        for _, part in groups(heads, by):
            adjusted = statistics.false_discovery(part["p_value"].to_numpy(), any_dependence)
            heads.loc[part.index, f"adjusted{name}"] = adjusted
        heads[f"leans{name}"] = (heads[f"adjusted{name}"] <= RATE) & (heads["lean"] > 0)
    means = {name: statistics.summaries(own, keys, name)["mean"].to_numpy() for name in MEANS}
    return heads.assign(**means)


def _optimality(trials: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return in which share of samples a head and its controls select tokens that the loss prefers.

    Beside each share stands that by chance, the mean over the same instances. An instance is a head
    on a sample of sentences, with one token selected in each. Those that have both numbers are
    used, the others counted as left out. A sample has one difference, the mean over its heads,
    since heads share the sentences. Its mean over samples has a 95 % interval by Student's t.
    """
    keys = [*by, *HEAD, "seed"]
    if "tokens" in trials:
        trials = trials[trials["tokens"] != "multi"]
    known = trials["status"].isin(USED)
    rows = []
    for column, quantity in OPTIMALITY.items():
        if column not in trials:
            continue
        shares = trials[[*keys, "control"]].assign(
            share=trials[column].astype("float64").where(known),
            chance=trials[f"{column}_chance"].astype("float64"),
        )
        own = shares[shares["control"] == "none"].drop(columns="control")
        for control in CONTROLS:
            other = shares[shares["control"] == control].drop(columns="control")
            both = own.merge(other, on=keys, suffixes=("", "_of_control"), how="left")
            rows.append(both.assign(quantity=quantity, control=control))
    if not rows:
        return pd.DataFrame(columns=[*by, "quantity", "control"])
    pairs = pd.concat(rows, ignore_index=True)
    pairs["difference"] = pairs["share"] - pairs["share_of_control"]
    group = [*by, "quantity", "control"]
    of_samples = pairs.groupby([*group, "seed"], dropna=False)["difference"].mean().reset_index()
    used = pairs[pairs["difference"].notna()]
    means = [f"{name}{of}" for name in ("share", "chance") for of in ("", "_of_control")]
    shares = used.groupby(group, dropna=False)[means].mean().reset_index()
    counts = pairs.groupby(group, dropna=False)["difference"].agg(
        instances="count", left_out=lambda difference: int(difference.isna().sum())
    )
    found = statistics.paired_means(of_samples, group, "difference")
    found = found.rename(columns={"used": "samples", "mean": "difference"})
    kept = [*group, "difference", "low", "high", "samples"]
    return shares.merge(found[kept], on=group).merge(counts.reset_index(), on=group)


def _total(heads: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return for each SVM and norm how many heads there are, were tested, lean, and which."""
    name = heads["at_layer"].astype(str) + "." + heads["at_head"].astype(str)
    total = heads.assign(name=name.where(heads["leans"])).groupby(keys, dropna=False)
    return total.agg(
        asked=("leans", "size"), tested=("p_value", "count"), lean=("leans", "sum"),
        lean_any_dependence=("leans_any_dependence", "sum"),
        which=("name", lambda names: " ".join(names.dropna())),
    ).reset_index()  # fmt: skip


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
    pages = [replace(one, x=shown, cells="pretrained_heads", counts=counts) for one in pages]
    return drawn(pages, tables, axes, remarks)


def _map(svm: str, tables: Tables, axes: CellAxes) -> Figure:
    heads = tables["pretrained_heads"]
    heads = heads[heads["svm"] == svm]
    row, col = HEAD
    layers, columns = heads[row].nunique(), heads[col].nunique()
    fig = style.figure(max(9.6, 1.5 + 0.78 * columns), 2.0 + 0.92 * max(layers, 1))
    grid = fig.subplots(2, 1, sharex=True)
    most = np.nanmax([0.05, *heads["lean"].abs()])
    texts = [
        f"{head['lean']:.3f}{'*' if head['leans'] else ''}\n[{head['low']:.2f}, {head['high']:.2f}]"
        for _, head in heads.iterrows()
    ]
    heads = heads.assign(text=pd.Series(texts, heads.index).where(heads["lean"].notna(), ""))
    for ax, norm in zip(grid, NORMS, strict=True):
        style.heading(ax, f"lean, {norm} norm, SVM of {SVMS[svm]}")
        part = heads[heads["svm_norm"] == norm]
        if not part["lean"].notna().any():
            style.empty(ax, "no head with all four controls and two samples")
            continue
        matrix(
            ax, part, row, col, "lean", "text", cmap="RdBu_r", vmin=-most, vmax=most, cbar=True,
            cbar_kws={"shrink": 0.9, "aspect": 12, "pad": 0.01},
        )  # fmt: skip
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
    curve = heads["svm_norm"] + ", " + heads["leans"].map({True: "leans", False: "does not"})
    looks = {
        f"{norm}, {word}": {
            **look, "linestyle": "", "elinewidth": 0.5, "capsize": 0, "markeredgewidth": 0.8,
            "markerfacecolor": look["color"] if word == "leans" else "white",
            "markeredgecolor": look["color"],
        }
        for norm, look in looks_of(list(NORMS)).items() for word in ("leans", "does not")
    }  # fmt: skip
    heads = heads.assign(
        curve=pd.Categorical(curve, [name for name in looks if name in set(curve)])
    )
    table = pd.concat([heads.assign(x=heads[name].astype(float), column=label)
                       for name, label in SHOWN.items()], ignore_index=True)  # fmt: skip
    table["column"] = pd.Categorical(table["column"], list(SHOWN.values()))
    fig, grid = facets(
        table, "x", "lean", hue="curve", row="svm", col="column", looks=looks, size=(2.6, 2.5),
        panels={svm: Panel(f"lean, {svm}", line=0.0) for svm in SVMS if svm in set(heads["svm"])},
        mark=whiskers, share_y=True, nothing="no head with a lean", title="norm",
    )  # fmt: skip
    for ax, label in zip(grid[-1], SHOWN.values(), strict=True):
        ax.set_xlabel(label)
    return fig
