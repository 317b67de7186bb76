"""How batches and results are shown: a line, a small table in a notebook, and drawings.

Drawing functions take arrays, and axes or None for new ones, and return the axes. They back the
methods `plot` of batches and results. Figures of sweeps are drawn by the package `sweeps`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Summarized(ABC):
    """A batch or result that is shown by a line, in a notebook by a small table, not by arrays."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what is worth knowing at a glance, by name."""

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value}" for name, value in self.summary().items())
        return f"{type(self).__name__}({listed})"

    def __str__(self) -> str:
        summary = self.summary()
        width = max(map(len, summary))
        lines = (f"  {name:{width}}  {value}" for name, value in summary.items())
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self.summary().items()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


class Shaped(Summarized):
    """A dataclass of tensors that is shown by their shapes."""

    def summary(self) -> dict[str, Any]:
        """Return the shape of every tensor."""
        return {name: tuple(tensor.shape) for name, tensor in vars(self).items()}


class Batched(Summarized):
    """A dataclass of tensors with the axis B of the instances in front, which can be indexed."""

    SHARED: ClassVar[tuple[str, ...]] = ()
    """Fields that all instances share."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of instances."""

    def __getitem__(self, index: Any) -> Self:
        """Return the instances at `index`; with an integer, a batch of one."""
        return self.take(one_instance(index, len(self)))

    def take(self, index: Any) -> Self:
        """Return the instances at `index`: a slice, or a (B',) tensor of indices or booleans."""
        return self.map(lambda tensor: tensor[index])

    def to(self, device: Any) -> Self:
        """Return the batch on a device of torch."""
        return self.map(lambda tensor: tensor.to(device))

    def map(self, change: Callable[[Any], Any]) -> Self:
        """Return the batch with `change` of every tensor that has the axis B."""

        def changed(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: change(part) for name, part in value.items()}
            if isinstance(value, Batched):
                return value.map(change)
            return change(value) if hasattr(value, "ndim") else value

        this: Any = self
        names = [f.name for f in dataclasses.fields(this) if f.name not in self.SHARED]
        return dataclasses.replace(this, **{n: changed(getattr(this, n)) for n in names})


def counted(values: Iterable[Any]) -> str:
    """Return how often each value occurs: "97 solved, 3 infeasible"."""
    return ", ".join(f"{n} {value}" for value, n in Counter(map(str, values)).most_common())


def spread(values: Any, digits: int) -> str:
    """Return the least and the largest of some numbers: "1.12 to 2.31"; "none" of none."""
    ends = (values.min(), values.max()) if len(values) else ()
    return " to ".join(dict.fromkeys(f"{float(end):.{digits}g}" for end in ends)) or "none"


def one_instance(index: Any, B: int) -> Any:
    """Return an index that keeps the axis B: an integer as a slice of length one.

    IndexError if the integer is not an instance, so a batch can be iterated over; TypeError if it
    is no index of instances, such as a tuple, which would index other axes too.
    """
    if isinstance(index, slice) or (hasattr(index, "dtype") and index.shape):  # array or tensor
        return index
    if not isinstance(index, Integral):
        raise TypeError(f"instances {index!r}: must be an integer, a slice or a tensor")
    k = int(index)
    if not -B <= k < B:
        raise IndexError(f"instance {k}: must be >= {-B} and < {B}")
    return slice(k % B, k % B + 1)


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

CURVES = 50
"""Most instances with a curve of their own; the median is that of all."""


def scene(
    ax: Axes | None,
    X: np.ndarray,
    Z: np.ndarray,
    scores: np.ndarray,
    weights: np.ndarray | None = None,
) -> Axes:
    """Draw an instance in two dimensions.

    Tokens X (n, T, 2) are discs, the optimal one of each sample has a ring, queries Z (n, 2) are
    dashed lines from the origin. With `weights` (S, 2, 2), W at successive steps, the paths of
    W z_i are added, scaled to the scene. Scores gamma_it (n, T) are -inf where a token is not
    admissible: it is not drawn.
    """
    ax = _axes(ax, xlabel="first coordinate", ylabel="second coordinate", aspect="equal")
    reach = np.linalg.norm(X, axis=-1)[scores > -np.inf].max()
    for i, (tokens, query) in enumerate(zip(X, Z, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        x, y = tokens[scores[i] > -np.inf].T
        ax.scatter(x, y, color=colour, label=f"sample {i + 1}")
        x, y = tokens[scores[i].argmax()]
        ax.scatter(x, y, s=130, facecolors="none", edgecolors=colour)
        ax.plot(*np.stack([0 * query, query], -1), color=colour, linestyle=":")
        if weights is not None:
            path = weights @ query
            path = path * (reach / max(np.linalg.norm(path[-1]), np.finfo(float).tiny))
            ax.plot(*np.concatenate([[[0.0, 0.0]], path]).T, color=colour)
    ax.legend()
    return ax


def token_scores(ax: Axes | None, scores: np.ndarray, softmax: np.ndarray | None = None) -> Axes:
    """Draw the score of every token of an instance: rings, filled discs for the optimal tokens.

    Scores gamma_it (n, T) are -inf where a token is not admissible: it is not drawn. The area of a
    grey disc behind each token is proportional to its attention, `softmax` (n, T).
    """
    ax = _axes(ax, xlabel="sample $i$", ylabel=r"score $\gamma_{it} = Y_i h(x_{it})$")
    sample, token = np.nonzero(scores > -np.inf)
    points = sample + 1, scores[sample, token]
    if softmax is not None:
        area = 300 * softmax[sample, token]
        ax.scatter(*points, s=area, color="#cccccc", label="attention (area)")
    ax.scatter(*points, facecolors="none", edgecolors=COLOURS[0], label="token")
    place = np.arange(len(scores)) + 1
    ax.scatter(place, scores.max(1), color=COLOURS[0], label="optimal token")
    ax.set_xticks(place)
    ax.legend()
    return ax


def over_steps(ax: Axes | None, steps: np.ndarray, values: np.ndarray, label: str) -> Axes:
    """Draw a curve for every instance, `values` (B, S), and the median in bold; `label` is of y.

    Instances whose last value is not finite have no curve; the legend counts them.
    """
    ax = _axes(ax, xlabel="steps", ylabel=label, yscale="log")
    known = np.isfinite(values[:, -1])
    ax.plot(steps, values[known][:CURVES].T, color=COLOURS[0], alpha=0.25, linewidth=0.8)
    name = f"median of {known.sum()}, {(~known).sum()} without a value"
    median = np.median(values[known], axis=0) if known.any() else np.full(len(steps), np.nan)
    ax.plot(steps, median, color=COLOURS[0], linewidth=2, label=name)
    ax.legend()
    return ax


def margins(
    ax: Axes | None,
    title: str,
    *,
    sample: np.ndarray,
    margin: np.ndarray,
    equality: np.ndarray,
    active: np.ndarray,
) -> Axes:
    """Draw the margins d_k^T W z_k (N,) of one SVM, NaN without a W, over the `sample` of each row.

    Of the N rows some are an `equality`; which inequalities hold with equality says `active`.
    """
    ylabel = r"margin $(x_{i\alpha_i} - x_{it})^\top W z_i$"
    ax = _axes(ax, xlabel="sample $i$", ylabel=ylabel, title=title)
    kinds = np.select([equality, active], [2, 1], 0)
    for kind, label in enumerate(("margin above one", "active: margin one", "equality")):
        rows = kinds == kind
        if rows.any():
            name = f"{label} ({rows.sum()})"
            ax.scatter(sample[rows] + 1, margin[rows], color=COLOURS[kind], label=name)
    ax.axhline(1, color="#8a8a8a", zorder=0)
    ax.set_xticks(np.unique(sample) + 1)
    ax.legend()
    return ax


def _axes(ax: Axes | None, **properties: Any) -> Axes:
    """Return the axes, or those of a new figure that a notebook shows by itself, with labels."""
    if ax is None:
        from matplotlib import pyplot  # takes a second to import

        ax = pyplot.subplots(layout="constrained")[1]
    ax.set(**properties)
    return ax
