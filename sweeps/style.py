"""The style of all figures: typeface, palette, axes and notes.

The colours (Okabe and Ito) suit colour-blind readers; markers and hatching distinguish series and
bars in grey print as well. Figures are made without pyplot, which would leave global state.
"""

import io
import logging
import re
import textwrap
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib import ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from omegaconf import OmegaConf
from PIL import Image

from attnsvm.record import one_line

INK = "#1b1b1b"
FAINT = "#8a8a8a"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)))

COLUMN, PAGE = 8.5 / 2.54, 17 / 2.54
"""Widths of a figure in a column and across the page of a paper, in inches."""

FRAME_MS, FRAME_DPI = 120, 130
"""Duration and resolution of the frames of an animation."""

FILLS: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("fills.yaml")))
"""How parts of stacked bars are drawn, by what the bars show, in the order of the parts."""

PAPER = Path(__file__).with_name("paper.mplstyle")


@contextmanager
def paper() -> Iterator[None]:
    """Draw and save figures in the project's style within this context.

    Warnings of matplotlib reach only who asks for warnings, as our tests do.
    """
    with mpl.style.context(PAPER, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", append=True)
        yield


def width_of(columns: int) -> float:
    """Return the width of a figure with so many columns of panels: one fits a column of text."""
    return COLUMN if columns == 1 else PAGE


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of that size in inches whose parts are laid out without overlap."""
    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    fig.get_layout_engine().set(w_pad=0.03, h_pad=0.03, hspace=0.03, wspace=0.03)  # type: ignore[union-attr, call-arg]
    return fig


def png(fig: Figure) -> bytes:
    """Return the figure as a PNG file."""
    return _saved(fig, "png", "Software")


def pdf(fig: Figure) -> bytes:
    """Return the figure as a PDF file with its fonts embedded, the same bytes every time."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # below, it logs each glyph table
    return _saved(fig, "pdf", "CreationDate")


def _saved(fig: Figure, kind: str, varying: str) -> bytes:
    buffer = io.BytesIO()
    fig.savefig(buffer, format=kind, metadata={varying: None})
    return buffer.getvalue()


def pixels(fig: Figure) -> np.ndarray:
    """Return the figure as an image (height, width, RGB), uint8."""
    fig.set_dpi(FRAME_DPI)
    canvas = FigureCanvasAgg(fig)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def gif(frames: Sequence[np.ndarray]) -> bytes:
    """Return images (height, width, RGB) as an endless GIF that pauses at the last one."""
    first, *rest = [Image.fromarray(f).quantize(64, dither=Image.Dither.NONE) for f in frames]
    pauses = [FRAME_MS] * len(rest) + [15 * FRAME_MS]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=pauses, loop=0)
    return buffer.getvalue()


# --- text -----------------------------------------------------------------------------------------


def plain(text: object, limit: int = 80) -> str:
    """Return `text` as one line that matplotlib prints literally.

    A question mark replaces control characters, characters that the typeface may lack, and the
    dollar sign, which starts a formula.
    """
    words = one_line(" ".join(str(text).split()), mark="?")
    printed = "".join(c if ord(c) < 0x250 and c != "$" else "?" for c in words)
    return printed if len(printed) <= limit else printed[: limit - 3] + "..."


def wrapped(text: str, room: float) -> str:
    """Return a text with line breaks after commas, not in formulas: lines fit `room` inches."""
    size, lines = mpl.rcParams["legend.fontsize"], list[str]()
    for part in re.split(r"(?<=,) (?=(?:[^$]*\$[^$]*\$)*[^$]*$)", text):
        longer = " ".join([*lines[-1:], part])
        blank = not longer.strip()
        fits = blank or TextPath((0, 0), longer, size=size).get_extents().width <= 72 * room
        lines[-1:] = [longer] if fits else [*lines[-1:], part]
    return "\n".join(lines)


def heading(ax: Axes, text: str) -> None:
    """Write a panel's heading, left-aligned, in lines that fit the panel."""
    fig, spec = ax.figure, ax.get_subplotspec()
    if isinstance(fig, Figure) and spec is not None:
        text = wrapped(text, fig.get_figwidth() / spec.get_gridspec().ncols - 0.3)
    ax.set_title(text, loc="left")


def note(fig: Figure, lines: Sequence[str]) -> None:
    """Write lines of small print under the figure, wrapped; the layout reserves space for them."""
    width = int(24 * fig.get_figwidth())
    parts = [part for line in lines for part in textwrap.wrap(plain(line, limit=2000), width)]
    fig.set_figheight(fig.get_figheight() + 0.13 * len(parts))
    fig.supxlabel("\n".join(parts), x=0.01, ha="left", fontsize=6.5, linespacing=1.35)


def legend(fig: Figure, handles: Mapping[str, Artist]) -> None:
    """Name what the panels show, above them; the figure grows by the height of the legend."""
    names = [wrapped(name, fig.get_figwidth() - 0.5) for name in handles]
    for columns in range(len(names), 0, -1):
        words = fig.legend(
            handles.values(), names, ncols=columns, loc="outside upper left", alignment="left"
        )
        size = words.get_window_extent()
        if columns == 1 or size.width <= fig.bbox.width:
            fig.set_figheight(fig.get_figheight() + size.height / fig.dpi)
            return
        words.remove()


def empty(ax: Axes, text: str) -> None:
    """Write the reason into an empty panel."""
    ax.tick_params(which="both", bottom=False, labelbottom=False)
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes, color=FAINT)


# --- colours and axes -----------------------------------------------------------------------------


def colours(keys: Iterable[Hashable]) -> dict[Any, str]:
    """Return one colour per key, in order: the palette, or shades of viridis for many keys."""
    keys, shades = list(keys), [*PALETTE]
    if len(keys) > len(PALETTE):
        spread = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(keys)))
        shades = [*map(mpl.colors.to_hex, spread)]
    return dict(zip(keys, shades, strict=False))


def words_at(ax: Axes, words: Sequence[str]) -> None:
    """Put words at 0, 1, 2, ... of the x axis; long ones are slanted."""
    longest = max(len(line) for word in words for line in str(word).split("\n"))
    is_long = longest > 7 or longest * len(words) > 50
    look: Any = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if is_long else {}
    ax.set_xticks(range(len(words)), words, **look)
    ax.set_xlim(-0.6, len(words) - 0.4)


def percent(axis: Axis) -> None:
    """Write the numbers of an axis as percentages."""
    axis.set_major_formatter(ticker.PercentFormatter(xmax=1, decimals=0))


def y_axis(ax: Axes, scale: str) -> None:
    """Make the y axis logarithmic if it has positive data; "share": 0 to 100 %, or "from_zero"."""
    shared = ax.get_shared_y_axes().get_siblings(ax)
    if scale == "log" and any(np.isfinite(other.dataLim.minposy) for other in shared):
        ax.set_yscale("log")
    elif scale == "share":
        ax.set_ylim(-0.04, 1.04)
        ax.set_yticks([0, 0.5, 1])
        percent(ax.yaxis)
    elif scale == "from_zero":
        ax.set_ylim(bottom=0)


def x_axis(ax: Axes, values: np.ndarray, log: bool, ticks: Iterable[float]) -> None:
    """Put the ticks of the x axis at those of the grid; at round ones if there are over 12.

    A logarithmic axis has the value 0 in a linear part at its left end.
    """
    positive = values[values > 0]
    if log and len(positive):
        least, decades = positive.min(), np.log10(positive.max() / positive.min())
        if len(positive) < len(values):
            linear = max(0.8, 0.15 * decades)  # fits two labels
            ax.set_xscale("symlog", linthresh=least, linscale=linear)
            ax.set_xlim(-0.3 * least, 2 * positive.max())
            locator = ticker.SymmetricalLogLocator(base=10, linthresh=least)
            locator.set_params(numticks=6)
            ax.xaxis.set_major_locator(locator)
            return
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
        if decades < 2:
            ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter("{x:g}")
        elif decades > 2.3:
            return
    ticks = sorted({float(v) for v in ticks if np.isfinite(v)})
    if 1 <= len(ticks) <= 12:
        ax.xaxis.set_major_locator(ticker.FixedLocator(ticks))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
    if len(ticks) == 1:
        ax.set_xlim((ticks[0] / 2, ticks[0] * 2) if log else (ticks[0] - 1, ticks[0] + 1))
