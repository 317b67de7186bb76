"""Instances of a record run again here, and every number compared with the record.

How far a number may be from that of another machine is measured, for every instance. Two processors
round differently, and some steps amplify that: those that overshoot, that follow signs, or that
divide by a small number. So an instance that differs is run again from inputs that are changed in
their last bits, and what changes then is what rounding decides.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from attnsvm.data import Pretrained
from attnsvm.data.problem import ProblemBatch
from attnsvm.experiment.results import Trained
from attnsvm.experiment.stages import Stages
from attnsvm.experiment.svms import Svm
from attnsvm.model import Transformer
from attnsvm.record.columns import key_columns
from attnsvm.record.schema import RunRecord

Array = NDArray[Any]
Name = tuple[str, str]
"""The part of a record, `table`, `history`, `steps` or `arrays`, and a name in it."""

SIZE = 1e-15
"""Largest relative change of an input: five units of its last bit."""

DRAW = 1e-5
"""Largest relative difference of what is drawn where torch has other vector instructions."""

ROUNDS = ((0, 0.0), (6, 8.0), (24, 4.0), (96, 2.0))
"""Numbers of changed runs, and the tolerance in units of the largest difference among them.

Of draws from one smooth density another one lies farther away with a probability of 1e-6. But steps
that zigzag end on either side of a valley, and all of a few runs may end on one side. So where
training amplifies rounding, no difference is refused before the last round.
"""

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Tolerance where no difference was measured: solvers stop at gaps of this size."""

LATER = 1.5
"""A curve has the tolerance of so many times as many steps: growing differences begin any time."""

WEIGHTS = (("arrays", "trained_W"), ("arrays", "network_W"), ("table", "W_norm"))
"""Where a record has what was trained."""

DRAWN = {("arrays", "X"), ("arrays", "Z")}
"""What is equal in every bit on machines that draw alike."""

SOLUTION = (
    *("W", "multipliers", "ray", "objective", "lower_bound", "duality_gap", "gap", "min_margin"),
    *("rank", "rank_bound", "kappa", "support"),
)
"""Arrays of a solution and columns of it: where the arrays are others, all may be."""


class Rerun(Stages):
    """The stages of a run, of which the SVMs have the solutions that are `stored`.

    They are proved, and a solver may find others: the minimisers of many norms are not unique.
    """

    stored: Mapping[str, Array] = {}

    def known(self, name: str, solution: Svm, trained: Trained) -> Svm:
        """Return the solution of the SVM called `name`: as stored, of the same status."""
        if f"{name}_W" not in self.stored:
            return solution
        rows = places(self.stored, {"seed": trained.batch.seeds, **trained.key})
        same = self.stored[f"{name}_status"][rows] == [status.value for status in solution.statuses]
        known = torch.tensor(same & (rows >= 0))
        fields: dict[str, Any] = {}
        for of in ("W", "objective", "lower_bound"):
            value = getattr(solution, of)
            stored = torch.from_numpy(self.stored[f"{name}_{of}"][rows]).to(value)
            where = known.to(value.device).view(-1, *[1] * (value.ndim - 1))
            fields[of] = torch.where(where, stored, value)
        return replace(solution, **fields)


def places(arrays: Mapping[str, Array], key: Mapping[str, Any] | pd.DataFrame) -> NDArray[np.intp]:
    """Return where the arrays have the rows of this key; -1 where they do not."""
    names = [str(name) for name in key]
    stored = [np.asarray(arrays[name]) for name in ("seeds", *names[1:])]
    rows = [np.asarray(key[name]) for name in names]
    return pd.MultiIndex.from_arrays(stored).get_indexer(pd.MultiIndex.from_arrays(rows))


def changed(batch: ProblemBatch, seed: int, size: float, tokens: bool) -> ProblemBatch:
    """Return instances whose queries are changed by a relative `size` at most.

    A coordinate has one factor in all queries, so equal queries stay equal; scores do not change,
    so equal scores stay equal. With `tokens` these change likewise, and with a size above `SIZE`
    the head.
    """
    generator = Generator().manual_seed(seed)

    def factors(*shape: int) -> Tensor:
        sizes, signs = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
        factor = 1 + size * (1 + sizes) / 2 * torch.where(signs < 0.5, -1, 1)
        return torch.as_tensor(factor).to(batch.Z.device)

    factor, head = factors(batch.d), batch.head_parameters
    if size > SIZE:
        head = {name: value * factors(*value.shape) for name, value in head.items()}
    X = batch.X * factor if tokens else batch.X
    return replace(batch, X=X, Z=batch.Z * factor, head_parameters=head)


# --- all numbers of a record, by row --------------------------------------------------------------


def sheet(record: RunRecord) -> dict[Name, Array]:
    """Return what is recorded of N rows of the table: cells (N,), curves (N, S), arrays (N, ...).

    A row without arrays has zeros in their place, and no numbers in that of its curves.
    """
    trials, solutions = record.trials, record.solutions
    key, N = key_columns(trials), len(trials)
    values = {("table", str(name)): _plain(column) for name, column in trials.items()}
    recorded = values["table", "arrays"] = np.zeros(N, dtype=bool)
    if not solutions:
        return values
    rows = places(solutions, trials[key])
    recorded |= rows >= 0
    for name, array in solutions.items():
        values["arrays", name] = filled = array[rows]
        filled[~recorded] = np.zeros((), array.dtype)
    table = record.history.pivot(index=key, columns=["quantity", "step"], values="value")
    table = table.reindex(trials.set_index(key).index).sort_index(axis=1)
    for name in table.columns.unique("quantity"):
        values["history", str(name)] = table[name].to_numpy()
        values["steps", str(name)] = np.tile(table[name].columns, (N, 1))
    return values


def _plain(column: "pd.Series[Any]") -> Array:
    """Return a column as numbers, or as objects with None for a missing one."""
    extended = isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
    return column.array.to_numpy(object, na_value=None) if extended else column.to_numpy()


def difference_in_form(stated: Mapping[Name, Array], values: Mapping[Name, Array]) -> str:
    """Return where a record has another shape or type than it must have; empty if nowhere."""
    both = stated["table", "arrays"].any() and values["table", "arrays"].any()
    for name in sorted(stated.keys() | values.keys()):
        form, must = (_form(sheet.get(name), name[0]) for sheet in (stated, values))
        if form != must and (both or name[0] == "table"):
            return f"{name[1]} ({name[0]}): is {form}, must be {must}"
    return ""


def _form(cells: Array | None, part: str) -> str:
    """Return shape and type; words may have any length, and columns have the type of the table."""
    if cells is None:
        return "missing"
    any_length = part == "table" or cells.dtype.kind == "U"
    return f"{cells.shape} {'' if any_length else cells.dtype}"


# --- comparison -----------------------------------------------------------------------------------


def compare(
    rerun: Rerun,
    batch: ProblemBatch,
    stated: RunRecord,
    free: Callable[[str], bool],
    older: bool = False,
    elsewhere: bool = False,
) -> dict[int, list[str]]:
    """Run the instances of `batch` again, and return what differs from what is `stated`, by seed.

    Nothing is said of a seed that is left open: rounding decides a word or a count there, or its
    inputs cannot be drawn here. Columns, curves and arrays whose names are `free` are not compared,
    nor those that an `older` record lacks. `elsewhere` is whether the record may be of a machine
    that draws other last bits.
    """
    outcome, size = dict[int, list[str]](), SIZE
    layered = isinstance(rerun.objects.model, Transformer)
    for runs, factor in ROUNDS:
        rerun.stored = stated.solutions
        record = rerun.record_of(batch)
        claims, values = (
            {name: cells for name, cells in sheet(of).items() if not free(name[1])}
            for of in (stated, record)
        )
        if older:
            values = {name: cells for name, cells in values.items() if name in claims}
        seeds = record.trials["seed"].to_numpy()
        if reason := difference_in_form(claims, values):
            return outcome | {seed: [reason] for seed in seeds.tolist()}
        if elsewhere and not runs:
            error = _error_of_draw(record.trials, claims, values)
            pretrained = isinstance(rerun.objects.data, Pretrained)
            if error > DRAW and pretrained and _turned(claims, values):
                return {seed: [] for seed in seeds.tolist()}
            size = 2 * error if 0 < error <= DRAW else SIZE
        tokens = layered or size > SIZE
        others = [
            sheet(rerun.record_of(changed(batch, seed, size, tokens))) for seed in range(runs)
        ]
        allowed = {name: tolerance(name, values, others, factor) for name in values}
        if not tokens:
            allowed |= {name: np.zeros_like(values[name]) for name in DRAWN & values.keys()}
        reasons = defaultdict[int, list[str]](list)
        for name, rows in _beyond(claims, values, allowed).items():
            for row in np.flatnonzero(rows):
                reasons[int(seeds[row])].append(
                    _reason(name[1], claims[name][row], values[name][row])
                )
        vague = _seeds(seeds, [np.isinf(limit) for limit in allowed.values()])
        weights = [
            allowed[name] > 2 * tolerance(name, values) for name in WEIGHTS if name in values
        ]
        amplified, last = _seeds(seeds, weights), runs == ROUNDS[-1][0]
        again = {seed for seed in reasons if not runs or (seed in amplified and not last)}
        outcome |= {seed: reasons[seed] for seed in (vague | reasons.keys()) - again}
        if not again:
            break
        batch = batch.take(torch.isin(batch.seeds, torch.tensor([*again]).to(batch.seeds)))
        stated = stated.of_seeds([*again])
    return outcome


def _error_of_draw(
    trials: pd.DataFrame, stated: Mapping[Name, Array], values: Mapping[Name, Array]
) -> float:
    """Return the relative difference of tokens and queries, of a network those of layer 0."""
    first = np.asarray(trials.get("layer", 0)) == 0

    def error(name: Name) -> float:
        value = values[name][first]
        apart = np.abs(stated[name][first] - value).max(initial=0.0)
        return float(apart / (np.abs(value).max(initial=0.0) or 1.0))

    return max(map(error, DRAWN & values.keys() & stated.keys()), default=0.0)


def _turned(stated: Mapping[Name, Array], values: Mapping[Name, Array]) -> bool:
    """Whether rows of a pretrained model have these inner products: their basis may be another."""

    def gram(cells: Array) -> Array:
        rows = cells.reshape(len(cells), -1, cells.shape[-1])
        return rows @ rows.swapaxes(1, 2)

    pairs = [(gram(stated[name]), gram(values[name])) for name in DRAWN]
    return all(np.abs(a - b).max() <= RELATIVE * np.abs(b).max() for a, b in pairs)


def tolerance(
    name: Name,
    values: Mapping[Name, Array],
    others: Sequence[Mapping[Name, Array]] = (),
    factor: float = 1.0,
) -> Array:
    """Return how far a number may be from its value, (N, ...), by the sheets of `others`.

    That of an array is one for all entries of a row. That of a curve never falls: what rounding has
    changed at a step it may have changed at all later ones, and somewhat earlier. It is infinite
    where rounding decides: where a word, a count, or whether there is a number, differs.
    """
    value, (part, _) = values[name], name
    if any(name not in other or other[name].shape != value.shape for other in others):
        return np.full(value.shape, np.inf)
    apart = np.max([distance(value, value), *(distance(other[name], value) for other in others)], 0)
    if value.dtype.kind != "f":
        return np.where(apart > 0, np.inf, 0.0)
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    if part == "arrays" and value.ndim > 1:
        axes = tuple(range(1, value.ndim))
        apart, size = (numbers.max(axes, keepdims=True) for numbers in (apart, size))
    if part == "history":
        steps = values["steps", name[1]][0]
        ends = np.searchsorted(steps, LATER * steps)
        apart = np.maximum.accumulate(apart, axis=-1)[..., np.minimum(ends, len(steps) - 1)]
    return factor * apart + RELATIVE * size + ABSOLUTE


def distance(a: Array, b: Array) -> Array:
    """Return |a - b|; infinite where words or counts differ, or one is not a number."""
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return np.where(np.asarray(a == b, dtype=bool), 0.0, np.inf)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _beyond(
    stated: Mapping[Name, Array], values: Mapping[Name, Array], allowed: Mapping[Name, Array]
) -> dict[Name, Array]:
    """Return in which rows a number differs by more than is allowed, (N,).

    Where a stored SVM has another solution, which is proved, what follows from it may differ.
    """
    beyond = {
        name: _rows(distance(stated[name], value) > allowed[name])
        for name, value in values.items()
        if name in stated  # a row that is rejected has no arrays
    }
    for svm in (name.removesuffix("_ray") for _, name in values if name.endswith("_ray")):
        arrays, columns = (
            [(part, f"{svm}_{of}") for of in SOLUTION] for part in ("arrays", "table")
        )
        other = np.any([beyond[name] for name in arrays if name in beyond], axis=0)
        beyond |= {n: beyond[n] & ~other for n in (*arrays, *columns) if n in beyond}
    return beyond


def _rows(holds: Array) -> Array:
    """Return in which rows anything holds, (N,)."""
    return np.asarray(holds.reshape(len(holds), -1).any(1))


def _seeds(seeds: Array, masks: Sequence[Array]) -> set[int]:
    """Return the seeds of rows in which any of the masks holds."""
    return {seed for mask in masks for seed in seeds[_rows(mask)].tolist()}


def _reason(name: str, stated: Any, value: Any) -> str:
    if np.ndim(value):
        return f"{name} differs by {distance(np.asarray(stated), value).max():.2g}"
    return f"{name} is {value}, stated is {stated}"
