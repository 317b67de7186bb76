"""Curves of quantities over the steps of training, or over an axis; `curves.yaml` declares them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pandas as pd
from matplotlib.axes import Axes

from .. import notation, statistics, style
from ..cells import rows_of
from ..facets import BANDS, QUARTILES, Panel, curves, labels, named, panel_of
from . import CAPTIONS, MOST_CURVES, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import OWN, TRAINED, history_of, joined, of_own_norm, outcomes, quantities_of

OF_SVM = ("one_minus", "margin_gap", "correlation", "svm_rank")
"""Beginnings of the quantities that compare with an SVM: known of certified instances."""


def chance_line(ax: Axes, T: int) -> None:
    """Draw a line at the share 1 / T, that of one of T tokens by chance."""
    ax.axhline(1 / T, color=style.FAINT, linestyle=":", linewidth=1)
    where = ax.get_yaxis_transform()
    ax.text(1, 1 / T, "chance ", ha="right", va="top", fontsize=6.5, transform=where)


@dataclass(frozen=True)
class Curves:
    """The figure of an experiment that shows `quantities` over the steps, or over an axis `x`.

    It is called `main`, if not as the experiment. There are further figures NAME_END of the
    quantities `more[END]`; those `tabled` are in the table only. Panels are the quantities and
    the values of the axes `facet`. Curves differ in the axes `dash` by their dashes, and in others,
    or in `hue`, by their colours. Where hue or dash is `quantity`, a panel has all of them, and its
    vertical axis is that of `axis` in the notation. All figures show the axes `inner`, which are
    columns of the table even if they have one value; instances are `pooled` over some of them.
    One figure has `room` for so many curves, without `hue`; if there are more, the axes besides
    `first` get figures of their own. Drawn are the rows with the values `where`, of at least
    `least` instances. `weights` is what the label of a correlation calls the weights.

    Statistics are over the certified instances. Those over the steps, or if `trained`, of
    quantities that compare with no SVM are over all trained instances.
    """

    name: str
    quantities: Sequence[str]
    main: str = ""
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tabled: Sequence[str] = ()
    statistic: statistics.Statistic = "median"
    x: str = "step"
    log_x: bool = False
    facet: Sequence[str] = ()
    hue: Sequence[str] = ()
    dash: Sequence[str] = ("optimizer.gradient",)
    inner: Sequence[str] = ()
    pooled: Sequence[str] = ()
    first: Sequence[str] = ()
    room: int = MOST_CURVES
    where: Mapping[str, object] = field(default_factory=dict)
    axis: str = ""
    weights: str = "W"
    quartiles: bool = False
    offset: float = 0.0
    widen: float = 0.3
    least: int = 1
    trained: bool = False

    def keys(self, axes: CellAxes) -> list[str]:
        """Return the columns that tell the rows of the table apart, besides quantity and step."""
        ends = [] if self.x == "step" else [self.x]
        own = [name for name in self.inner if name not in (self.x, *self.pooled)]
        return [*axes.besides(*self.inner, self.x), *own, *ends]

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the instances of which some are drawn."""
        return frames.rows

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the statistics of the quantities, and the number of instances by status."""
        quantities = [*self.quantities, *chain(*self.more.values()), *self.tabled]
        trials, keys = self.trials(frames), self.keys(frames.cells)
        certified = trials["status"] == "ok"
        others = trials["status"].isin(TRAINED) if self.x == "step" or self.trained else certified
        parts = []
        for of_svm, rows in ((True, certified), (False, others)):
            names = [name for name in quantities if name.startswith(OF_SVM) == of_svm]
            values, by = self._values(frames, trials[rows], keys, names)
            if len(values):
                parts.append(statistics.summaries(values, by, "value", self.statistic))
        columns = dict.fromkeys([*keys, "quantity", self.x, "used", self.statistic])
        table = joined(parts, [*columns])
        return {self.name: table, f"{self.name}_counts": outcomes(frames.rows, frames.cells)}

    def _values(
        self, frames: LoadedSweep, trials: pd.DataFrame, keys: list[str], names: Sequence[str]
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the quantities of each instance, and the columns of a group."""
        if self.x == "step":
            history = history_of(frames, trials, [*dict.fromkeys([*keys, "parameterization"])])
            return quantities_of(history, names), [*keys, "quantity", "step"]
        trials = trials.assign(**{name: of_own_norm(trials, name) for name in OWN if name in names})
        present = [name for name in names if name in trials]
        return trials.melt(keys, present, "quantity", "value"), [*keys, "quantity"]

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures, or several of each if there are too many curves."""
        parts = {self.main or self.name: self.quantities}
        parts |= {f"{self.name}_{end}": quantities for end, quantities in self.more.items()}
        figures = {name: partial(self.figure, quantities) for name, quantities in parts.items()}
        return paged(
            figures,
            tables,
            axes,
            remarks,
            notes=self.notes,
            inner=[self.x, *self.inner],
            panels=[*self.facet, *self.first],
            room=1 if self.hue else self.room,
        )

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and of which instances, unless the captions say so."""
        own = CAPTIONS.get(self.main or self.name, {})
        return [] if "note" in own else [CAPTIONS["over_steps"][self.statistic]]

    def figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each quantity and value of `facet`; a single quantity has one row."""
        table = rows_of(tables[self.name], self.where)
        table = table[table["quantity"].isin(quantities) & (table["used"] >= self.least)]
        usable = ["quantity", *axes.names, *(name for name in self.inner if name in table)]
        facet, hue, dash = (
            [name for name in names if name in usable]
            for names in (self.facet, self.hue, self.dash)
        )
        hue = hue or axes.besides(self.x, *self.inner, *facet, *dash)
        if not hue:
            hue, dash = dash, []
        overlay = "quantity" in (*hue, *dash)
        parts = {"facet": facet, "hue": hue, "dash": dash}
        words = {part: self.words(axes, table, of) for part, of in parts.items() if of}
        facets = words.pop("facet", "")
        table = table.assign(**words)
        panels = {name: self.panel(name) for name in quantities}
        single = overlay or len(quantities) == 1
        places = {"col": facets} if single else {"row": facets, "col": table["quantity"]}
        return curves(
            table.assign(**places),
            self.x,
            self.statistic,
            panels=self.panel(self.axis or quantities[0]) if single else panels,
            bands=BANDS | (QUARTILES if self.quartiles else {}),
            offset=self.offset,
            widen=self.widen,
            log_x=self.log_x,
        )

    def words(self, axes: CellAxes, table: pd.DataFrame, keys: Sequence[str]) -> "pd.Series[str]":
        """Return the label of each row's quantity, or of its values of the axes `keys`."""
        if "quantity" in keys:
            return named(table["quantity"], notation.MEASURED.get(self.name, {}))
        return labels(axes, table, keys)

    def panel(self, quantity: str) -> Panel:
        """Return the vertical axis of a quantity."""
        panel = panel_of(quantity)
        return replace(panel, label=panel.label.replace("(W,", f"({self.weights},"))
