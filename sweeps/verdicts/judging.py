"""Runs instances in this process and rules on them: a hunt rules on thousands.

The only module of `sweeps` that trains: the runs of a verdict are sweeps in processes of their own.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm import experiment, record
from attnsvm.config import RunConfig
from attnsvm.config.compose import composed
from attnsvm.config.instantiate import instantiate
from attnsvm.record.provenance import provenance

from ..aggregate import load
from ..claims import Claim, Evidence
from .case import Array, Case
from .derive import rulings

DRAWN = ("zero", "uniform", "small")
"""Initial weights that are drawn from the seed, and can be given as numbers instead."""

PARAMETERS = ("v", "V")
"""Parameters of a head whose first axis, and second, if any, are those of a token."""

INSTANCE, START = "instance.npz", "start.npz"


class Judge:
    """Rules whether a claim fails on instances that are trained as some of its runs are.

    Parameters
    ----------
    claim : Claim
        The claim.
    overrides : sequence of str
        Of one cell of its runs, without those of the data, of `seed` and of `trials`.
    """

    def __init__(self, claim: Claim, overrides: Sequence[str]) -> None:
        self.claim, self.overrides = claim, tuple(overrides)
        self.seeded = composed(overrides)

    @cached_property
    def given(self) -> RunConfig:
        """The config of a run of cases, without the names of their files."""
        return composed([*self.overrides, "data=file", f"data.path={INSTANCE}"])

    def drawn(self, size: tuple[int, int, int], seed: int, trials: int) -> pd.Series[str]:
        """Return the ruling of the instances `seed`, `seed` + 1, ... of a size, by seed."""
        n, T, d = size
        data = dataclasses.replace(self.seeded.data, n=n, T=T, d=d)  # type: ignore[call-arg]
        return self._rule(dataclasses.replace(self.seeded, data=data, seed=seed, trials=trials))

    def case(self, size: tuple[int, int, int], seed: int) -> Case:
        """Return an instance of that size as numbers.

        Raises
        ------
        ValueError
            If the head is not made of projections, so that no coordinate can be left out.
        """
        n, T, d = size
        data = dataclasses.replace(self.seeded.data, n=n, T=T, d=d)  # type: ignore[call-arg]
        source, head, model, rule = (
            instantiate(node, group)
            for group, node in (
                ("data", data),
                ("head", self.seeded.head),
                ("model", self.seeded.model),
                ("parameterization", self.seeded.parameterization),
            )
        )
        batch, optimizer = source.sample(head, model, 1, seed), self.seeded.optimizer
        if unknown := set(batch.head_parameters) - set(PARAMETERS):
            raise ValueError(f"head: has {', '.join(unknown)}; must have v or V only to be shrunk")
        X, Z, Y = (V[0].numpy() for V in (batch.X, batch.Z, batch.Y))
        parameters = {name: V[0].numpy() for name, V in batch.head_parameters.items()}
        start = {}
        if optimizer.init in DRAWN and self.seeded.selection.tokens != "optimal":
            drawn = rule.init(optimizer.init, optimizer.init_scale, batch.seeds, d)
            start = {name: V[0].numpy() for name, V in zip(rule.NAMES, drawn, strict=True)}
        return Case({"X": X, "Z": Z, "Y": Y, **parameters, **start})

    def rule(self, cases: Sequence[Case]) -> list[str]:
        """Return the ruling of each of these cases, which have one shape."""
        with tempfile.TemporaryDirectory() as folder:
            fields = written(Path(folder), cases)
            data = dataclasses.replace(self.given.data, path=fields.pop("data.path"))  # type: ignore[call-arg]
            start: Any = {key.removeprefix("optimizer."): V for key, V in fields.items()}
            optimizer = dataclasses.replace(self.given.optimizer, **start)
            config = dataclasses.replace(self.given, data=data, optimizer=optimizer, seed=0)
            return list(self._rule(dataclasses.replace(config, trials=len(cases))))

    def _rule(self, config: RunConfig) -> pd.Series[str]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            record.write(folder, experiment.parts(config), provenance(config, []))
            rows = rulings(self.claim, Evidence(load(folder)))
        return rows.set_index("seed")["ruling"].sort_index()


def written(folder: Path, cases: Sequence[Case]) -> dict[str, str]:
    """Write the files of cases of one shape; return the fields of a config that name them."""
    instance, start = folder / INSTANCE, folder / START
    np.savez_compressed(instance, **_stacked([case.instance for case in cases]))
    fields = {"data.path": str(instance)}
    if cases[0].start:
        parts = _stacked([case.start for case in cases])
        if set(parts) == {"W0"} and not parts["W0"].any():
            return fields | {"optimizer.init": "zero"}
        np.savez_compressed(start, **parts, seeds=np.arange(len(cases)))
        fields |= {"optimizer.init": "file", "optimizer.init_path": str(start)}
    return fields


def _stacked(rows: Sequence[Mapping[str, Array]]) -> dict[str, Any]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
