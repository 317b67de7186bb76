"""Draw docs/examples/one_sample.png: one sample in the plane while W trains, and its margin."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import attnsvm

STEPS = (0, 20, 1000)
BLUE, GRAY, RED = "#0b5394", "#9a9a9a", "#b3261e"


def panel(ax, X, direction, attention, title):
    """Draw tokens, sized by their attention, and the direction of W z."""
    colors = [BLUE if a > 0.5 else GRAY for a in attention]
    ax.scatter(*X.T, s=12 + 260 * attention, c=colors, edgecolor="white", linewidth=0.6, zorder=3)
    if np.linalg.norm(direction) > 0:
        tip = direction / np.linalg.norm(direction)
        ax.annotate(
            "", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": RED, "lw": 1.4}, zorder=2
        )
        ax.annotate("$Wz$", 1.12 * tip, color=RED, ha="center", va="center", fontsize=8)
    ax.plot(0, 0, ".", color="black", ms=3)
    ax.set_title(title, fontsize=8)
    ax.set(aspect="equal", xlim=(-1.8, 1.6), ylim=(-1.3, 1.2), xticks=[], yticks=[])
    ax.spines[:].set_color("#cccccc")


def margin(ax, X, selected, normal):
    """Draw the lines of equal logit through the selected token, and 1 below: the SVM's margin."""
    unit = normal / np.linalg.norm(normal)
    along = np.array([-unit[1], unit[0]])
    front, gap = X[selected] @ unit, 1 / np.linalg.norm(normal)
    for offset, style in ((front, "-"), (front - gap, "--")):
        ax.plot(*(offset * unit + np.array([[-4], [4]]) * along).T, style, color=BLUE, lw=0.9)
    start, end = (offset * unit - 0.75 * along for offset in (front, front - gap))
    ax.annotate("", start, end, arrowprops={"arrowstyle": "<->", "color": BLUE, "lw": 0.9})
    ax.annotate("margin", (start + end) / 2 - 0.12 * along, color=BLUE, fontsize=8, va="top")


def main(target=Path("docs/examples/one_sample.png")):
    """Train the second published scene, and draw its first sample."""
    mpl.rcParams.update({"font.size": 8, "figure.dpi": 200})
    batch = attnsvm.sample("paths_near", trials=1, seed=3)
    path = attnsvm.train(batch, steps=STEPS[-1], lr=0.1, record_every=20, init="zero")
    selected = attnsvm.select_tokens(batch, path).selected
    svm = attnsvm.solve_svm(batch.X, batch.Z, selected)
    X, z = batch.X[0, 0].numpy(), batch.Z[0, 0].numpy()
    figure, axes = plt.subplots(1, 3, figsize=(6.7, 1.95), layout="constrained")
    titles = [
        "start: equal attention",
        f"{STEPS[1]} steps",
        f"{STEPS[2]} steps, and the SVM's margin",
    ]
    for ax, step, title in zip(axes, STEPS, titles, strict=True):
        W = path.snapshots[0, path.steps.tolist().index(step)].numpy()
        attention = torch.softmax(torch.tensor(X @ W @ z), 0).numpy()
        panel(ax, X, W @ z, attention, title)
    margin(axes[-1], X, int(selected[0, 0]), svm.W[0].numpy() @ z)
    figure.savefig(target)


if __name__ == "__main__":
    main()
