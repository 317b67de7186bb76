"""The token-priority graph of a query beside the attention of the trained layer to its tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path as MplPath
from scipy.special import softmax

from .. import style
from ..cells import groups
from . import CellAxes, Figure, SweepFrames, Tables
from ._numbers import arrays_of, drawn_again, joined

COLUMNS = ["seed", "last", "sequence", "row", "token", "component", "attention", "is_next",
           "usable", "windows"]  # fmt: skip
MOST_TOKENS, MOST_SEQUENCES = 20, 16
"""Largest number of tokens of the graph that is drawn, if there is one, and of sequences."""


def table(frames: SweepFrames) -> pd.DataFrame:
    """Return the attention to each token of each sequence of a query, of one instance of each cell.

    Equal tokens of a sequence are one. A token has the row of the graph in which it is drawn, and
    the number of its component, both from above. A cell that is not drawn again has none.
    """
    by, parts = frames.axes.besides(), []
    for _, trials in groups(frames.trials[frames.trials["status"] == "ok"], by):
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
    logits = np.einsum("ntd,de,ne->nt", at["X"], at["trained_W"], at["Z"])
    attention = softmax(np.where(at["mask"], logits, -np.inf), axis=1)
    vocabulary = len(np.unique(at["X"].reshape(-1, at["X"].shape[-1]), axis=0))
    nodes = graph.nodes.numpy()
    words = np.array(data.words(seed) if hasattr(data, "usable") else nodes % vocabulary)
    sequence = np.indices(words.shape)[0]
    of_token = {
        "query": graph.queries.numpy()[sequence], "sequence": sequence,
        "node": nodes, "component": graph.component[graph.nodes].numpy(),
        "token": words, "is_next": (graph.nodes == graph.labels[:, None]).numpy(),
    }  # fmt: skip
    found = pd.DataFrame({name: values.ravel() for name, values in of_token.items()})
    each = found.assign(attention=attention.ravel())
    shown = _drawn(each.groupby(list(found), as_index=False).sum())
    asked = words[shown["sequence"].iloc[0], -1]
    counts = {"usable": len(getattr(data, "usable", words)), "windows": getattr(data, "windows", 0)}
    return shown.assign(seed=seed, last=str(asked), **counts)[COLUMNS].astype({"token": str})


def _drawn(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens of one query, with the row of each and the number of its component.

    It is one with few tokens, if there is one, and of these one with the most components of several
    tokens, then with the longest path, then with the most sequences. Components are sorted by the
    longest path that leads to them, equal ones by size.
    """
    found, best = tokens, tuple[float, ...]()
    for _, here in tokens.groupby("query"):
        ends = here[here["is_next"]].set_index("sequence")["component"]
        here = here.assign(depth=_depths(here["sequence"].map(ends), here["component"]))
        size = here.drop_duplicates("node").groupby("component").size()
        few, paths = min(MOST_TOKENS - size.sum(), 0), here["depth"].max()
        merit = few, (size > 1).sum(), paths, here["sequence"].nunique()
        if merit > best:
            found, best = here.assign(size=-here["component"].map(size)), merit
    found["mass"] = -found.groupby("node")["attention"].transform("sum")
    found = found.sort_values(["depth", "size", "component", "mass", "node"], kind="stable")
    for name, of in {"row": "node", "component": "component"}.items():
        found[name] = pd.factorize(found[of])[0]
    return found.sort_values(["sequence", "row"], ignore_index=True)


def _depths(above: "pd.Series[Any]", below: "pd.Series[Any]") -> np.ndarray:
    """Return the longest path to the component of each edge's end, in edges between components."""
    start, end = np.unique([above, below], return_inverse=True)[1].reshape(2, -1)
    depth, apart = np.zeros(end.max() + 1, dtype=int), start != end
    for _ in depth:
        np.maximum.at(depth, end[apart], depth[start[apart]] + 1)
    return depth[end]


def figure(tables: Tables, axes: CellAxes, name: str) -> Figure:
    """Return the graph and, on its right, the attention to the same tokens: a column a sequence."""
    found = tables[name]
    nodes = found.drop_duplicates("row").sort_values("row").reset_index(drop=True)
    sequences = found[found["is_next"]].sort_values(["row", "sequence"])["sequence"]
    place = found["sequence"].map({one: place for place, one in enumerate(sequences)})
    bands = {k: part.index for k, part in nodes.groupby("component") if len(part) > 1}
    shades = style.colours(bands)
    colours = nodes["component"].map(lambda one: shades.get(one, style.FAINT))
    fig = style.figure(style.PAGE, 0.75 + 0.2 * len(nodes))
    left, right = fig.subplots(1, 2, sharey=True, width_ratios=(1, 1.6))
    query = style.plain(found["last"].iloc[0])
    style.heading(left, f"token-priority graph of “{query}”")
    style.heading(right, "attention of the trained layer")
    right.set_xlabel(f"sequences that end with “{query}”")
    _graph(left, found, nodes, colours)
    _attention(right, found.assign(place=place)[place < MOST_SEQUENCES], nodes)
    for ax in (left, right):
        for one, rows in bands.items():
            ends = rows[0] - 0.5, rows[-1] + 0.5
            ax.axhspan(*ends, color=shades[one], alpha=0.13, lw=0, zorder=0)
        ax.grid(False)
        ax.tick_params(length=0, labelleft=ax is right)
        ax.spines[:].set_visible(False)
    left.set_ylim(len(nodes) - 0.45, -0.55)
    return fig


def _graph(ax: Axes, found: pd.DataFrame, nodes: pd.DataFrame, colours: "pd.Series[str]") -> None:
    """Draw the tokens below one another, and edges as arcs on their left."""
    labels = found[found["is_next"]].set_index("sequence")["row"]
    pairs = {*zip(found["sequence"].map(labels), found["row"], strict=True)}
    width = 0.77 * (0.8 + max(abs(a - b) for a, b in pairs))
    near = -0.025 * width  # beside the circle of a token
    for a, b in {(a, b) for a, b in pairs if a < b or (a > b and (b, a) not in pairs)}:
        tips = "<|-|>" if (b, a) in pairs else "-|>"
        inside = nodes["component"][a] == nodes["component"][b]
        far, apart = -0.8 - abs(a - b), 0.12 if a < b else -0.12
        corners = [(near, a + apart), (far, a + apart), (far, b - apart), (near, b - apart)]
        look: dict[str, Any] = {"color": "#b0b0b0", "lw": 0.7, "zorder": 2}
        look |= {"color": colours[a], "lw": 1.2, "zorder": 3} if inside else {}
        arc = MplPath(corners, [1, 4, 4, 4])
        ax.add_patch(FancyArrowPatch(path=arc, arrowstyle=tips, mutation_scale=6, **look))
    ax.scatter(np.zeros(len(nodes)), nodes.index, s=30, color=colours, zorder=4)
    ax.set(xlim=(-width, 0.03 * width), xticks=[])


def _attention(ax: Axes, found: pd.DataFrame, nodes: pd.DataFrame) -> None:
    """Draw a field for each token of a sequence, shaded by attention, with a dot if it is next."""
    shades = ScalarMappable(Normalize(0, 1), "Blues")
    for x, y, share in found[["place", "row", "attention"]].itertuples(index=False):
        shade = shades.to_rgba(share)
        ax.add_patch(Rectangle((x - 0.44, y - 0.42), 0.88, 0.84, fc=shade, ec="#bbbbbb", lw=0.5))
    following = found[found["is_next"]]
    look: dict[str, Any] = {"mec": "white", "mew": 0.6, "ms": 3.5, "color": style.INK}
    ax.plot(following["place"], following["row"], "o", label="next token", **look)
    ax.set(xlim=(-0.6, max(found["place"].max(), 5) + 0.6), xticks=[])
    ax.set_yticks(nodes.index, [style.plain(one, 16) for one in nodes["token"]])
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.0), borderaxespad=0.2)
    ax.figure.colorbar(shades, ax=ax, label="softmax", shrink=0.6, pad=0.02)


def notes(tables: Tables, axes: CellAxes, name: str) -> list[str]:
    """Return which windows of the text are drawn from, and what is not shown."""
    usable, windows = tables[name][["usable", "windows"]].max()
    more = tables[name]["sequence"].nunique() - MOST_SEQUENCES
    words = f"{usable} of {windows} windows of the text have their next word." if windows else ""
    return [words, f"{more} further sequences are in the table." if more > 0 else ""]
