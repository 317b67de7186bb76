"""A recorded run once more: stored weights in place of training, stored SVMs in place of solving.

The only file of the proof that uses the stages of `attnsvm.experiment`. What is not stored, such as
the weights between the first and the last step, takes three values, one in each variant: a number
that is the same in all of them does not depend on it, and is compared; others are trusted.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from attnsvm.attention import Risk, attend
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.optimizer import CONES
from attnsvm.experiment import RunObjects, Selected, Stages, Trained
from attnsvm.loss import LinearLoss, Logistic, Squared
from attnsvm.model import Transformer
from attnsvm.norm import norm_of
from attnsvm.parameterization import W as Combined
from attnsvm.problem import ProblemBatch
from attnsvm.record import CorruptRecordError, RunRecord
from attnsvm.svm import (
    SvmSolution,
    SvmStatus,
    attained,
    finite_part,
    multi_token,
    single_token,
)
from attnsvm.svm.certificate import lower_bound
from attnsvm.svm.solution import Certificate
from attnsvm.training import Trajectory
from attnsvm.training.start import initial
from attnsvm.transformer import LayerTrajectory, train_layers
from attnsvm.transformer.trained import TrainedNetwork
from attnsvm.verify.exact import EPS
from attnsvm.verify.stored import Key, StoredRows
from attnsvm.verify.trusted import Unknown

VARIANTS = (1.0, -1.0, 0.0)
"""Factor of the last weights in the place of those that are not stored."""

LOSSES = (Logistic(), Squared(0.5), LinearLoss())
BIASES = ("frobenius", "nuclear", None)
"""Loss, and norm of the limit, of a plug-in that is not run, in each variant."""

ROUNDING = 8 * EPS
"""Relative size of the perturbations of weights that show what rounding decides."""


class Replay(Stages):
    """The stages of a run, on what is stored of its weights and SVMs.

    Parameters
    ----------
    config : RunConfig
        With an option of ours in the place of plug-ins.
    unknown : Unknown
        What is not known.
    """

    def __init__(self, config: RunConfig, unknown: Unknown) -> None:
        super().__init__(config, RunObjects.of(config), torch.device("cpu"))
        self.unknown = unknown
        self.steps: list[float] = []
        """The recorded steps."""
        self.stored = StoredRows((), ("seed",), {})
        self.variant, self.recorded = 0, True
        self.noise: Generator | None = None
        self.entered: set[str] = set()
        """Columns that hang on trained weights."""

    def again(
        self,
        batch: ProblemBatch,
        stored: StoredRows,
        variant: int = 0,
        noise: int | None = None,
        drawn_to: float = 0.0,
    ) -> RunRecord:
        """Return the record of the instances of `batch`.

        Parameters
        ----------
        batch : ProblemBatch
            Stored tokens with drawn labels and head.
        stored : StoredRows
            Their rows and arrays; without arrays the columns `entered` say nothing.
        variant : int
            What takes the place of what is not known.
        noise : int, optional
            Seed of a perturbation of weights in their last bits, and of the draw by `drawn_to`.
        drawn_to : float
            Relative error of what is drawn.
        """
        self.stored, self.variant, self.recorded = stored, variant, bool(stored.arrays)
        if "loss" in self.unknown.groups:
            self.objects = dataclasses.replace(self.objects, loss=LOSSES[variant])
        self.noise = None if noise is None else Generator().manual_seed(noise)
        if self.noise is not None and drawn_to:
            head = {n: self._noisy(p, drawn_to) for n, p in batch.head_parameters.items()}
            batch = dataclasses.replace(batch, head_parameters=head)
            if isinstance(self.objects.model, Transformer):
                batch = dataclasses.replace(batch, X=self._noisy(batch.X, drawn_to))
        with torch.no_grad():
            return self.record(batch)

    def _noisy(self, V: Tensor, size: float = ROUNDING) -> Tensor:
        """Return V, perturbed relative to its largest entries if there is noise."""
        if self.noise is None:
            return V
        largest = V.flatten(1).abs().amax(1).view(-1, *[1] * (V.ndim - 1))
        draws = torch.randn(V.shape, generator=self.noise, dtype=V.dtype)
        return V + size * largest * draws

    def implicit_bias(self) -> str | None:
        """Return the norm of the limit; that of the variant for a plug-in."""
        if self.unknown.groups & {"optimizer", "parameterization"}:
            return BIASES[self.variant]
        return super().implicit_bias()

    # --- training ---------------------------------------------------------------------------------

    def select(self, trained: Trained, exclusions: Any) -> Selected:
        """Return the selected tokens; note the columns that hang on trained weights."""
        found = super().select(trained, exclusions)
        self.entered = set(found.findings.columns)
        return found

    def train(self, batch: ProblemBatch) -> Trained:
        """Return the stored weights in the place of training."""
        if isinstance(self.objects.model, Transformer):
            return self._layers(batch)
        return Trained(batch, self._one_layer(batch))

    def _one_layer(self, batch: ProblemBatch) -> Trajectory:
        B, d = batch.B, batch.d
        rule, loss = self.objects.parameterization, self.objects.loss
        start = self._start(Risk(batch, rule, loss))
        at = [self.stored.place[(seed,)] for seed in batch.seeds.tolist()] if self.recorded else []
        if not self.recorded:
            W = torch.zeros(B, d, d, dtype=torch.float64)
        else:
            W = self.stored.tensor("trained_W", at, (d, d))
        given = None
        if self.recorded and self.config.keep_path:
            given = self.stored.tensor("snapshots", at, (len(self.steps), d, d)).clone()
        first = None if start is None else rule.combine(start)
        snapshots = self._noisy_each(self._path(W, first, given))
        heads = self._heads(batch, at)
        query = Combined().query
        views = [
            attend(batch, query((V,), batch.Z), head)
            for V, head in zip(snapshots.unbind(1), heads, strict=True)
        ]
        paths = self._factor_paths(start, at, d)
        none = torch.zeros(B, dtype=torch.bool)
        keys = [(seed,) for seed in batch.seeds.tolist()]
        lost = none if self.recorded else ~none
        if batch.head.train:
            lost = lost | self._stated(keys, "diverged")
        return Trajectory(
            steps=self._grid(),
            snapshots=snapshots,
            loss=torch.stack([loss.value(view.margins).mean(-1) for view in views], 1),
            softmax=torch.stack([view.softmax for view in views], 1),
            log_softmax=views[-1].log_softmax,
            W=snapshots[:, -1].clone(),
            K=paths[0][:, -1] if paths else None,
            Q=paths[1][:, -1] if paths else None,
            diverged=lost | ~snapshots[:, -1].flatten(1).isfinite().all(1),
            head_parameters=heads[-1],
            direction_error=torch.where(self._stated(keys, "stalled"), torch.inf, 0.0).double(),
            finite_optimum=self._stated(keys, "finite_optimum"),
            K_snapshots=paths[0] if paths else None,
            Q_snapshots=paths[1] if paths else None,
        )

    def _grid(self) -> Tensor:
        whole = all(isinstance(step, int) for step in self.steps)
        return torch.tensor(self.steps, dtype=torch.int64 if whole else torch.float64)

    def _stated(self, keys: Sequence[Key], training: str) -> Tensor:
        """Return which rows say that training ended like this: it is trusted."""
        words = [self.stored.row_at.get(key, {}).get("training") for key in keys]
        return torch.tensor([word == training for word in words])

    def _path(self, last: Tensor, first: Tensor | None, given: Tensor | None = None) -> Tensor:
        """Return weights at every step, (B, S, ...): the given ones, or those of the variant."""
        S = len(self.steps)
        if given is None:
            given = torch.stack([VARIANTS[self.variant] * last] * S, 1)
        given[:, -1] = last
        if first is not None:
            given[:, 0] = first
        return given

    def _noisy_each(self, path: Tensor) -> Tensor:
        """Return a path (B, S, ...) whose weights have noise, each relative to its own size."""
        return self._noisy(path.flatten(0, 1)).view(path.shape)

    def _start(self, risk: Risk) -> tuple[Tensor, ...] | None:
        """Return the initial variables; None if they are not known."""
        optimizer = self.objects.optimizer
        of_labels = optimizer.init in ("aligned", "pretrained", *CONES)
        unknown = self.unknown.start or self.unknown.groups & {"optimizer", "parameterization"}
        scores_unknown = self.unknown.labels or "loss" in self.unknown.groups
        if unknown or (of_labels and scores_unknown):
            return None
        try:
            return initial(risk, optimizer)
        except ConfigError:
            return None

    def _heads(self, batch: ProblemBatch, at: Sequence[int]) -> list[dict[str, Tensor]]:
        """Return the parameters of the head at every step."""
        drawn = dict(batch.head_parameters)
        S = len(self.steps)
        if not batch.head.train:
            return [drawn] * S
        between = {name: VARIANTS[self.variant] * p for name, p in drawn.items()}
        last = between
        if set(drawn) == {"v"} and self.recorded:
            last = {"v": self.stored.tensor("trained_v", at, drawn["v"].shape[1:])}
        return [drawn, *[between] * (S - 2), last] if S > 1 else [last]

    def _factor_paths(
        self, start: tuple[Tensor, ...] | None, at: Sequence[int], d: int
    ) -> list[Tensor]:
        """Return K and Q at every step, if a probe needs them."""
        rule = self.objects.parameterization
        if not (self.objects.factors and len(rule.NAMES) == 2 and self.recorded):
            return []
        firsts = start or (None, None)
        names = zip(("trained_K", "trained_Q"), rule.shapes(d), firsts, strict=True)
        return [
            self._noisy_each(self._path(self.stored.tensor(name, at, shape), first))
            for name, shape, first in names
        ]

    def _layers(self, batch: ProblemBatch) -> Trained:
        """Return the stored weights of each layer and head as problems of one layer."""
        made = self.objects
        model: Any = made.model
        rule, loss = made.parameterization, made.loss
        optimizer: Any = copy.copy(self.objects.optimizer)
        optimizer.steps = 0  # only the initial weights
        first = train_layers(batch, model, rule, optimizer, loss).snapshots[:, 0]
        net = TrainedNetwork(model, batch, loss, rule)
        drawn, W, end = net.drawn, first, net.drawn
        if self.recorded:
            at = [self.stored.place[(seed,)] for seed in batch.seeds.tolist()]
            parts = drawn.others(model)
            end = drawn.replaced({
                name: self._noisy(self.stored.tensor(f"network_{name}", at, part.shape[1:]))
                for name, part in parts.items()
            })  # fmt: skip
            W = self.stored.tensor("network_W", at, first.shape[1:])
        path = self._path(W, first)
        flat = path.reshape(len(path), -1, *path.shape[-2:])
        path = self._noisy_each(flat).view(path.shape)
        factor, parts = VARIANTS[self.variant], end.others(model)
        between = end.replaced({name: factor * part for name, part in parts.items()})
        others = [drawn, *[between] * (len(self.steps) - 2), end][-len(self.steps) :]
        pairs = zip(path.unbind(1), others, strict=True)
        views = [net.recorded(at.replaced({"W": V})) for V, at in pairs]
        risks, logs = ([getattr(view, name) for view in views] for name in ("risk", "log_softmax"))
        networks = LayerTrajectory(
            model, loss, self._grid(), path, torch.stack(risks, 1), torch.stack(logs, 1),
            end.replaced({"W": path[:, -1].clone()}), None, None,
            torch.zeros(path.shape[0], *path.shape[2:4], dtype=torch.float64),
        )  # fmt: skip
        divided = self.divided(batch, networks)
        keys = _keys(divided.batch, divided.key)
        stalled = torch.where(self._stated(keys, "stalled"), torch.inf, 0.0).double()
        diverged = divided.path.diverged | (not self.recorded)
        ended = dataclasses.replace(divided.path, direction_error=stalled, diverged=diverged)
        return dataclasses.replace(divided, path=ended)

    # --- SVMs -------------------------------------------------------------------------------------

    def solve(
        self,
        batch: ProblemBatch,
        key: Mapping[str, Tensor],
        name: str,
        compute: Callable[[], Any],
    ) -> Any:
        """Return the stored solutions."""
        keys = _keys(batch, key)
        missing = [key for key in keys if key not in self.stored.place]
        if missing:
            raise CorruptRecordError(f"solutions.npz: no arrays of {missing[0]}, which has an SVM")
        at = [self.stored.place[key] for key in keys]
        arrays = self.stored.arrays
        X, Z, mask = (torch.from_numpy(arrays[one][at]) for one in ("X", "Z", "mask"))
        if "attended" not in arrays:
            selected = torch.from_numpy(arrays["selected"][at])
            return self._solution(name, name, at, keys, single_token(X, Z, selected, mask))
        selected, attended_, log_s = (
            torch.from_numpy(arrays[one][at]) for one in ("selected", "attended", "log_softmax")
        )
        if name == "one_token":
            problem = single_token(X, Z, selected, mask)
            return self._solution(name, "frobenius", at, keys, problem)
        norm, _, part = name.rpartition("_")
        if part == "fin":
            fin, mm = finite_part(X, Z, attended_, log_s, mask), multi_token(X, Z, attended_, mask)
            given = norm, at, keys
            return self._solution(name, *given, fin), self._solution(norm, *given, mm)
        problem, _ = attained(X, Z, selected, attended_, log_s, mask)
        a = self.stored.tensor(f"{norm}_attained_multipliers", at, (problem.N,))
        known = ~a.isnan().any(1)
        return SimpleNamespace(
            statuses=[SvmStatus.solved if one else SvmStatus.undecided for one in known.tolist()],
            lower_bound=lower_bound(problem, a.nan_to_num(0.0), norm)[1],
            certificate=SimpleNamespace(multipliers=a),
        )

    def _solution(
        self, name: str, norm: str, at: list[int], keys: list[Key], problem: Any
    ) -> SvmSolution[Tensor]:
        """Return the stored solutions of the SVM `name`; `attnsvm.verify.svm` proves them."""
        arrays = self.stored.arrays
        numbers = {
            one: self.stored.tensor(f"{name}_{one}", at, ())
            for one in ("objective", "lower_bound", "duality_gap", "min_margin")
        }
        W = self.stored.tensor(f"{name}_W", at, (problem.d, problem.d))
        multipliers, ray = (
            self.stored.tensor(f"{name}_{one}", at, (problem.N,)) for one in ("multipliers", "ray")
        )
        rows = [self.stored.row_at.get(key, {}) for key in keys]
        bounds = [row.get(f"{name}_rank_bound") for row in rows]
        supports = [self.stored.supports[k, name][self.variant % 2] for k in at]
        unknown = torch.full_like(numbers["objective"], torch.nan)
        return SvmSolution(
            W=W,
            status=tuple(SvmStatus(str(status)) for status in arrays[f"{name}_status"][at]),
            **numbers,
            rank=torch.from_numpy(arrays[f"{name}_rank"][at]),
            rank_bound=torch.tensor([-1 if bound is None else bound for bound in bounds]),
            sigma=torch.linalg.svdvals(W.nan_to_num(0.0)),
            support=torch.from_numpy(np.stack(supports)),
            kappa=torch.tensor(
                [row.get(f"{name}_kappa", torch.nan) for row in rows], dtype=torch.float64
            ),
            certificate=Certificate(
                multipliers, numbers["objective"], numbers["lower_bound"], numbers["duality_gap"],
                unknown, unknown, ray, unknown,
            ),
            solve_time_s=0.0,
            minimised=norm_of(norm),
            problem=problem,
        )  # fmt: skip


def _keys(batch: ProblemBatch, key: Mapping[str, Tensor]) -> list[Key]:
    """Return what tells the rows of a batch apart: seed, of a network layer and head too."""
    columns = [batch.seeds, *key.values()]
    return [tuple(map(int, one)) for one in zip(*(c.tolist() for c in columns), strict=True)]
