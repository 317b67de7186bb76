"""Runs instances in this process and rules on them: a hunt rules on thousands.

The only module of `sweeps` that trains: the runs of a verdict are sweeps in processes of their own.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm import experiment
from attnsvm.config import RunConfig
from attnsvm.config.compose import composed
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance

from ..aggregate import load
from ..claims import FAILS, Claim
from .case import START, Case
from .derive import rulings

_composed = cache(composed)  # the same for all cases: composing a config takes 0.4 s

DRAWN = ("zero", "uniform", "small")
"""Initial weights that are drawn from the seed, and can be given as numbers instead."""

PARAMETERS = {"v", "V"}
"""Parameters of a head whose first axis, and second, if any, are those of a token."""

Size = tuple[int, int, int]


class Judge:
    """Rules whether a claim fails on instances that are trained as those of a cell of its runs.

    `overrides` are those of the cell without the ones of the data, of `seed` and of `trials`;
    `place` is an empty folder for the files of cases.
    """

    def __init__(self, claim: Claim, overrides: Sequence[str], place: Path) -> None:
        self.claim, self.overrides = claim, tuple(overrides)
        self.place = place
        self.seeded = _composed(self.overrides)

    def drawn(self, size: Size, seed: int, trials: int) -> pd.DataFrame:
        """Return the rows of `rulings` of the instances `seed`, `seed` + 1, ... of a size."""
        return self._rule(self._config(size, seed, trials))

    def _config(self, size: Size, seed: int, trials: int) -> RunConfig:
        sizes: Any = dict(zip(("n", "T", "d"), size, strict=True))
        data = replace(self.seeded.data, **sizes)
        return replace(self.seeded, data=data, seed=seed, trials=trials)

    def case(self, size: Size, seed: int) -> Case:
        """Return an instance of that size as numbers.

        ValueError: the head is not made of projections, so that no coordinate can be left out.
        """
        objects = experiment.RunObjects.of(self._config(size, seed, 1))
        batch = objects.data.sample(objects.head, objects.model, 1, seed)
        if unknown := set(batch.head_parameters) - PARAMETERS:
            raise ValueError(f"head: has {', '.join(unknown)}; must have v or V only to be shrunk")
        tensors = {"X": batch.X, "Z": batch.Z, "Y": batch.Y, **batch.head_parameters}
        rule, optimizer = objects.parameterization, self.seeded.optimizer
        if optimizer.init in DRAWN and self.seeded.selection.tokens != "optimal":
            start = rule.init(optimizer.init, optimizer.init_scale, batch.seeds, size[2])
            tensors |= zip(rule.NAMES, start, strict=True)
        return Case({name: V[0].numpy() for name, V in tensors.items()})

    def rule(self, cases: Sequence[Case]) -> list[str]:
        """Return the ruling of each of these cases, which have one shape."""
        config = _composed((*self.overrides, *written(self.place, cases)))
        return list(self._rule(replace(config, trials=len(cases)))["ruling"])

    def lightest(self, cases: Sequence[Case]) -> Case | None:
        """Return the case of the smallest numbers on which the claim fails; none is degenerate."""
        cases = [case for case in cases if not case.degenerate]
        words = self.rule(cases) if cases else []
        failing = [case for case, word in zip(cases, words, strict=True) if word == FAILS]
        return min(failing, key=lambda case: case.weight, default=None)

    def _rule(self, config: RunConfig) -> pd.DataFrame:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write(folder, experiment.parts(config), provenance(config, []))
            rows = rulings(self.claim, load(folder))
        return rows.set_index("seed").sort_index()


def written(folder: Path, cases: Sequence[Case]) -> list[str]:
    """Write the files of cases of one shape; return the overrides of a run, but their number."""
    stacked: dict[str, Any] = {
        name: np.stack([case.arrays[name] for case in cases]) for name in cases[0].arrays
    }
    start = {name: stacked.pop(name) for name in START if name in stacked}
    path = folder / "instance.npz"
    np.savez_compressed(path, **stacked)
    given = ["data=file", f"data.path={path}", "seed=0"]
    if set(start) == {"W0"} and not start["W0"].any():
        return [*given, "optimizer.init=zero"]
    if start:
        path = folder / "start.npz"
        np.savez_compressed(path, **start, seeds=np.arange(len(cases)))
        given += ["optimizer.init=file", f"optimizer.init_path={path}"]
    return given
