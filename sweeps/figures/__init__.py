"""One module per experiment: the numbers of its figures, and the drawing of these numbers.

A module `sweeps/figures/NAME.py` draws the sweep of the same name in `conf/sweep`; experiments that
share their code are in the table `SWEEPS` of one of `FAMILIES`. Either has

- `tables(frames)`: the tidy numbers, by name, every statistic from `sweeps.statistics`; each table
  has the axes of the sweep as columns, so that no two cells share a row;
- `draw(tables, axes, remarks)`: figures that show these tables and nothing else; `remarks` are
  added to their small print.

Sweeps without a module of their own are drawn by `adhoc`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from attnsvm.config.plugins import declared_modules

from ..aggregate import SweepFrames
from ..cells import CellAxes, groups, rows_of
from ._numbers import status_counts

Tables = Mapping[str, pd.DataFrame]

FAMILIES = ("_curves", "_networks", "convergence_types", "optimizer_geometry")
"""Modules that draw several sweeps: their `SWEEPS` has an object with `tables` and `draw` each."""

CAPTIONS: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("captions.yaml")))
"""Caption and note of each figure."""

FIGURES = 24
"""Largest number of figures of a kind that are drawn; the tables hold the rest."""

MOST_PANELS, MOST_CURVES = 4, 12
"""Largest number of panels, or of curves, of a figure: `Pages.room`."""


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
    for family in FAMILIES:
        if found := importlib.import_module(f"{__name__}.{family}").SWEEPS.get(sweep):
            return found
    own = {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    found = None if sweep in own else _user_module(sweep, folders)
    if found is None:
        found = importlib.import_module(f"{__name__}.{sweep if sweep in own else 'adhoc'}")
    elif not (hasattr(found, "tables") and hasattr(found, "draw")):
        raise TypeError(f"{found.__file__}: must have the functions tables and draw")
    return found


def _user_module(sweep: str, folders: Iterable[Path]) -> ModuleType | None:
    if not sweep.isidentifier():  # the name may come from a record
        return None
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


# --- pages ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pages:
    """The figure `name`; NAME_1, NAME_2, ... where one figure has no room for all cells.

    `figure` draws the tables of some cells, which differ in the axes that it is given, and
    `animate` returns the images of their animation. Caption and note are by default those of
    captions.yaml. The small print is the note, what `lines` returns, the counts of instances by
    status, and the remarks; the table of counts is by default the one that ends in _counts, "" for
    none. Every figure shows the axes `x`; `panels` are the first ones to get panels
    or curves of their own, of which a figure has at most `room`. The table `cells`, by default that
    of the counts, holds every cell.
    """

    name: str
    figure: Callable[[Tables, CellAxes], Figure]
    lines: Callable[[Tables, CellAxes], Sequence[str]] = lambda tables, axes: ()
    caption: str = ""
    note: str = ""
    counts: str | None = None
    x: Sequence[str] = ()
    panels: Sequence[str] = ()
    room: int = 1
    cells: str = ""
    animate: Callable[[Tables], tuple[np.ndarray, ...]] = lambda tables: ()

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures of these tables, with remarks in their small print."""
        of_sweep = next((name for name in tables if name.endswith("_counts")), "")
        counts = of_sweep if self.counts is None else self.counts
        table = tables[self.cells or counts]
        inner = [name for name in self.panels if name in axes.names]
        inner += axes.besides(*self.x, *self.panels)
        while inner and len(table[inner].drop_duplicates()) > self.room:
            inner.pop()
        apart = axes.besides(*self.x, *inner)
        cells = [cell for cell, _ in groups(table, apart)] or [{}]
        axes = replace(axes, names=tuple(axes.besides(*apart)))
        if (hidden := len(cells) - FIGURES) > 0:
            what = f"{hidden} further combinations of {', '.join(apart)} are in the tables only."
            remarks = [*remarks, what]
        drawn = []
        for i, cell in enumerate(cells[:FIGURES]):
            label = axes.label(cell)
            here = {key: rows_of(one, cell) for key, one in tables.items()}
            name = f"{self.name}_{i}" if i else self.name
            caption = self.caption or CAPTIONS.get(self.name, {}).get("caption", "")
            caption = f"{label}: {caption}" if label else caption
            make, words = partial(self.figure, here, axes), partial(self._words, here, axes, counts)
            drawn.append(
                Drawing(name, caption, make, partial(words, remarks), partial(self.animate, here))
            )
        return drawn

    def _words(
        self, tables: Tables, axes: CellAxes, counts: str, remarks: Sequence[str]
    ) -> list[str]:
        note = self.note or CAPTIONS.get(self.name, {}).get("note", "")
        counted = [status_counts(tables[counts], axes)] if counts else []
        return [note, *self.lines(tables, axes), *counted, *remarks]


def paged(*pages: Pages) -> Callable[..., list[Drawing]]:
    """Return the `draw` of several kinds of pages, one kind after the other."""
    return lambda *shown: [one for kind in pages for one in kind.draw(*shown)]
