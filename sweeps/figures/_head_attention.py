"""The attention of one head over the words of its sentences, with the tokens of its SVM."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import style
from ..cells import groups, rows_of
from ..facets import heatmap
from . import CellAxes, Figure, LoadedSweep, Tables
from ._numbers import arrays_of, attention, drawn_again, frame_fields, joined, tidy

HEAD = ["data.at_layer", "data.at_head"]
COLUMNS = ["seed", "sentence", "token", "attention", "selected", "is_support", "word", "of_query"]
FRAMES = {"is_support": style.PALETTE[1], "selected": style.PALETTE[0]}
SENTENCES = 12
"""Largest number of sentences in the figure; the table has all of them."""

LONGEST = 13
"""Most characters of a word in the figure."""


def table(frames: LoadedSweep, heads: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the attention of the head of largest lean on its first sample of sentences.

    Words are read from the model and text that the runs name. Where these are not here, or give
    other rows than those on record, `word` and `of_query` are empty.
    """
    parts = []
    known = heads[(heads["svm_norm"] == "frobenius") & heads["lean"].notna()]
    for _, part in groups(known, by):
        best = part.nlargest(1, "lean").iloc[0]
        cell = {name: best[name] for name in [*by, *HEAD]}
        runs = rows_of(frames.rows, cell | {"data.control": "none"})["run"].unique()
        stored = ((run, arrays_of(frames, run)) for run in runs)
        solved = (pair for pair in stored if {"selected", "frobenius_W"} <= set(pair[1]))
        for run, arrays in [*solved][:1]:  # not those of Gen-SVM
            at = {key: values[0] for key, values in arrays.items()}
            data, _ = drawn_again(frames, run, at)
            words = data.words(int(at["seeds"])) if data else ()
            parts.append(of_instance(at, *words).assign(seed=int(at["seeds"]), **cell))
    return joined(parts, [*by, *HEAD, *COLUMNS])


def of_instance(
    at: Mapping[str, np.ndarray], words: Sequence[Sequence[str]] = (), queries: Sequence[int] = ()
) -> pd.DataFrame:
    """Return a row for each token of a stored instance: attention, and margin of its SVM."""
    s, chosen = attention(at, at["trained_W"]), at["selected"]
    svm = np.einsum("ntd,de,ne->nt", at["X"], at["frobenius_W"], at["Z"])
    margin = np.take_along_axis(svm, chosen[:, None], 1) - svm
    is_chosen = np.arange(s.shape[1]) == chosen[:, None]
    text = np.array(words) if len(words) else np.full(s.shape, "")
    return tidy(
        ("sentence", "token"),
        attention=s,
        selected=is_chosen,
        is_support=(margin <= 1 + 1e-6) & at["mask"] & ~is_chosen,
        word=text,
        of_query=text[np.arange(len(s)), np.array(queries) if len(words) else 0][:, None],
    )


def figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return the sentences of the example as rows of words, shaded by attention."""
    table = tables["pretrained_heads_attention"]
    table = table[table["sentence"] < SENTENCES]
    fig = style.figure(style.PAGE, 0.7 + 0.19 * max(table["sentence"].nunique(), 6))
    ax = fig.subplots()
    if table.empty:
        style.empty(ax, "no head with a lean on record")
        return fig
    queries = table.drop_duplicates("sentence")["of_query"].map(_short).tolist()
    words: Any = {"yticklabels": queries} if any(queries) else {}
    layer, head, seed = table[[*HEAD, "seed"]].iloc[0]
    style.heading(ax, f"layer {layer}, head {head}, seed {seed}")
    heatmap(
        ax,
        table.assign(word=table["word"].map(_short)),
        "sentence",
        "token",
        "attention",
        "word",
        cmap="Greys",
        vmin=0,
        vmax=1,
        cbar=True,
        cbar_kws={"shrink": 0.6, "label": "attention", "pad": 0.01},
        annot_kws={"fontsize": 6.5, "parse_math": False},
        **words,
    )
    for name, colour in FRAMES.items():
        framed = table[table[name].astype(bool)]
        frame_fields(ax, framed["token"], framed["sentence"], colour)
    ax.set(xlabel="token", ylabel="query" if words else "sentence")
    frames = {name.removeprefix("is_"): colour for name, colour in FRAMES.items()}
    style.legend(fig, {name: Line2D([], [], color=colour, lw=2) for name, colour in frames.items()})
    return fig


def notes(tables: Tables, axes: CellAxes) -> list[str]:
    """Return what is not shown."""
    table = tables["pretrained_heads_attention"]
    more = table["sentence"].nunique() - SENTENCES
    without = len(table) and not table["of_query"].astype(bool).any()
    return [
        f"{more} further sentences are in the table." if more > 0 else "",
        "Without words: the model or text of the runs is not here as it was, see "
        "docs/findings/pretrained.md."
        if without
        else "",
    ]


def _short(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
