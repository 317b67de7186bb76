"""How far the numbers of a run may differ between two machines: measured for every instance.

Two processors round differently, and some steps amplify that: those that overshoot, that follow
signs, or that divide by a small number. Which ones do is not declared. The instance is run again
from inputs that are changed in their last bits, and what changes shows what rounding decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Generator

from attnsvm.data import Seeded
from attnsvm.experiment.stages import Stages
from attnsvm.model import Transformer
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import key_columns
from attnsvm.record.schema import RunRecord
from attnsvm.verify.comparison import Name, Sheet, sheet
from attnsvm.verify.exact import Array

NUDGES = range(6)
"""Seeds of the changes, each of which gives another run."""

SIZE = 1e-15
"""Largest relative change of an input: five units of its last bit."""

FACTOR = 8.0
"""Tolerance, in units of the largest difference that was measured.

If all runs are draws from one distribution with a smooth density, another one lies farther away
than eight times all six with a probability of about 1e-6.
"""

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Tolerance where no difference was measured: solvers stop at gaps of this size."""


LATER = 1.5
"""A curve has the tolerance of so many times as many steps: growing differences begin any time."""


class Rerun:
    """Some instances of a recorded run, in the order of their seeds, run again here."""

    def __init__(self, stages: Stages, seeds: Sequence[int]) -> None:
        self.stages, self.seeds = stages, seeds

    @cached_property
    def record(self) -> RunRecord:
        """The record of the instances, as this machine makes it."""
        return self.stages.record_of(self._drawn)

    @cached_property
    def nudged(self) -> Sequence[RunRecord]:
        """Their records from inputs that are changed by `SIZE`, made when they are asked for."""
        layered = isinstance(self.stages.objects.model, Transformer)
        return [self.stages.record_of(nudged(self._drawn, seed, layered)) for seed in NUDGES]

    def of(self, seed: int) -> "Instance":
        """Return one of the instances."""
        return Instance(self, seed)

    @cached_property
    def _drawn(self) -> ProblemBatch:
        first, last = self.stages.config.seed, self.seeds[-1]
        if isinstance(self.stages.objects.data, Seeded):
            return _joined([self.stages.draw(1, seed) for seed in self.seeds])
        numbers = torch.tensor([seed - first for seed in self.seeds])
        return self.stages.draw(last - first + 1, first).take(numbers)


def _joined(batches: Sequence[ProblemBatch]) -> ProblemBatch:
    first = batches[0]
    names = ("X", "Z", "Y", "mask", "seeds")
    tensors = {name: torch.cat([getattr(one, name) for one in batches]) for name in names}
    parameters = {
        name: torch.cat([one.head_parameters[name] for one in batches])
        for name in first.head_parameters
    }
    held_out = [one.held_out for one in batches if one.held_out is not None]
    others = _joined(held_out) if held_out else None
    return replace(first, **tensors, head_parameters=parameters, held_out=others)


def nudged(batch: ProblemBatch, seed: int, layered: bool) -> ProblemBatch:
    """Return instances whose queries are changed by a relative `SIZE` at most.

    A coordinate has one factor in all queries, so equal queries stay equal; scores do not change,
    so equal scores stay equal. A network (`layered`) has tokens for queries.
    """
    generator = Generator().manual_seed(seed)
    sizes, signs = torch.rand(2, batch.d, generator=generator, dtype=torch.float64)
    factor = (1 + SIZE * (1 + sizes) / 2 * torch.where(signs < 0.5, -1, 1)).to(batch.Z.device)
    X = batch.X * factor if layered else batch.X
    return replace(batch, X=X, Z=batch.Z * factor)


@dataclass(frozen=True)
class Instance:
    """An instance that was run again: its numbers here, and how far others may be from them."""

    rerun: Rerun
    seed: int

    @cached_property
    def record(self) -> RunRecord:
        """Its record."""
        return self.rerun.record.of_seeds([self.seed])

    @cached_property
    def values(self) -> Sheet:
        """Everything in the record."""
        return _sheet(self.record)

    @cached_property
    def tolerances(self) -> Mapping[Name, Array]:
        """How far a number may be from its value here; infinite where rounding decides.

        That is where a word, a count, or whether there is a number at all, differs between runs.
        """
        others = [_sheet(one.of_seeds([self.seed])) for one in self.rerun.nudged]
        return {
            name: _tolerance(name[0], value, [other.get(name) for other in others], self._reach)
            for name, value in self.values.items()
        }

    @property
    def _reach(self) -> Array:
        """For each snapshot the last one whose differences it may have."""
        steps = self.values["history", "step"]
        steps = steps[0] if len(steps) else steps.ravel()
        ends = np.searchsorted(steps, LATER * steps, side="right")
        return np.minimum(ends, max(len(steps) - 1, 0))

    @property
    def undecidable(self) -> list[str]:
        """Columns, quantities and arrays that another machine may have otherwise."""
        return [name for (_, name), allowed in self.tolerances.items() if np.isinf(allowed).any()]

    def differences(self, stated: Sheet) -> Iterator[str]:
        """Yield what a sheet of this form has that rounding does not explain."""
        for (part, name), value in self.values.items():
            difference, allowed = _apart(stated[part, name], value), self.tolerances[part, name]
            if (beyond := difference > allowed).any():
                allowed = np.broadcast_to(allowed, difference.shape)
                worst, limit = difference[beyond].max(), allowed[beyond].max()
                yield f"{name} differs by {worst:.2g}, rounding allows {limit:.2g}"

    def is_equal(self, stated: Sheet) -> bool:
        """Return whether a sheet of this form has every bit of the values here."""
        return not any(_apart(stated[name], value).any() for name, value in self.values.items())


def _sheet(record: RunRecord) -> Sheet:
    return sheet(record.trials, record.history, record.solutions, key_columns(record.trials))


def _tolerance(part: str, value: Array, others: Sequence[Array | None], reach: Array) -> Array:
    """Return how far a number may be from `value`, (N, ...), by the values of other runs.

    That of an array is one for all entries of a row. That of a curve never falls: what rounding has
    changed at a step it may have changed at all later ones, and somewhat earlier.
    """
    same_form = [other for other in others if other is not None and other.shape == value.shape]
    if len(same_form) < len(others):
        return np.full(value.shape, np.inf)
    difference = np.max([_apart(other, value) for other in same_form], axis=0)
    if value.dtype.kind != "f":
        return np.where(difference > 0, np.inf, 0.0)
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    if part == "arrays" and value.ndim > 1:
        axes = tuple(range(1, value.ndim))
        difference, size = (one.max(axes, keepdims=True) for one in (difference, size))
    if part == "history":
        difference = np.maximum.accumulate(difference, axis=-1)[..., reach]
    return FACTOR * difference + RELATIVE * size + ABSOLUTE


def _apart(a: Array, b: Array) -> Array:
    """Return |a - b|; infinite where words or counts differ, or one is not a number."""
    if a.dtype.kind != "f":
        return np.where(np.asarray(a == b, dtype=bool), 0.0, np.inf)
    with np.errstate(all="ignore"):
        difference = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
