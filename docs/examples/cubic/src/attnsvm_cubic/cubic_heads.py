"""The figure of `sweep=cubic_heads`: effective rank of the trained W over d."""

from __future__ import annotations

from matplotlib.figure import Figure

from attnsvm.sweeps.figures import Drawing
from attnsvm.sweeps.statistics import summaries

CAPTION = "Mean effective rank of the trained W with its 95 % interval."


def tables(frames):
    """Return the mean effective rank of every cell, with its interval."""
    ok = frames.trials[frames.trials["status"] == "ok"]
    return {"cubic_heads": summaries(ok, list(frames.axes), "rank_effective")}


def draw(tables, axes, remarks=()):
    """Return the figure: a line for each value of the axes other than d."""
    return [Drawing("cubic_heads", CAPTION, lambda: _figure(tables["cubic_heads"], axes, remarks))]


def _figure(table, axes, remarks):
    figure = Figure(figsize=(4.5, 3.4), layout="constrained")
    ax = figure.subplots()
    for k, (label, part) in enumerate(axes.split(table, axes.besides("data.d"))):
        mean = part["mean"]
        # beside each other: powers may have equal ranks
        x = part.get("data.d", 0 * mean) + 0.08 * k
        error = [mean - part["low"], part["high"] - mean]
        ax.errorbar(x, mean, error, marker="o", capsize=2, label=label or "all instances")
    ax.set(xlabel="dimension d", ylabel="effective rank of W", ylim=(0, None))
    ax.legend()
    figure.supxlabel("\n".join(remarks), fontsize=6)
    return figure
