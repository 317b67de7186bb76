"""The attention of one head over the words of its sentences, with the tokens of its SVM."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from .. import style
from ..cells import groups, rows_of
from ..facets import heatmap
from . import CellAxes, Figure, LoadedSweep, Tables
from ._numbers import arrays_of, attention, drawn_again

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
    rows: list[dict[str, Any]] = []
    known = heads[(heads["svm_norm"] == "frobenius") & heads["lean"].notna()]
    for _, part in groups(known, by):
        best = part.iloc[int(part["lean"].to_numpy().argmax())]
        cell = {name: best[name] for name in [*by, *HEAD]}
        for run in rows_of(frames.rows, cell | {"data.control": "none"})["run"].unique():
            arrays = arrays_of(frames, run)
            if "selected" in arrays and "frobenius_W" in arrays:  # not those of Gen-SVM
                at = {key: values[0] for key, values in arrays.items()}
                data, _ = drawn_again(frames, run, at)
                words = data.words(int(at["seeds"])) if data else ()
                rows += [cell | row for row in of_instance(at, *words)]
                break
    return pd.DataFrame(rows, columns=[*by, *HEAD, *COLUMNS])


def of_instance(
    at: Mapping[str, np.ndarray], words: Sequence[Sequence[str]] = (), queries: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Return a row for each token of a stored instance: attention, and margin of its SVM."""
    s, chosen = attention(at, at["trained_W"]), at["selected"]
    svm = np.einsum("ntd,de,ne->nt", at["X"], at["frobenius_W"], at["Z"])
    margin = svm[np.arange(len(s)), chosen][:, None] - svm
    is_chosen = np.arange(s.shape[1]) == chosen[:, None]
    support = (margin <= 1 + 1e-6) & at["mask"] & ~is_chosen
    return [
        {
            "seed": int(at["seeds"]),
            "sentence": i,
            "token": t,
            "attention": s[i, t],
            "selected": bool(is_chosen[i, t]),
            "is_support": bool(support[i, t]),
            "word": words[i][t] if words else "",
            "of_query": words[i][queries[i]] if words else "",
        }
        for i, t in np.ndindex(*s.shape)
    ]


def figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return the sentences of the example as rows of words, shaded by attention."""
    table = tables["pretrained_heads_attention"]
    table = table[table["sentence"] < SENTENCES]
    fig = style.figure(style.PAGE, 0.7 + 0.19 * max(table["sentence"].nunique(), 6))
    ax = fig.subplots()
    if table.empty:
        style.empty(ax, "no head with a lean on record")
        return fig
    short = {name: table[name].map(_short) for name in ("word", "of_query")}
    table = table.assign(**short)
    first, queries = table.iloc[0], table.drop_duplicates("sentence")["of_query"].tolist()
    style.heading(
        ax, f"layer {first['data.at_layer']}, head {first['data.at_head']}, seed {first['seed']}"
    )
    bar = {"shrink": 0.6, "label": "attention", "pad": 0.01}
    words: Any = {"yticklabels": queries} if any(queries) else {}
    heatmap(
        ax,
        table,
        "sentence",
        "token",
        "attention",
        "word",
        cmap="Greys",
        vmin=0,
        vmax=1,
        cbar=True,
        cbar_kws=bar,
        annot_kws={"fontsize": 6.5, "parse_math": False},
        **words,
    )
    for name, colour in FRAMES.items():
        for _, row in table[table[name].astype(bool)].iterrows():
            corner = row["token"] + 0.04, row["sentence"] + 0.08
            ax.add_patch(Rectangle(corner, 0.92, 0.84, fill=False, ec=colour, lw=1.1))
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
