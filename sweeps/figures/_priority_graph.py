"""The token-priority graph of a query beside the attention of the trained layer to its tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as MplPath

from .. import style
from ..cells import groups
from ..facets import heatmap
from . import CellAxes, Figure, LoadedSweep, Tables
from ._numbers import arrays_of, attention, certified, drawn_again, joined

OF_TOKEN = ["sequence", "row", "token", "component", "attention", "is_next"]
COLUMNS = ["seed", "last", *OF_TOKEN, "usable", "windows"]

MOST_TOKENS, MOST_SEQUENCES = 20, 16
"""Largest number of tokens of the graph that is drawn, if there is one, and of sequences."""


def table(frames: LoadedSweep) -> pd.DataFrame:
    """Return the attention to each token of each sequence of a query, of one instance of each cell.

    Equal tokens of a sequence are one. A token has the row of the graph in which it is drawn, and
    the number of its component, both from above. A cell that is not drawn again has none.
    """
    by, parts = frames.cells.besides(), []
    for _, trials in groups(certified(frames), by):
        first = trials.iloc[0]
        arrays = arrays_of(frames, first["run"])
        place = list(arrays.get("seeds", [])).index(first["seed"]) if arrays else 0
        at = {name: values[place] for name, values in arrays.items()}
        data, batch = drawn_again(frames, first["run"], at) if at else (None, None)
        if data is not None:
            parts.append(_of_instance(data, batch, at).assign(**first[by]))
    return joined(parts, [*COLUMNS, *by])


def _of_instance(data: Any, batch: Any, at: Mapping[str, np.ndarray]) -> pd.DataFrame:
    from attnsvm.theory.token_graph import priority_graphs

    graph, seed = priority_graphs(batch)[0], int(at["seeds"])
    vocabulary = len(np.unique(at["X"].reshape(-1, at["X"].shape[-1]), axis=0))
    nodes = graph.nodes.numpy()
    words = np.array(data.words(seed) if hasattr(data, "usable") else nodes % vocabulary)
    sequence = np.indices(words.shape)[0]
    columns = {
        "query": graph.queries.numpy()[sequence],
        "sequence": sequence,
        "node": nodes,
        "component": graph.component[graph.nodes].numpy(),
        "token": words,
        "is_next": (graph.nodes == graph.labels[:, None]).numpy(),
    }
    tokens = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
    softmax = attention(at, at["trained_W"]).ravel()
    sums = tokens.assign(attention=softmax).groupby([*columns], as_index=False).sum()
    shown = _one_query(sums)
    return shown.assign(
        seed=seed,
        last=str(words[shown["sequence"].iloc[0], -1]),
        usable=len(getattr(data, "usable", words)),
        windows=getattr(data, "windows", 0),
        token=shown["token"].astype(str),
    )[COLUMNS]


def _one_query(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens of one query, with the row of each and the number of its component.

    It is one with few tokens, if there is one, and of these one with the most components of several
    tokens, then with the longest path, then with the most sequences. Components are sorted by the
    longest path that leads to them, equal ones by size.
    """
    chosen, best = tokens, tuple[float, ...]()
    for _, part in tokens.groupby("query"):
        ends = part[part["is_next"]].set_index("sequence")["component"]
        part = part.assign(depth=_depths(part["sequence"].map(ends), part["component"]))
        size = part.drop_duplicates("node").groupby("component").size()
        few, longest = min(MOST_TOKENS - size.sum(), 0), part["depth"].max()
        merit = few, (size > 1).sum(), longest, part["sequence"].nunique()
        if merit > best:
            chosen, best = part.assign(size=-part["component"].map(size)), merit
    chosen["mass"] = -chosen.groupby("node")["attention"].transform("sum")
    chosen = chosen.sort_values(["depth", "size", "component", "mass", "node"], kind="stable")
    numbers = {"row": "node", "component": "component"}
    chosen = chosen.assign(**{key: pd.factorize(chosen[of])[0] for key, of in numbers.items()})
    return chosen.sort_values(["sequence", "row"], ignore_index=True)


def _depths(above: "pd.Series[Any]", below: "pd.Series[Any]") -> np.ndarray:
    """Return the longest path to the component of each edge's end, in edges between components."""
    start, end = np.unique([above, below], return_inverse=True)[1].reshape(2, -1)
    depth, apart = np.zeros(end.max() + 1, dtype=int), start != end
    for _ in depth:
        np.maximum.at(depth, end[apart], depth[start[apart]] + 1)
    return depth[end]


def figure(name: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return the graph and, on its right, the attention to the same tokens: a column a sequence."""
    tokens = tables[name]
    nodes = tokens.drop_duplicates("row").sort_values("row", ignore_index=True)
    following = tokens[tokens["is_next"]].sort_values(["row", "sequence"])
    sequences = following["sequence"].tolist()[:MOST_SEQUENCES]
    shown = tokens[tokens["sequence"].isin(sequences)]
    shown = shown.assign(
        place=pd.Categorical(shown["sequence"], sequences),
        row=pd.Categorical(shown["row"], nodes["row"]),
    )
    fig = style.figure(style.PAGE, 0.75 + 0.2 * len(nodes))
    left, right = fig.subplots(1, 2, sharey=True, width_ratios=(1, 1.6))
    heatmap(
        right,
        shown,
        "row",
        "place",
        "attention",
        cmap="Blues",
        vmin=0,
        vmax=1,
        cbar=True,
        xticklabels=False,
        yticklabels=[style.plain(token, 16) for token in nodes["token"]],
        linewidths=1,
        linecolor="white",
        cbar_kws={"label": "softmax", "shrink": 0.6},
    )
    right.set(facecolor="#efefef", xlim=(0, max(len(sequences), 6)))
    right.tick_params(labelleft=True)
    places = np.arange(len(sequences)) + 0.5
    rows = following["row"][: len(places)] + 0.5
    right.plot(places, rows, "o", ms=3.5, color=style.INK, mec="white", mew=0.6)
    query = style.plain(tokens["last"].iloc[0])
    style.heading(left, f"token-priority graph of “{query}”")
    style.heading(right, "attention of the trained layer; dot: the next token")
    right.set_xlabel(f"sequences that end with “{query}”")
    _graph(left, tokens, nodes)
    return fig


def _graph(ax: Axes, tokens: pd.DataFrame, nodes: pd.DataFrame) -> None:
    """Draw the tokens below one another, and edges as arcs on their left."""
    several = nodes["component"][nodes["component"].duplicated()].unique()
    shades = style.colours(several)
    colours = nodes["component"].map(lambda component: shades.get(component, style.FAINT))
    for component, shade in shades.items():
        rows = nodes["row"][nodes["component"] == component]
        ax.axhspan(rows.min(), rows.max() + 1, color=shade, alpha=0.13, lw=0, zorder=0)
    following = tokens[tokens["is_next"]].set_index("sequence")["row"]
    pairs = {*zip(tokens["sequence"].map(following), tokens["row"], strict=True)}
    width = 0.77 * (0.8 + max(abs(a - b) for a, b in pairs))
    for a, b in {(a, b) for a, b in pairs if a < b or (a > b and (b, a) not in pairs)}:
        inside = nodes["component"][a] == nodes["component"][b]
        far, apart = -0.8 - abs(a - b), 0.12 if a < b else -0.12
        near, start, end = -0.025 * width, a + 0.5 + apart, b + 0.5 - apart
        arc = MplPath([(near, start), (far, start), (far, end), (near, end)], [1, 4, 4, 4])
        tips = "<|-|>" if (b, a) in pairs else "-|>"
        look: Any = {"color": colours[a], "lw": 1.2} if inside else {"color": "#b0b0b0", "lw": 0.7}
        ax.add_patch(FancyArrowPatch(path=arc, arrowstyle=tips, mutation_scale=6, **look))
    ax.scatter(np.zeros(len(nodes)), nodes["row"] + 0.5, s=30, color=colours, zorder=4)
    ax.set(xlim=(-width, 0.03 * width), xticks=[])
    ax.tick_params(length=0, labelleft=False)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def notes(name: str, tables: Tables, axes: CellAxes) -> list[str]:
    """Return which windows of the text are drawn from, and what is not shown."""
    usable, windows = tables[name][["usable", "windows"]].max()
    more = tables[name]["sequence"].nunique() - MOST_SEQUENCES
    words = f"{usable} of {windows} windows of the text have their next word." if windows else ""
    return [words, f"{more} further sequences are in the table." if more > 0 else ""]
