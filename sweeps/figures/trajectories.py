"""Paths of W z_i in two dimensions, and the directions that the SVM predicts (section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnsvm.record import RUN_FILE, read

from .. import style
from ..cells import CellAxes, rows_of
from ..facets import named
from . import outcomes
from ._pages import Pages, Tables

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

SCENES = {"paths_far": "samples far apart", "paths_near": "samples overlapping"}
PUBLISHED_SEEDS = {"paths_far": 1, "paths_near": 3}
PARAMETERIZATIONS = {"w": "trained $W$", "kq": "trained $(K, Q)$"}
RAYS = {"frobenius": r"$W_{\mathrm{mm}}z_i$", "nuclear": r"$W^{\star}_{\mathrm{mm}}z_i$"}
DASHES: dict[str, Any] = {"frobenius": "--", "nuclear": ":"}
X = ("data", "parameterization")
STEPS_KEPT = 240
LARGEST = 1e100
"""Entries of W up to which a softmax is drawn."""
FRAMES = 48
SHORTEST = 0.1
"""Norm of W z_i above which its distance from the origin is drawn on a logarithmic scale."""
NOTE = (
    "Colour and marker: sample; filled: the token selected by training; ring: the optimal token. "
    "Lines with arrows: W z_i over all steps, its distance from the origin on a logarithmic scale, "
    "so that rotations stay visible. Pale lines: the separating hyperplane of each sample, "
    "half-way between its selected token and the nearest others along W_mm z_i."
)
CAPTION = (
    "Paths of W z_i, with W = K Q^T on the right, in the plane of the tokens, and the rays that "
    "the SVM solutions of the selected tokens predict for them. The animation shows the softmax of "
    "every token as its size while the direction turns."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return tokens, paths and rays of one instance of each cell that recorded a path."""
    parts: dict[str, list[pd.DataFrame]] = {"tokens": [], "paths": [], "rays": []}
    done = frames.runs[frames.runs["state"] == "done"]
    cells = frames.axes.besides()
    place = done.groupby(cells, dropna=False, sort=False).ngroup() if cells else 0
    for _, runs in done.assign(place=place).groupby("place"):
        arrays = _instance(frames.directory, runs)
        if arrays is None:
            continue
        first = runs.iloc[0]
        cell = {name: first[name] for name in (*X, *frames.axes.besides(*X))}
        for name, part in _scene(arrays).items():
            parts[name].append(part.assign(**cell))
    result = {
        f"trajectories_{name}": pd.concat(part, ignore_index=True) if part else pd.DataFrame()
        for name, part in parts.items()
    }
    return {**result, "trajectories_counts": outcomes(frames.trials, frames.axes)}


def _instance(directory: Path, runs: pd.DataFrame) -> dict[str, np.ndarray] | None:
    """Return the arrays of the published instance in the runs of a cell, else of their first one.

    None if no path in two dimensions is on record.
    """
    found = None
    for name, data in zip(runs["run"], runs["data"], strict=True):
        stored = read(_folder(directory, str(name)))[0].solutions
        if "snapshots" not in stored or stored["X"].shape[-1] != 2:
            continue
        published = np.flatnonzero(stored["seeds"] == PUBLISHED_SEEDS.get(data))
        if found is None or len(published):
            k = published[0] if len(published) else 0
            found = {name: value[k] for name, value in stored.items()}
        if len(published):
            break
    return found


def _folder(directory: Path, run: str) -> Path:
    """Return the folder of a run, which is `directory` itself if that holds a single run."""
    return directory if (directory / RUN_FILE).exists() else directory / run


def _scene(arrays: dict[str, np.ndarray]) -> dict[str, pd.DataFrame]:
    """Return the tidy tokens, paths and rays of one instance.

    arrays: X (n, T, 2), Z (n, 2), mask and scores (n, T), selected (n,), steps (S,),
    snapshots (S, 2, 2), frobenius_W and nuclear_W (2, 2). Snapshots too large for a softmax, of
    training that diverges, are left out, and so are tokens that the mask excludes.
    """
    X, Z, selected = arrays["X"], arrays["Z"], arrays["selected"]
    mask = arrays.get("mask", np.ones(X.shape[:2], dtype=bool))
    usable = np.flatnonzero((np.abs(arrays["snapshots"]) < LARGEST).all((-2, -1)))
    kept = usable[np.unique(np.geomspace(1, len(usable), STEPS_KEPT).astype(int) - 1)]
    directions = np.einsum("sde,ne->snd", arrays["snapshots"][kept], Z)
    logits = np.where(mask, np.einsum("ntd,snd->snt", X, directions), -np.inf)
    scores = np.where(mask, arrays["scores"], -np.inf)
    softmax = np.exp(logits - logits.max(-1, keepdims=True))
    softmax /= softmax.sum(-1, keepdims=True)
    (S, n), T = directions.shape[:2], X.shape[1]
    sample, token = np.indices((n, T)).reshape(2, -1)
    tokens = pd.DataFrame(
        {
            "sample": sample,
            "token": token,
            "x": X[..., 0].ravel(),
            "y": X[..., 1].ravel(),
            "score": arrays["scores"].ravel(),
            "selected": token == selected[sample],
            "optimal": token == scores.argmax(-1)[sample],
        }
    )
    tokens = tokens[mask.ravel()]
    at, who, which = np.indices((S, n, T)).reshape(3, -1)
    paths = pd.DataFrame(
        {
            "step": arrays["steps"][kept][at],
            "sample": who,
            "token": which,
            "softmax": softmax.ravel(),
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
                    {"norm": norm, "sample": np.arange(n), "x": ray[:, 0], "y": ray[:, 1]}
                    | {"offset": reach - 0.5}
                )
            )
    empty = pd.DataFrame(columns=["norm", "sample", "x", "y", "offset"])
    return {"tokens": tokens, "paths": paths, "rays": pd.concat(rays) if rays else empty}


def _frames(tables: Tables) -> tuple[np.ndarray, ...]:
    """Return the images of the animation."""
    if tables["trajectories_tokens"].empty:
        return ()
    steps = np.unique(tables["trajectories_paths"]["step"])
    moments = steps[np.unique(np.geomspace(1, len(steps), FRAMES).astype(int)) - 1]
    return tuple(style.pixels(_scenes(tables, step)) for step in moments)


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    if tables["trajectories_tokens"].empty:
        fig = style.figure(5, 2)
        style.empty(fig.subplots(), "no run in two dimensions with its path on record")
        return fig
    return _scenes(tables)


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    tokens = tables["trajectories_tokens"]
    known = len(tokens) and tokens["data"].isin(PUBLISHED_SEEDS).all()
    which = "One published instance per scene." if known else "One instance per scene, the first."
    return [f"{NOTE} {which}"]


draw = Pages(
    "trajectories", CAPTION, _figure, _notes, x=X, cells="trajectories_tokens", animate=_frames
).draw


def _scenes(tables: Tables, step: Any = None) -> Figure:
    """Return a row per scene, a column per parameterization, with complete paths or at `step`."""
    tokens, paths, rays = (tables[f"trajectories_{name}"] for name in ("tokens", "paths", "rays"))
    scenes = tokens["data"].groupby(named(tokens["data"], SCENES), observed=True).first()
    columns = tokens["parameterization"].groupby(
        named(tokens["parameterization"], PARAMETERIZATIONS), observed=True
    )
    fig = style.figure(4.3 * len(columns) + 1.1, 4.1 * len(scenes) + (0.8 if step is None else 0.3))
    grid = fig.subplots(len(scenes), len(columns), squeeze=False)
    for line, (scene, data) in zip(grid, scenes.items(), strict=True):
        for ax, (column, trained) in zip(line, columns.first().items(), strict=True):
            cell = {"data": data, "parameterization": trained}
            here, walked, predicted = (rows_of(table, cell) for table in (tokens, paths, rays))
            style.heading(ax, f"{column}, {scene}")
            if here.empty:
                style.empty(ax, "no run on record")
            else:
                _panel(ax, here, walked, predicted, step)
    samples = sorted(tokens["sample"].unique())
    colours, markers = style.colours(samples), style.markers(samples)
    handles = [
        Line2D([], [], color=colours[i], marker=markers[i], label=f"sample {i + 1}")
        for i in samples
    ]
    handles += [
        Line2D([], [], color=style.INK, linestyle=DASHES[norm], label=words)
        for norm, words in RAYS.items()
    ]
    grid[0, -1].legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if step is not None:
        fig.suptitle(f"step {step}", x=0.02, ha="left")
    return fig


def _panel(
    ax: Axes, tokens: pd.DataFrame, paths: pd.DataFrame, rays: pd.DataFrame, step: Any
) -> None:
    samples = sorted(tokens["sample"].unique())
    colours, markers = style.colours(samples), style.markers(samples)
    reach = 1.45 * max(tokens[["x", "y"]].abs().max())
    walked = paths["step"] if step is None else paths.loc[paths["step"] <= step, "step"]
    softmax = paths[paths["step"] == walked.max()]  # a path that diverges ends before others
    softmax = softmax.set_index(["sample", "token"])["softmax"]
    ax.axhline(0, color="#dddddd", linewidth=0.7, zorder=0)
    ax.axvline(0, color="#dddddd", linewidth=0.7, zorder=0)
    for i in samples:
        mine = rays[rays["sample"] == i]
        for _, ray in mine.iterrows():
            _ray(ax, ray, colours[i], reach)
        for _, token in tokens[tokens["sample"] == i].iterrows():
            size = 42 if step is None else 14 + 170 * softmax[i, token["token"]]
            filled = token["selected"] if step is None else softmax[i, token["token"]] > 0.5
            face = colours[i] if filled else "white"
            ax.scatter(token["x"], token["y"], s=size, marker=markers[i], facecolors=face,
                       edgecolors=colours[i], linewidths=1.2, zorder=3)  # fmt: skip
            if token["optimal"]:
                ax.scatter(token["x"], token["y"], s=230, facecolors="none", edgecolors=style.INK,
                           linewidths=0.8, zorder=2)  # fmt: skip
        path = paths[(paths["sample"] == i) & (paths["token"] == 0)].sort_values("step")
        longest = np.hypot(paths["x"], paths["y"]).max()
        unit = 0.95 * reach / np.log1p(longest / SHORTEST) if longest > 0 else 0.0
        _path(ax, path if step is None else path[path["step"] <= step], colours[i], unit)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.set_aspect("equal")
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)


def _ray(ax: Axes, ray: pd.Series[Any], colour: str, reach: float) -> None:
    """Draw the ray along (x, y) and, for the Frobenius norm, the hyperplane at its offset."""
    w = np.array([ray["x"], ray["y"]], dtype=float)
    length = np.linalg.norm(w)
    if length == 0:
        return  # the SVM predicts no direction for this sample
    end = 3 * reach * w / length
    ax.plot([0, end[0]], [0, end[1]], color=colour, linestyle=DASHES[ray["norm"]], linewidth=1.1)
    if ray["norm"] == "frobenius":
        foot = ray["offset"] * w / length**2
        along = 3 * reach * np.array([-w[1], w[0]]) / length
        ends = np.stack([foot - along, foot + along])
        ax.plot(ends[:, 0], ends[:, 1], color=colour, linewidth=3.5, alpha=0.16, zorder=1)


def _path(ax: Axes, path: pd.DataFrame, colour: str, unit: float) -> None:
    """Draw W z_i with its distance from the origin on a log scale, and arrowheads on the path."""
    points = path[["x", "y"]].to_numpy(dtype=float)
    distance = np.linalg.norm(points, axis=1, keepdims=True)
    scale = unit * np.log1p(distance / SHORTEST)
    points = points / np.where(distance > 0, distance, 1) * scale
    ax.plot(points[:, 0], points[:, 1], color=colour, linewidth=1.8, zorder=4)
    for share in (0.35, 0.65, 1.0):
        k = int(np.argmax(scale[:, 0] >= share * scale[-1, 0]))
        heading = points[k] - points[max(k - 8, 0)]  # over 8 steps: single steps oscillate
        if np.linalg.norm(heading) > 0:
            tail = points[k] - 1e-3 * unit * heading / np.linalg.norm(heading)
            ax.annotate(
                "", points[k], tail, zorder=5,
                arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0,
                            "mutation_scale": 13},
            )  # fmt: skip
