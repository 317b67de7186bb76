"""Heads of a pretrained transformer against the SVMs of the tokens that they attend to."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics
from ..cells import groups
from ..facets import WHISKERS, curves, named, panel_of
from ..notation import MEASURED
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, _head_attention, paged
from ._numbers import outcomes

HEAD = _head_attention.HEAD
NORMS = {"frobenius": "one_minus_corr_frobenius", "nuclear": "one_minus_corr_nuclear"}
SHOWN = MEASURED["pretrained_heads"]
"""Control, or the lean -> its name in a figure."""

CONTROLS = ("spectrum", "queries", "tokens")
NULLS = (*CONTROLS, "other_heads")
OPTIMALITY = MEASURED["optimality"]
USED = ("ok", "unsaturated")
OF_HEAD = ("rank_effective", "rank_stable", "entropy_mean", "attended_tokens")
MEANS = ("correlation", "margin_gap", "svm_rank", *OF_HEAD)
"""Columns of which a head has its mean over the samples."""

RATE = 0.05
"""False discovery rate."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the lean of every head in both norms, by control too, and an example's attention.

    And in how many samples a head selects tokens that are optimal, or locally so, by the loss.
    """
    by = frames.cells.besides("data.control", "selection.tokens", *HEAD)
    keys = [*by, *HEAD, "svm", "svm_norm"]
    values = _correlations(frames.rows, [*by, *HEAD])
    own = values[values["data.control"] == "none"]
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
        "pretrained_heads_optimality": _optimality(frames.rows, by),
        "pretrained_heads_counts": outcomes(frames),
    }


def _correlations(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance and norm: correlation, and what else is known of it."""
    of_gen_svm = trials.reindex(columns=["selection.tokens"])["selection.tokens"].eq("multi")
    left = np.sqrt(1 - np.where(of_gen_svm, share_of_finite_part(trials), 0.0))
    part = trials.reindex(columns=list(dict.fromkeys([*keys, "data.control", "seed", *OF_HEAD])))
    part = part.assign(svm=np.where(of_gen_svm, "Gen-SVM", "one token"))
    parts = []
    for norm, column in NORMS.items():
        names = {
            column: "correlation",
            f"other_heads_{norm}": "other_heads",
            f"{norm}_rank": "svm_rank",
            f"{norm}_margin_gap": "margin_gap",
        }
        measured = trials.reindex(columns=list(names)).astype(float).rename(columns=names)
        measured["correlation"] = (1 - measured["correlation"]) / left
        solved = trials.get(f"{norm}_status", trials["status"]) == "solved"
        usable = solved & trials["status"].isin(USED)
        parts.append(part.assign(svm_norm=norm).join(measured.where(usable)))
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


def _beside_controls(values: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return each instance of a head beside that of every control, NAME_of_control; NaN without."""
    own = values[values["data.control"] == "none"].drop(columns="data.control")
    own = own.merge(pd.DataFrame({"data.control": CONTROLS}), how="cross")
    return own.merge(values, on=[*keys, "data.control"], how="left", suffixes=("", "_of_control"))


def _differences(values: pd.DataFrame, own: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, norm and control: by how much the head correlates more."""
    kept = [*keys, "seed"]
    pairs = _beside_controls(values[[*kept, "data.control", "correlation"]], kept)
    pairs = pairs.rename(columns={"data.control": "null", "correlation_of_control": "other_heads"})
    both = pd.concat([own.assign(null="other_heads"), pairs], ignore_index=True)
    return both.assign(difference=both["correlation"] - both["other_heads"])


def _heads(
    own: pd.DataFrame, differences: pd.DataFrame, keys: list[str], by: list[str]
) -> pd.DataFrame:
    """Return a row for each head, SVM and norm: its lean, adjusted p-values, and its means.

    If the intervals of all controls hold, so does that from the least low to the least high end for
    the least of the means: each has coverage 1 - (1 - LEVEL) / 4.
    """
    level = 1 - (1 - statistics.LEVEL) / len(NULLS)
    controls = statistics.paired_means(differences, [*keys, "null"], "difference", level)
    known = controls[controls["used"] >= 2].sort_values("mean").groupby(keys, dropna=False)
    least = known.agg(
        null=("null", "first"),
        lean=("mean", "min"),
        low=("low", "min"),
        high=("high", "min"),
        p_value=("p_value", "max"),
    )[known.size() == len(NULLS)]
    heads = controls.groupby(keys, dropna=False)["used"].min().reset_index()
    heads = heads.merge(least.reset_index(), "left", on=keys).fillna({"null": ""})
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
    if "selection.tokens" in trials:
        trials = trials[trials["selection.tokens"] != "multi"]
    known = trials["status"].isin(USED)
    rows = []
    for column in (name for name in OPTIMALITY if name in trials):
        shares = trials[[*keys, "data.control"]].assign(
            share=trials[column].astype("float64").where(known),
            chance=trials[f"{column}_chance"].astype("float64"),
        )
        rows.append(_beside_controls(shares, keys).assign(quantity=OPTIMALITY[column]))
    if not rows:
        return pd.DataFrame(columns=[*by, "quantity", "data.control"])
    pairs = pd.concat(rows, ignore_index=True)
    pairs["difference"] = pairs["share"] - pairs["share_of_control"]
    group = [*by, "quantity", "data.control"]
    of_samples = pairs.groupby([*group, "seed"], dropna=False)["difference"].mean().reset_index()
    used = pairs[pairs["difference"].notna()]
    means = [f"{name}{of}" for name in ("share", "chance") for of in ("", "_of_control")]
    shares = used.groupby(group, dropna=False)[means].mean().reset_index()
    counts = pairs.groupby(group, dropna=False)["difference"].agg(
        instances="count", left_out=lambda difference: int(difference.isna().sum())
    )
    means_of_samples = statistics.paired_means(of_samples, group, "difference")
    means_of_samples = means_of_samples.rename(columns={"used": "samples", "mean": "difference"})
    kept = [*group, "difference", "low", "high", "samples"]
    return shares.merge(means_of_samples[kept], on=group).merge(counts.reset_index(), on=group)


def _total(heads: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return for each SVM and norm how many heads there are, were tested, lean, and which."""
    name = heads["data.at_layer"].astype(str) + "." + heads["data.at_head"].astype(str)
    total = heads.assign(name=name.where(heads["leans"])).groupby(keys, dropna=False)
    return total.agg(
        asked=("leans", "size"),
        tested=("p_value", "count"),
        lean=("leans", "sum"),
        lean_any_dependence=("leans_any_dependence", "sum"),
        which=("name", lambda names: " ".join(names.dropna())),
    ).reset_index()


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return the heads against the controls, for each SVM, and an example."""
    svms = {"pretrained_heads": "one token", "pretrained_heads_gen_svm": "Gen-SVM"}
    shared: dict[str, Any] = {
        "inner": ("data.control", "selection.tokens", *HEAD),
        "cells": "pretrained_heads",
    }
    drawings: list[Drawing] = []
    for name, svm in svms.items():
        if svm == "one token" or svm in set(tables["pretrained_heads"]["svm"]):
            notes = partial(_notes, svm)
            figure = {name: partial(_against, svm)}
            drawings += paged(figure, tables, axes, remarks, notes=notes, **shared)
    example = {"pretrained_heads_attention": _head_attention.figure}
    return drawings + paged(example, tables, axes, remarks, notes=_head_attention.notes, **shared)


def _against(svm: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each norm: the differences to each control, and the lean, in order."""
    heads = tables["pretrained_heads"].assign(null="lean").rename(columns={"lean": "mean"})
    table = pd.concat([tables["pretrained_heads_controls"], heads], ignore_index=True)
    table = table[(table["svm"] == svm) & table["mean"].notna()]
    rank = table.groupby(["svm_norm", "null"])["mean"].rank(method="first", pct=True)
    curve = named(table["null"], SHOWN)
    fig = curves(
        table.assign(
            x=curve.cat.codes + 0.85 * (rank - 0.5),
            hue=curve,
            col=table["svm_norm"].astype(str) + " norm",
        ),
        "x",
        "mean",
        bands={},
        whiskers=WHISKERS,
        joined=False,
        height=2.0,
        panels=panel_of("control"),
    )
    for ax in fig.axes:
        ax.set(xticks=[], xlabel="heads, by the difference")
    return fig


def _notes(svm: str, tables: Tables, axes: CellAxes) -> list[str]:
    """Return a sentence for each norm with the heads that lean."""
    total = tables["pretrained_heads_total"]
    return [
        f"{row['svm_norm']} norm: {row['lean']} of {row['tested']} heads lean"
        f"{': ' + row['which'] if row['which'] else ''} ({row['lean_any_dependence']} by the bound "
        "for any dependence of the tests, Benjamini and Yekutieli)."
        for _, row in total[total["svm"] == svm].iterrows()
    ]
