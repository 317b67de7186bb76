"""The instances of a recorded config, drawn again by the library, beside the stored tokens."""

import dataclasses
import math
import platform
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from attnsvm.config import data, groups
from attnsvm.data import Pretrained, Seeded
from attnsvm.problem import ProblemBatch
from attnsvm.verify.exact import Array
from attnsvm.verify.replay import VARIANTS, Replay
from attnsvm.verify.stored import Refusal, StoredRows

LARGEST = 2**28
"""Most numbers of an instance that is drawn again where no array bounds its size."""

VECTORS = ("AVX2", "AVX512")
"""Vector instructions with which torch draws the published instances bit for bit."""

ELSEWHERE = 1e-5
"""Error of what another processor draws, relative to its largest numbers."""

TOKENS = ("X", "Z", "mask")

SAME = 1e-9
"""Relative error of inner products of rows of a pretrained model."""


class Drawing:
    """Draws the instances of a replay, and compares them with stored tokens.

    `machine` is the processor of the record. `refusals` are what differs, and `close` is how many
    instances agree up to rounding.
    """

    def __init__(self, replay: Replay, machine: str) -> None:
        self.replay, self.machine = replay, machine
        self.config, self.known = replay.config, not replay.unknown.labels
        self.refusals: list[Refusal] = []
        self.close, self.inexact = 0, False

    @property
    def elsewhere(self) -> bool:
        """Whether this processor, or that of the record, may draw other last bits."""
        capability = torch.backends.cpu.get_cpu_capability()
        return capability not in VECTORS or self.machine != platform.machine()

    @property
    def error(self) -> float:
        """The relative error of what was drawn last."""
        return ELSEWHERE if self.elsewhere or self.inexact else 0.0

    def available(self) -> float:
        """Return how many instances there are; NaN if that is not known."""
        if not hasattr(self.config.data, "path"):
            return math.inf
        return self._whole.B if self.known else math.nan

    def check_size(self) -> None:
        """Raise ValueError if an instance is too large to be drawn."""
        data, model, head = self.config.data, vars(self.config.model), vars(self.config.head)
        n, T, d = (int(getattr(data, name, 1)) for name in "nTd")
        d = max(d, getattr(data, "dimension", 1))
        copies = model.get("layers", 1) * max(model.get("heads", 1) * d, model.get("mlp", 0), 1)
        sizes = n * T * d * (T if "layers" in model or "causal" in model else 1)
        width = head.get("width", d if isinstance(self.config.head, groups.ReluHeadConfig) else 1)
        largest = max(sizes * (copies if "layers" in model else 1), d * width,
                      (getattr(data, "held_out", 0) * T + getattr(data, "K", 0)) * d)  # fmt: skip
        if largest > LARGEST:
            raise ValueError(f"n={n}, T={T}, d={d}: too large to be drawn again")

    @cached_property
    def _whole(self) -> ProblemBatch:
        return self.replay.draw(self.config.trials, self.config.seed)

    def drawn(self, seeds: Sequence[int]) -> ProblemBatch:
        """Return instances as they are drawn."""
        first = self.config.seed
        if isinstance(self.replay.objects.data, Seeded | Pretrained):
            first = seeds[0]
            batch = self.replay.draw(seeds[-1] - first + 1, first)
        else:
            batch = self._whole
        return batch.take(torch.tensor([seed - first for seed in seeds]))

    def batch(self, stored: StoredRows, layered: bool, variant: int, report: bool) -> ProblemBatch:
        """Return instances with the stored tokens where there are any, and `report` what differs.

        Labels and head are those that are drawn, or, if that is not known, those of the variant.
        """
        seeds = stored.seeds
        if self.known:
            batch = self.drawn(seeds)
            whole = layered or not stored.arrays
            return batch if whole else self._with_tokens(batch, stored, report)
        at = [stored.place[(seed,)] for seed in seeds]
        X, Z, mask = (torch.from_numpy(stored.arrays[name][at]) for name in TOKENS)
        head = self.replay.objects.head
        drawn = [head.draw(Generator().manual_seed(seed + variant), X.shape[-1]) for seed in seeds]
        factor = VARIANTS[variant] if variant < len(VARIANTS) else 1.0
        parameters = {n: factor * torch.stack([one[n] for one in drawn]) for n in drawn[0]}
        Y = torch.ones_like(Z[..., 0])
        Y[:, 0] = 1.0 if variant else -1.0
        return ProblemBatch(X, Z, Y, mask, head, parameters, torch.tensor(seeds))

    def _with_tokens(self, batch: ProblemBatch, stored: StoredRows, report: bool) -> ProblemBatch:
        keys = [(seed,) for seed in stored.seeds]
        given: dict[str, Any] = {
            name: stored.filled(name, keys, getattr(batch, name)) for name in TOKENS
        }
        pretrained = isinstance(self.config.data, data.PretrainedConfig)
        decomposed = (data.OrthonormalConfig, data.SphereInSpanConfig, data.PlantedConfig,
                      data.VocabularyConfig)  # fmt: skip
        # other machines may draw other last bits
        differ = self.elsewhere or pretrained or isinstance(self.config.data, decomposed)
        allowed = ("exact", "turned", "close")[: 3 if differ else 2]
        turned, self.inexact = False, False
        for k, seed in enumerate(stored.seeds):
            how = {
                name: _agreement(one[k].numpy(), getattr(batch, name)[k].numpy(), pretrained)
                for name, one in given.items()
            }
            turned |= "turned" in how.values()
            if report:
                wrong = [name for name, one in how.items() if one not in allowed]
                self.refusals += [(name, seed, "is not what the seed draws") for name in wrong]
                self.close += "close" in (how["X"], how["Z"])
            self.inexact |= how["X"] != "exact" or how["Z"] != "exact"
        found = _turned(batch, given["X"], given["Z"]) if turned else batch
        return dataclasses.replace(found, **given)


def _agreement(stored: Array, drawn: Array, pretrained: bool) -> str:
    """Return `exact`, `turned` (rows in another basis), `close` (to ELSEWHERE) or `different`."""
    if np.array_equal(stored, drawn):
        return "exact"
    if stored.dtype.kind != "f":
        return "different"
    if pretrained:
        pair = [rows.reshape(-1, rows.shape[-1]) for rows in (stored, drawn)]
        gram, must = (rows @ rows.T for rows in pair)
        if np.abs(gram - must).max() <= SAME * np.abs(must).max():
            return "turned"
    return "close" if np.abs(stored - drawn).max() <= ELSEWHERE else "different"


def _turned(batch: ProblemBatch, X: Tensor, Z: Tensor) -> ProblemBatch:
    """Return weights and head of `batch` in the bases of the stored tokens and queries."""
    E, F = (
        torch.linalg.pinv(own.flatten(1, -2)) @ stored.flatten(1, -2)
        for own, stored in ((batch.X, X), (batch.Z, Z))
    )
    weights = None if batch.weights is None else E.mT[:, None] @ batch.weights @ F[:, None]
    head = {name: p @ E for name, p in batch.head_parameters.items()}
    return dataclasses.replace(batch, weights=weights, head_parameters=head)
