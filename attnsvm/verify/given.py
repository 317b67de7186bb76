"""What a record gives of its instances, and what of its config is not known here."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import GROUPS, RunConfig
from attnsvm.record import CorruptRecordError
from attnsvm.verify.exact import Array
from attnsvm.verify.stored import svms_of
from attnsvm.verify.svm_columns import Rows, support


@dataclass(frozen=True)
class StoredRows:
    """What a record says of some instances: their rows, and the arrays of those that have arrays.

    Attributes
    ----------
    rows : list of dict
        In the order of the table.
    key : list of str
        The columns that tell rows apart.
    arrays : dict of str to Array
        Each (R, ...), of R recorded rows.
    svm : mapping
        The section `svm` of the config.
    """

    rows: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    arrays: Mapping[str, Any]
    svm: Mapping[str, Any]
    supports: dict[tuple[int, str], Any] = field(default_factory=dict)

    @cached_property
    def row_at(self) -> dict[tuple[int, ...], Mapping[str, Any]]:
        """The rows by their key."""
        return {tuple(int(row[name]) for name in self.key): row for row in self.rows}

    @cached_property
    def place(self) -> dict[tuple[int, ...], int]:
        """The indices of the arrays by key; (seed,) is the first one of a seed."""
        names = ["seeds", *self.key[1:]]
        found: dict[tuple[int, ...], int] = {}
        for k, values in enumerate(zip(*(self.arrays[n] for n in names), strict=True)):
            found[tuple(map(int, values))] = k
            found.setdefault((int(values[0]),), k)
        return found

    def tensor(self, name: str, at: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Return the rows `at` of an array of float64, (len(at), *shape).

        Raises
        ------
        CorruptRecordError
            If it is missing, or of another type or shape.
        """
        if name not in self.arrays:
            raise CorruptRecordError(f"solutions.npz: missing: {name}")
        array = self.arrays[name]
        if array.shape[1:] != tuple(shape) or array.dtype != np.float64:
            raise CorruptRecordError(f"{name}: {array.shape} {array.dtype}, must be {(*shape,)}")
        return torch.from_numpy(array[list(at)])

    def instance(self, k: int) -> dict[str, Any]:
        """Return the arrays of one recorded row."""
        return {name: array[k] for name, array in self.arrays.items()}

    def support(self, k: int, name: str, possible: bool) -> Array:
        """Return the support tokens of an SVM, (n, T): those for certain, or possible ones too."""
        if (k, name) not in self.supports:
            svm = svms_of(self.instance(k), self.svm)[name]
            rows = Rows(svm)
            known = bool(np.isfinite(svm.W).all())
            pair = support(rows, rows.kappa()) if known else (rows.present & False,) * 2
            self.supports[k, name] = pair
        return self.supports[k, name][int(possible)]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Unknown:
    """What of a run is not known here.

    Attributes
    ----------
    groups : frozenset of str
        Groups of the config with a plug-in, whose code is not run.
    labels : bool
        Labels and scores: the instances cannot be drawn.
    start : bool
        The initial weights.
    """

    groups: frozenset[str] = frozenset()
    labels: bool = False
    start: bool = False


def known_config(config: RunConfig, unknown: Unknown, skipped: Sequence[str]) -> RunConfig:
    """Return the config with an option of ours in the place of plug-ins, without `skipped` probes.

    Nothing is published again: these columns are results of another solver.
    """
    stand_ins = {
        "head": "linear",
        "model": "cross_attention",
        "loss": "logistic",
        "parameterization": "w",
        "optimizer": "normalized_gd",
        "data": "sphere",
    }
    found = copy.copy(config)
    for group in unknown.groups:
        setattr(found, group, GROUPS[group].own[stand_ins[group]]())
    found.probe = {name: node for name, node in config.probe.items() if name not in skipped}
    found.svm = dataclasses.replace(config.svm, published=False)
    found.extensions = []
    return found
