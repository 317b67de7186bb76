"""The numbers of the figures of every experiment, and the drawing of these numbers.

`curves.yaml` declares what most sweeps show; other sweeps have a module `sweeps/figures/NAME.py`.
What draws a sweep has

- `tables(frames)`: the tidy numbers, by name, every statistic from `sweeps.statistics`; each table
  has the axes of the sweep as columns, so that no two cells share a row;
- `draw(tables, axes, remarks)`: figures that show these tables and nothing else; `remarks` are
  added to their small print.

Sweeps without either are drawn by `adhoc`.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from attnsvm.config.plugins import declared_modules

from ..cells import CellAxes, groups, rows_of
from ..loaded import LoadedSweep
from ._numbers import status_counts

Tables = dict[str, pd.DataFrame]

CAPTIONS: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("captions.yaml")))
"""Caption and note of each figure."""

DECLARED: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("curves.yaml")))
"""Sweep -> the class that draws it, by default `_curves.Curves`, and its fields."""

FIGURES = 24
"""Largest number of figures of a kind that are drawn; the tables hold the rest."""

MOST_PANELS, MOST_CURVES = 4, 12
"""Largest number of panels, or of curves, of a figure."""


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when it is asked for; `name` is that of its files.

    `small_print` returns what stands beside it: what is drawn, and the instances counted. `animate`
    returns the images of its animation, of shape (height, width, RGB); none by default.
    """

    name: str
    caption: str
    make: Callable[[], Figure]
    small_print: Callable[[], Sequence[str]] = tuple
    animate: Callable[[], tuple[np.ndarray, ...]] = tuple

    @cached_property
    def figure(self) -> Figure:
        """The figure."""
        return self.make()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The lines of the small print."""
        return tuple(filter(None, self.small_print()))

    @cached_property
    def frames(self) -> tuple[np.ndarray, ...]:
        """The images of the animation."""
        return self.animate()


def figure_module(sweep: str, folders: Iterable[Path] = ()) -> Any:
    """Return the module, or the object, that draws the sweep of that name; `adhoc` if none does.

    `folders` are those of the user's own config files: `DIR/sweep/NAME.py` in one of them draws
    NAME, and so does the module that a plug-in declares under that name in its group `figures`.
    TypeError: the user's module lacks `tables` or `draw`, or plug-ins declare several.
    """
    if sweep in DECLARED:
        fields = {"by": "_curves.Curves", **DECLARED[sweep]}
        file, _, name = fields.pop("by").partition(".")
        return getattr(importlib.import_module(f".{file}", __name__), name)(sweep, **fields)
    if sweep.isidentifier():  # the name may come from a record
        if Path(__file__).with_name(f"{sweep}.py").exists():
            return importlib.import_module(f".{sweep}", __name__)
        if module := _user_module(sweep, folders):
            if hasattr(module, "tables") and hasattr(module, "draw"):
                return module
            raise TypeError(f"{module.__file__}: must have the functions tables and draw")
    return importlib.import_module(".adhoc", __name__)


def _user_module(sweep: str, folders: Iterable[Path]) -> ModuleType | None:
    files = (path for folder in folders if (path := folder / f"sweep/{sweep}.py").is_file())
    if (file := next(files, None)) is not None:
        spec: Any = spec_from_file_location(f"figures_of_{file.stem}", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    declared = declared_modules("figures", sweep)
    if len(declared) > 1:
        raise TypeError(f"figures of sweep={sweep}: {', '.join(declared)}; must be one module")
    return importlib.import_module(declared[0]) if declared else None


def paged(
    figures: Mapping[str, Callable[[Tables, CellAxes], Figure]],
    tables: Tables,
    axes: CellAxes,
    remarks: Sequence[str] = (),
    *,
    notes: Callable[[Tables, CellAxes], Sequence[str]] = lambda tables, axes: (),
    caption: Mapping[str, str] | None = None,
    inner: Sequence[str] = (),
    panels: Sequence[str] = (),
    room: int = 1,
    cells: str = "",
    counted: bool = True,
    animate: Callable[[Tables], tuple[np.ndarray, ...]] = lambda tables: (),
) -> list[Drawing]:
    """Return figures by name; NAME_1, NAME_2, ... where one figure has no room for all cells.

    Each of `figures` draws the tables of some cells, which differ in the axes that it is given, and
    `animate` returns the images of their animation. Every figure shows the axes `inner`; `panels`
    are the first ones to get panels or curves of their own, of which a figure has at most `room`.
    The table `cells`, by default that of the counts, holds every cell.

    The small print is the note of the caption, `notes`, if `counted` the number of instances by
    status, and the remarks. The table of counts is the one that ends in _counts, if there is one.
    """
    counts = next((key for key in tables if key.endswith("_counts")), "")
    table = tables[cells or counts]
    shared = [axis for axis in panels if axis in axes.names]
    shared += axes.besides(*inner, *panels)
    while shared and len(table[shared].drop_duplicates()) > room:
        shared.pop()
    apart = axes.besides(*inner, *shared)
    pages = [cell for cell, _ in groups(table, apart)] or [{}]
    if (hidden := len(pages) - FIGURES) > 0:
        what = f"{hidden} further combinations of {', '.join(apart)} are in the tables only."
        remarks = [*remarks, what]
    left = replace(axes, names=tuple(axes.besides(*apart)))

    def small_print(note: str, part: Tables) -> list[str]:
        by_status = [status_counts(part[counts], left)] if counts and counted else []
        return [note, *notes(part, left), *by_status, *remarks]

    drawings = []
    for (name, figure), (i, cell) in product(figures.items(), enumerate(pages[:FIGURES])):
        part = {key: rows_of(values, cell) for key, values in tables.items()}
        text = caption or CAPTIONS.get(name, {})
        drawings.append(
            Drawing(
                f"{name}_{i}" if i else name,
                ": ".join(filter(None, [axes.label(cell), text.get("caption", "")])),
                partial(figure, part, left),
                partial(small_print, text.get("note", ""), part),
                partial(animate, part),
            )
        )
    return drawings
