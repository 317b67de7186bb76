"""Paths of W z_i in two dimensions, and the directions that the SVM predicts (section 4)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .. import style
from ..cells import groups, rows_of
from ..facets import named, values_of
from ..notation import RULES, SVMS
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import arrays_of, attention, joined, outcomes

SCENES = {"paths_far": "samples far apart", "paths_near": "samples overlapping"}
PUBLISHED_SEEDS = {"paths_far": 1, "paths_near": 3}
RAYS = {norm: SVMS[norm] + "$z_i$" for norm in ("frobenius", "nuclear")}
DASHES: dict[str, Any] = {"frobenius": "--", "nuclear": ":"}
X = ("data", "parameterization")
STEPS_KEPT = 240
LARGEST = 1e100
"""Entries of W up to which a softmax is drawn."""
FRAMES = 48
SHORTEST = 0.1
"""Norm of W z_i above which its distance from the origin is drawn on a logarithmic scale."""


def tables(frames: LoadedSweep) -> Tables:
    """Return tokens, paths and rays of one instance of each cell that recorded a path."""
    parts: dict[str, list[pd.DataFrame]] = {"tokens": [], "paths": [], "rays": []}
    done = frames.finished
    for _, runs in groups(done, frames.cells.besides()):
        if (arrays := _instance(frames, runs)) is not None:
            first = runs.iloc[0]
            cell = {name: first[name] for name in (*X, *frames.cells.besides(*X))}
            for name, part in _scene(arrays).items():
                parts[name].append(part.assign(**cell))
    result = {f"trajectories_{k}": joined(rows, frames.axes) for k, rows in parts.items()}
    return {**result, "trajectories_counts": outcomes(frames.rows, frames.cells)}


def _instance(frames: LoadedSweep, runs: pd.DataFrame) -> dict[str, np.ndarray] | None:
    """Return the arrays of the published instance in the runs of a cell, else of their first one.

    None if no path in two dimensions is on record.
    """
    first = None
    for name, data in zip(runs["run"], runs["data"], strict=True):
        stored = arrays_of(frames, name)
        if "snapshots" in stored and stored["X"].shape[-1] == 2:
            published = np.flatnonzero(stored["seeds"] == PUBLISHED_SEEDS.get(data))
            k = published[0] if len(published) else 0
            arrays = {name: value[k] for name, value in stored.items()}
            if len(published):
                return arrays
            first = first or arrays
    return first


def _scene(arrays: Mapping[str, np.ndarray]) -> Tables:
    """Return the tidy tokens, paths and rays of one instance.

    Snapshots (S, 2, 2) too large for a softmax, of training that diverges, are left out, and so are
    tokens that the mask (n, T) excludes.
    """
    X, Z, selected = arrays["X"], arrays["Z"], arrays["selected"]
    mask = arrays.get("mask", np.ones(X.shape[:2], dtype=bool))
    usable = np.flatnonzero((np.abs(arrays["snapshots"]) < LARGEST).all((-2, -1)))
    kept = usable[np.unique(np.geomspace(1, len(usable), STEPS_KEPT).astype(int) - 1)]
    directions = np.einsum("sde,ne->snd", arrays["snapshots"][kept], Z)
    optimal = np.where(mask, arrays["scores"], -np.inf).argmax(-1)
    n, T = X.shape[:2]
    sample, token = np.indices((n, T)).reshape(2, -1)
    tokens = pd.DataFrame(
        {
            "sample": sample,
            "token": token,
            "x": X[..., 0].ravel(),
            "y": X[..., 1].ravel(),
            "score": arrays["scores"].ravel(),
            "selected": token == selected[sample],
            "optimal": token == optimal[sample],
        }
    )[mask.ravel()]
    at, who, which = np.indices((len(kept), n, T)).reshape(3, -1)
    paths = pd.DataFrame(
        {
            "step": arrays["steps"][kept][at],
            "sample": who,
            "token": which,
            "softmax": attention(arrays, arrays["snapshots"][kept]).ravel(),
            "x": directions[at, who, 0],
            "y": directions[at, who, 1],
        }
    )
    rays = []
    for norm in RAYS:
        W = arrays.get(f"{norm}_W")
        if W is not None and np.isfinite(W).all():
            ray = Z @ W.T
            reach = np.einsum("nd,nd->n", X[np.arange(n), selected], ray)
            rays.append(
                pd.DataFrame(
                    {
                        "svm_norm": norm,
                        "sample": np.arange(n),
                        "x": ray[:, 0],
                        "y": ray[:, 1],
                        "offset": reach - 0.5,
                    }
                )
            )
    columns = ["svm_norm", "sample", "x", "y", "offset"]
    return {"tokens": tokens, "paths": paths, "rays": joined(rays, columns)}


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the scenes with their animation."""
    return paged(
        {"trajectories": _figure},
        tables,
        axes,
        remarks,
        notes=_notes,
        inner=X[1:],
        cells="trajectories_tokens",
        animate=_frames,
    )


def _frames(tables: Tables) -> tuple[np.ndarray, ...]:
    """Return the images of the animation."""
    if tables["trajectories_tokens"].empty:
        return ()
    steps = np.unique(tables["trajectories_paths"]["step"])
    moments = steps[np.unique(np.geomspace(1, len(steps), FRAMES).astype(int)) - 1]
    return tuple(style.pixels(_scenes(tables, step)) for step in moments)


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    if tables["trajectories_tokens"].empty:
        fig = style.figure(style.COLUMN, 2)
        style.empty(fig.subplots(), "no run in two dimensions with its path on record")
        return fig
    return _scenes(tables)


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    tokens = tables["trajectories_tokens"]
    known = len(tokens) and tokens["data"].isin(PUBLISHED_SEEDS).all()
    return ["One published instance per scene." if known else "One instance per scene, the first."]


def _scenes(tables: Tables, step: float | None = None) -> Figure:
    """Return a row per scene, a column per parameterization, with complete paths or at `step`."""
    parts = {
        name: tables[f"trajectories_{name}"].assign(
            row=lambda table: named(table["data"], SCENES),
            col=lambda table: named(table["parameterization"], RULES),
        )
        for name in ("tokens", "paths", "rays")
    }
    rows, columns = (values_of(parts["tokens"], name) for name in ("row", "col"))
    samples = sorted(parts["tokens"]["sample"].unique())
    colours = style.colours(samples)
    fig = style.figure(style.width_of(len(columns)), 3.1 * len(rows))
    for (i, j), ax in np.ndenumerate(fig.subplots(len(rows), len(columns), squeeze=False)):
        style.heading(ax, f"trained {columns[j]}, {rows[i]}")
        cell = {"row": rows[i], "col": columns[j]}
        shown = {name: rows_of(table, cell) for name, table in parts.items()}
        if shown["tokens"].empty:
            style.empty(ax, "no run on record")
        else:
            _panel(ax, shown, colours, step)
        ax.set_ylabel("second coordinate" if j == 0 else "")
    ink: dict[str, Any] = {"color": style.INK, "linestyle": ""}
    keys: dict[str, dict[str, Any]] = {
        f"sample {k + 1}": {"color": c, "marker": style.MARKERS[k % 7]} for k, c in colours.items()
    }
    keys |= {RAYS[norm]: ink | {"linestyle": dash} for norm, dash in DASHES.items()}
    keys["selected token"] = ink | {"marker": "o"}
    keys["optimal token"] = ink | {"marker": "o", "markersize": 8, "mfc": "none", "mew": 0.8}
    style.legend(fig, {name: Line2D([], [], **look) for name, look in keys.items()})
    if step is not None:
        fig.suptitle(f"step {step}", x=0.02, ha="left")
    return fig


def _panel(ax: Axes, parts: Tables, colours: Mapping[Any, str], step: float | None) -> None:
    tokens, paths, rays = parts["tokens"], parts["paths"], parts["rays"]
    reach = 1.45 * float(np.abs(tokens[["x", "y"]].to_numpy(float)).max())
    walked = paths if step is None else paths[paths["step"] <= step]
    last = paths[paths["step"] == walked["step"].max()]  # a path that diverges ends before
    attention = last.set_index(["sample", "token"])["softmax"]
    longest = np.hypot(paths["x"], paths["y"]).max()
    unit = 0.95 * reach / np.log1p(longest / SHORTEST) if longest > 0 else 0.0
    for line in (ax.axhline, ax.axvline):
        line(0, color="#dddddd", linewidth=0.7, zorder=0)
    for i, part in tokens.groupby("sample"):
        colour = colours[i]
        for _, ray in rays[rays["sample"] == i].iterrows():
            _ray(ax, ray, colour, reach)
        share = attention[i].loc[part["token"]].to_numpy()
        filled = part["selected"] if step is None else share > 0.5
        ax.scatter(
            part["x"],
            part["y"],
            s=24 if step is None else 8 + 90 * share,
            marker=style.MARKERS[[*colours].index(i) % 7],
            edgecolors=colour,
            facecolors=np.where(filled, colour, "white"),
            linewidths=1.2,
            zorder=3,
        )
        best = part[part["optimal"]]
        ring: Any = {"facecolors": "none", "edgecolors": style.INK, "linewidths": 0.8}
        ax.scatter(best["x"], best["y"], s=95, zorder=2, **ring)
        path = walked[(walked["sample"] == i) & (walked["token"] == 0)]
        _path(ax, path.sort_values("step"), colour, unit)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="first coordinate")
    ax.locator_params(nbins=5)
    ax.grid(False)


def _ray(ax: Axes, ray: "pd.Series[Any]", colour: str, reach: float) -> None:
    """Draw the ray along (x, y) and, for the Frobenius norm, the hyperplane at its offset."""
    w = np.array([ray["x"], ray["y"]], dtype=float)
    length = np.linalg.norm(w)
    if length == 0:
        return  # the SVM predicts no direction for this sample
    end = 3 * reach * w / length
    ax.plot(
        [0, end[0]], [0, end[1]], color=colour, linestyle=DASHES[ray["svm_norm"]], linewidth=1.1
    )
    if ray["svm_norm"] == "frobenius":
        foot = ray["offset"] * w / length**2
        ax.axline(foot, foot + w[::-1] * (-1, 1), color=colour, linewidth=2.5, alpha=0.16, zorder=1)


def _path(ax: Axes, path: pd.DataFrame, colour: str, unit: float) -> None:
    """Draw W z_i with its distance from the origin on a log scale, and arrowheads on the path."""
    points = path[["x", "y"]].to_numpy(dtype=float)
    distance = np.linalg.norm(points, axis=1, keepdims=True)
    scale = unit * np.log1p(distance / SHORTEST)
    points = points / np.where(distance > 0, distance, 1) * scale
    ax.plot(*points.T, color=colour, linewidth=1.4, zorder=4)
    for share in (0.35, 0.65, 1.0):
        k = int(np.argmax(scale[:, 0] >= share * scale[-1, 0]))
        heading = points[k] - points[max(k - 8, 0)]  # over 8 steps: single steps oscillate
        if (length := np.linalg.norm(heading)) > 0:
            tail = points[k] - 1e-3 * unit * heading / length
            tip = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", points[k], tail, zorder=5, arrowprops=tip | {"mutation_scale": 9})
