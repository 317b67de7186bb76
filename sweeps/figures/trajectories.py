"""Paths of W z_i in two dimensions, and the directions that the SVM predicts (section 4)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from .. import style
from ..cells import groups, rows_of
from ..notation import RULES, SVMS
from . import CellAxes, Figure, LoadedSweep, Tables, paged
from ._numbers import arrays_of, attention, joined, outcomes, tidy

SCENES = {"paths_far": "samples far apart", "paths_near": "samples overlapping"}
PUBLISHED_SEEDS = {"paths_far": 1, "paths_near": 3}
DASHES: dict[str, Any] = {"frobenius": "--", "nuclear": ":"}
X = ("data", "parameterization")
STEPS_KEPT = 240
LARGEST = 1e100
"""Entries of W up to which a softmax is drawn."""
FRAMES = 48
SHORTEST = 0.1
"""Norm of W z_i above which its distance from the origin is drawn on a logarithmic scale."""


def tables(frames: LoadedSweep) -> Tables:
    """Return tokens, paths and rays of one instance of each cell that recorded a path.

    It is the published instance where its run has it, else the first one.
    """
    parts: dict[str, list[pd.DataFrame]] = {"tokens": [], "paths": [], "rays": []}
    keys = [*X, *frames.cells.besides(*X)]
    for cell, runs in groups(frames.finished, keys):
        stored = (arrays_of(frames, run) for run in runs["run"])
        with_path = (of for of in stored if "snapshots" in of and of["X"].shape[-1] == 2)
        for arrays in [*with_path][:1]:
            k = np.argmax(arrays["seeds"] == PUBLISHED_SEEDS.get(cell["data"], -1))
            scene = _scene({name: values[k] for name, values in arrays.items()})
            for name, part in scene.items():
                parts[name].append(part.assign(**cell))
    result = {f"trajectories_{k}": joined(rows, keys) for k, rows in parts.items()}
    return {**result, "trajectories_counts": outcomes(frames)}


def _scene(arrays: Mapping[str, np.ndarray]) -> Tables:
    """Return the tidy tokens, paths and rays of one instance.

    Snapshots (S, 2, 2) too large for a softmax, of training that diverges, are left out, and so are
    tokens that the mask (n, T) excludes.
    """
    X, Z, scores, snapshots = (arrays[name] for name in ("X", "Z", "scores", "snapshots"))
    mask = arrays.get("mask", np.ones(scores.shape, dtype=bool))
    usable = np.flatnonzero((np.abs(snapshots) < LARGEST).all((-2, -1)))
    kept = usable[np.unique(np.geomspace(1, len(usable), STEPS_KEPT).astype(int) - 1)]
    directions = np.einsum("sde,ne->snd", snapshots[kept], Z)[:, :, None]
    best = np.where(mask, scores, -np.inf).argmax(-1)
    is_selected, is_optimal = (
        np.arange(scores.shape[1]) == chosen[:, None] for chosen in (arrays["selected"], best)
    )
    tokens = tidy(
        ("sample", "token"),
        score=scores,
        x=X[..., 0],
        y=X[..., 1],
        selected=is_selected,
        optimal=is_optimal,
    )
    paths = tidy(
        ("step", "sample", "token"),
        softmax=attention(arrays, snapshots[kept]),
        x=directions[..., 0],
        y=directions[..., 1],
    )
    rays = []
    for norm in DASHES:
        W = arrays.get(f"{norm}_W")
        if W is not None and np.isfinite(W).all():
            ray = Z @ W.T
            part = tidy(("sample",), x=ray[:, 0], y=ray[:, 1])
            rays.append(part.assign(svm_norm=norm))
    return {
        "tokens": tokens[mask.ravel()],
        "paths": paths.assign(step=arrays["steps"][kept][paths["step"]]),
        "rays": joined(rays, ["svm_norm", "sample", "x", "y"]),
    }


def _frames(tables: Tables) -> tuple[np.ndarray, ...]:
    """Return the images of the animation."""
    steps = np.unique(tables["trajectories_paths"]["step"])
    places = np.unique(np.geomspace(1, max(len(steps), 1), FRAMES).astype(int)) - 1
    shown = steps[places[: len(steps)]]
    return tuple(style.pixels(_figure(tables, CellAxes(), step)) for step in shown)


def _figure(tables: Tables, axes: CellAxes, step: float = np.inf) -> Figure:
    """Return a scene: a panel for each parameterization, with the paths up to `step`."""
    parts = [tables[f"trajectories_{name}"] for name in ("tokens", "paths", "rays")]
    cells = parts[0][[*X]].drop_duplicates().sort_values(X[1], ascending=False)
    fig = style.figure(style.width_of(len(cells)), 3.1)
    panels = fig.subplots(1, max(len(cells), 1), squeeze=False)[0]
    if cells.empty:
        style.empty(panels[0], "no run in two dimensions with its path on record")
        return fig
    for ax, (data, rule) in zip(panels, cells.to_numpy(), strict=True):
        _panel(ax, step, *(rows_of(table, {X[1]: rule}) for table in parts))
        style.heading(ax, f"trained {RULES[rule]}, {SCENES.get(data, style.plain(data))}")
        ax.set_xlabel(f"first coordinate{f', step {step:g}' * bool(np.isfinite(step))}")
    panels[0].set_ylabel("second coordinate")
    entries = (ax.get_legend_handles_labels() for ax in panels)
    style.legend(fig, {name: line for of in entries for line, name in zip(*of, strict=True)})
    return fig


def _panel(
    ax: Axes, step: float, tokens: pd.DataFrame, paths: pd.DataFrame, rays: pd.DataFrame
) -> None:
    """Draw the tokens in the size of their softmax, and W z_i, its length on a log scale."""
    reach = 1.45 * float(np.abs(tokens[["x", "y"]].to_numpy(float)).max())
    walked = paths[paths["step"] <= step].sort_values("step")
    last = walked[walked["step"] == walked["step"].max()]  # a path that diverges ends before
    tokens = tokens.merge(last[["sample", "token", "softmax"]], on=["sample", "token"])
    unit = 0.95 * reach / np.log1p(np.hypot(paths["x"], paths["y"]).max() / SHORTEST)
    best = tokens[tokens["optimal"]]
    ax.plot(
        best["x"],
        best["y"],
        "o",
        ms=11,
        mew=0.8,
        mfc="none",
        color=style.INK,
        label="optimal token",
    )
    for norm, dash in DASHES.items():
        ax.plot([], [], dash, color=style.INK, label=f"{SVMS[norm]}$z_i$")
    for i, colour in style.colours(sorted(tokens["sample"].unique())).items():
        part, path, ends = (table[table["sample"] == i] for table in (tokens, walked, rays))
        faces = np.where(part["selected"], colour, "white")
        sizes = 8 + 40 * part["softmax"]
        ax.scatter(part["x"], part["y"], sizes, faces, edgecolors=colour, linewidths=1.2, zorder=3)
        x, y = path.loc[path["token"] == 0, ["x", "y"]].to_numpy(float).T
        length = np.hypot(x, y)
        scale = unit * np.log1p(length / SHORTEST) / np.where(length > 0, length, 1)
        ax.plot(scale * x, scale * y, color=colour, lw=1.4, zorder=4, label=f"sample {i + 1}")
        for norm, w in ends.set_index("svm_norm")[["x", "y"]].iterrows():
            far = 3 * reach * w / (np.hypot(*w) or 1.0)  # no ray where the SVM predicts none
            ax.plot([0, far["x"]], [0, far["y"]], DASHES[norm], color=colour, lw=1.1)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.locator_params(nbins=5)


SCENE = {"trajectories": _figure}
draw = partial(paged, SCENE, inner=X[1:], cells="trajectories_tokens", animate=_frames)
