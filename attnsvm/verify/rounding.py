"""How far the numbers of a run may differ between two machines: measured for every instance.

Two processors round differently, and some steps amplify that: those that overshoot, that follow
signs, or that divide by a small number. Which ones do is not declared. The instance is run again
from inputs that are changed in their last bits, and what changes shows what rounding decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator

from attnsvm.data import Seeded
from attnsvm.experiment.stages import Stages
from attnsvm.model import Transformer
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import key_columns
from attnsvm.record.schema import RunRecord
from attnsvm.verify.comparison import Comparison, Name, Sheet, sheet
from attnsvm.verify.exact import Array

SIZE = 1e-15
"""Largest relative change of an input: five units of its last bit."""

ROUNDS = ((6, 8.0), (24, 4.0), (96, 2.0))
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


class Rerun:
    """Some instances of a recorded run, in the order of their seeds, run again here."""

    def __init__(self, stages: Stages, seeds: Sequence[int]) -> None:
        self.stages, self.seeds = stages, seeds
        self._nudged: dict[int, RunRecord] = {}

    @cached_property
    def record(self) -> RunRecord:
        """The record of the instances, as this machine makes it."""
        return self.stages.record_of(self._drawn)

    def nudged(self, seed: int) -> RunRecord:
        """Return their record from inputs that are changed by `SIZE`, drawn from a seed."""
        if seed not in self._nudged:
            layered = isinstance(self.stages.objects.model, Transformer)
            self._nudged[seed] = self.stages.record_of(nudged(self._drawn, seed, layered))
        return self._nudged[seed]

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
    tensors: dict[str, Any] = {
        name: torch.cat([getattr(one, name) for one in batches]) for name in names
    }
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

    def tolerances(self, runs: int, factor: float) -> dict[Name, Array]:
        """Return how far a number may be from its value here, by so many changed runs.

        It is infinite where rounding decides: where a word, a count, or whether there is a number,
        differs between runs.
        """
        others = [_sheet(record) for record in self._nudged(runs)]
        return {
            name: _tolerance(name[0], value, [other.get(name) for other in others], factor, reach)
            for reach in [self._reach]
            for name, value in self.values.items()
        }

    def compared(self, stated: Sheet) -> tuple[list[str], bool]:
        """Return what rounding does not explain, and whether it decides a word or a count."""
        form = Comparison([self.values]).form_refusal(stated)
        wrong, undecidable = list[str](), False
        for runs, factor in ROUNDS:
            tolerances = self.tolerances(runs, factor)
            undecidable = any(np.isinf(allowed).any() for allowed in tolerances.values())
            if not form:
                wrong = list(self._beyond(stated, tolerances))
            elif np.isinf(tolerances["table", "status"]).any():
                wrong = []
            else:
                wrong = [form]
            if not wrong or not self._is_amplified(tolerances):
                break
        return wrong, undecidable

    def _nudged(self, runs: int) -> list[RunRecord]:
        """Return records of changed runs: the first ones of all instances, others of this one."""
        together = min(runs, ROUNDS[0][0])
        first = [self.rerun.nudged(seed).of_seeds([self.seed]) for seed in range(together)]
        return [*first, *(self._alone.nudged(seed) for seed in range(together, runs))]

    @cached_property
    def _alone(self) -> Rerun:
        return Rerun(self.rerun.stages, [self.seed])

    @property
    def _reach(self) -> Array:
        """For each snapshot the last one whose differences it may have."""
        steps = self.values["history", "step"]
        steps = steps[0] if len(steps) else steps.ravel()
        ends = np.searchsorted(steps, LATER * steps, side="right")
        return np.minimum(ends, max(len(steps) - 1, 0))

    def _is_amplified(self, tolerances: Mapping[Name, Array]) -> bool:
        """Whether trained weights differ between the runs by more than rounding errors."""
        for name in WEIGHTS:
            if name in tolerances:
                size = np.nan_to_num(np.abs(self.values[name])).max(initial=0.0)
                if (tolerances[name] > 2 * RELATIVE * size + ABSOLUTE).any():
                    return True
        return False

    def _beyond(self, stated: Sheet, tolerances: Mapping[Name, Array]) -> Iterator[str]:
        for (part, name), value in self.values.items():
            difference, allowed = _apart(stated[part, name], value), tolerances[part, name]
            if (beyond := difference > allowed).any():
                allowed = np.broadcast_to(allowed, difference.shape)
                worst, limit = difference[beyond].max(), allowed[beyond].max()
                yield f"{name} differs by {worst:.2g}, rounding allows {limit:.2g}"

    def is_equal(self, stated: Sheet) -> bool:
        """Return whether a sheet has every bit of the values here."""
        same_form = not Comparison([self.values]).form_refusal(stated)
        return same_form and not any(
            _apart(stated[name], value).any() for name, value in self.values.items()
        )


def _sheet(record: RunRecord) -> Sheet:
    return sheet(record.trials, record.history, record.solutions, key_columns(record.trials))


def _tolerance(
    part: str, value: Array, others: Sequence[Array | None], factor: float, reach: Array
) -> Array:
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
    return factor * difference + RELATIVE * size + ABSOLUTE


def _apart(a: Array, b: Array) -> Array:
    """Return |a - b|; infinite where words or counts differ, or one is not a number."""
    if a.dtype.kind != "f":
        return np.where(np.asarray(a == b, dtype=bool), 0.0, np.inf)
    with np.errstate(all="ignore"):
        difference = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
