"""What the stages of a run pass on, which instances are excluded, and the tables of a record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.config import RunConfig
from attnsvm.config.optimizer import CONES
from attnsvm.config.words import rows
from attnsvm.data.problem import ProblemBatch
from attnsvm.loss import Loss
from attnsvm.optimizer.base import broadcast
from attnsvm.record.columns import Column
from attnsvm.record.schema import trial_table
from attnsvm.selection import TokenSelection, tied_optimal
from attnsvm.training import STALLED, TrainingStatus
from attnsvm.transformer import LayerProblems

Status = tuple[str, str]
"""Status of an instance and its reason; `OK` until a stage excludes it."""

OK: Status = ("ok", "")

Exclusion = tuple[Tensor, str, str]
"""Which instances (B,) are excluded, with their status and the reason."""

EXCLUSIONS = [*rows(Path(__file__).with_name("exclusions.csv"))]
"""Why training or the selection of tokens excludes an instance, and with which selections."""

NEGATIVE = -1e-9
"""Scores below it are negative, and not zero up to rounding."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What is recorded of B instances, by name.

    Columns of `trials.parquet`, (B,); quantities of `history.parquet` at every snapshot, (B, S);
    arrays of `solutions.npz`, (B, ...).
    """

    columns: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Tensor] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def quantity(self, name: str, values: Tensor) -> None:
        """Add values (B, S) of a quantity over the steps; the column is its last value."""
        self.columns[name], self.curves[name] = values[:, -1], values

    def take(self, index: Any) -> Findings:
        """Return the curves and arrays, without columns, of the instances at `index`."""
        curves, arrays = (
            {name: values[index] for name, values in part.items()}
            for part in (self.curves, self.arrays)
        )
        return Findings({}, curves, arrays)


@dataclass(frozen=True, eq=False)
class Trained:
    """Instances and their weights: one of each instance, or of each layer and head of a network.

    `drawn` are the B instances with the drawn parameters of the head, `path` the `Trajectory` of
    their weights, None if nothing is trained. `key` distinguishes rows of one seed, each (B,):
    layer and head of attention. `network` is what else is recorded of a network.
    """

    drawn: ProblemBatch
    path: Any = None
    key: Mapping[str, Tensor] = field(default_factory=dict)
    network: Findings = field(default_factory=Findings)

    @classmethod
    def of_layers(cls, problems: LayerProblems) -> Trained:
        """Return each layer and head of trained networks as a problem of one layer."""
        names = "positions_seen", "unseen_gradient", "unseen_softmax", "selected_since"
        columns = {name: getattr(problems, name) for name in names}
        arrays = {f"network_{name}": part for name, part in problems.network.items()}
        arrays |= {name: getattr(problems, name) for name in ("log_adjoint", "reached")}
        key = {"layer": problems.layer, "attention_head": problems.head}
        return cls(problems.batch, problems.path, key, Findings(columns, {}, arrays))

    @cached_property
    def batch(self) -> ProblemBatch:
        """The instances with the parameters of the head at the last step.

        As drawn where training diverged, or nothing is trained.
        """
        if self.path is None or not self.drawn.head.train:
            return self.drawn
        drawn, lost = self.drawn.head_parameters, self.path.diverged
        last = self.path.head_parameters.items()
        kept = {name: torch.where(broadcast(lost, p), drawn[name], p) for name, p in last}
        return dataclasses.replace(self.drawn, head_parameters=kept)

    def take(self, index: Any) -> Trained:
        """Return the instances at `index`, with the arrays of their network."""
        key = {name: values[index] for name, values in self.key.items()}
        network = self.network.take(index)
        return Trained(self.drawn.take(index), self.path.take(index), key, network)


# --- exclusions -----------------------------------------------------------------------------------


def marked(
    status: Sequence[Status], exclusions: Iterable[Exclusion], index: Any = slice(None)
) -> list[Status]:
    """Return status and reason of each instance: the first exclusion that applies decides.

    Exclusions are of the instances at `index`.
    """
    marks = list(status)
    places = torch.arange(len(marks))[index]
    for where, word, reason in exclusions:
        for k in places[where].tolist():
            if marks[k] == OK:
                marks[k] = word, reason
    return marks


def exclusions(config: RunConfig, where: Mapping[str, Tensor]) -> list[Exclusion]:
    """Return the exclusions called `where` of the selection of a run, in order of `EXCLUSIONS`."""
    chosen = config.selection
    numbers = vars(chosen) | {"stalled": STALLED}
    # reasons are recorded and compared: 1, not 1.0
    fields = {name: str(value).removesuffix(".0") for name, value in numbers.items()}
    return [
        (where[row["name"]], row["status"], row["reason"].format_map(fields))
        for row in EXCLUSIONS
        if chosen.tokens in row["selection"].split() and row["name"] in where
    ]


def exclusions_of_training(
    config: RunConfig, trained: Trained, selection: TokenSelection, loss: Loss
) -> list[Exclusion]:
    """Return the instances to which the theory of the selected tokens does not apply.

    Undefined are those that diverge with a loss of positive margins where scores are not. With
    selection=multi, instances whose labels are all +1 are left out as published.
    """
    chosen, path, batch = config.selection, trained.path, trained.drawn
    least = batch.scores().masked_fill(~batch.mask, 0.0).flatten(1).amin(1)
    ends = [end is TrainingStatus.STALLED for end in path.status(chosen.saturation)]
    negligible = (path.log_softmax <= math.log(chosen.negligible)) & batch.mask
    scc = chosen.tokens == "scc"
    where = {
        "startless": path.snapshots[:, 0].isnan().flatten(1).any(1)
        & (config.optimizer.init in CONES),
        "undefined": path.diverged & loss.POSITIVE & (least < NEGATIVE),
        "diverged": path.diverged,
        "tied_softmax": selection.tied_softmax,
        "stalled": torch.tensor(ends) & (not chosen.keep_stalled),
        "tied_scores": tied_optimal(batch) if scc else selection.tied_scores,
        "unsaturated": ~selection.saturated,
        "positive": (batch.Y > 0).all(-1) & chosen.reject_all_positive,
        "ambiguous": selection.ambiguous,
        "nothing_negligible": ~negligible.flatten(1).any(-1),
        "unattended": ~selection.attended.any(-1).all(-1),
    }
    return exclusions(config, where)


def training_findings(trained: Trained, selection: TokenSelection, config: RunConfig) -> Findings:
    """Return what is recorded of training, of the selected tokens and of how training ended."""
    batch, path = trained.drawn, trained.path
    network = trained.network
    findings = Findings({**network.columns}, {}, {**network.arrays})
    findings.columns.update(
        training=[end.value for end in path.status(config.selection.saturation)],
        tie=selection.tie,
        saturated=selection.saturated,
        min_top_softmax=selection.top_softmax.amin(-1),
        max_masked_softmax=selection.max_masked,
        attended_tokens=selection.attended.sum(-1).double().mean(-1),
    )
    if not trained.key:
        outputs = (path.softmax[:, -1, :, None] @ batch.X)[:, :, 0]
        slopes = batch.head.gradient(outputs, path.head_parameters)
        findings.columns["flat"] = (slopes == 0).all(-1).any(-1)
    findings.quantity("risk", path.loss)
    findings.quantity("W_norm", path.snapshots.norm(dim=(-2, -1)))
    findings.curves["max_softmax"] = path.softmax.amax(-1).mean(-1)
    findings.arrays.update(trained_W=path.W, selected=selection.selected)
    if config.keep_path:
        steps = path.steps.expand(batch.B, -1)
        findings.arrays.update(snapshots=path.snapshots, softmax=path.softmax, steps=steps)
        findings.arrays["scores"] = batch.scores()
    if path.K_snapshots is not None:
        findings.arrays.update(trained_K=path.K, trained_Q=path.Q)
    if batch.head.train and set(path.head_parameters) == {"v"}:
        findings.arrays.update(trained_v=path.head_parameters["v"], Y=batch.Y)
    return findings


# --- tables ---------------------------------------------------------------------------------------


def plain(values: Any) -> Any:
    """Return a column as NumPy or a list."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def tables(
    further: tuple[Column, ...],
    trained: Trained,
    status: Sequence[Status],
    findings: Findings,
    index: Any,
    later: Findings,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Return `trials.parquet`, `history.parquet` and `solutions.npz` of a batch.

    Curves and arrays are those of the instances at `index`. The findings `later` are of these
    alone: their columns hold the default elsewhere. `further` are the columns that not every record
    has.
    """
    batch, key = trained.batch, trained.key
    words, reasons = zip(*status, strict=True)
    columns = {"status": words, "reason": reasons, **findings.columns, **key}
    places = torch.arange(batch.B)[index].tolist()
    for name, values in later.columns.items():
        known = dict(zip(places, plain(values), strict=True))
        columns[name] = [known.get(k) for k in range(batch.B)]
    columns = {name: plain(values) for name, values in columns.items()}
    trials = trial_table(plain(batch.seeds), columns, further)
    named = {"X": batch.X, "Z": batch.Z, "mask": batch.mask, "seeds": batch.seeds, **key}
    first = Findings({}, findings.curves, named | findings.arrays).take(index)
    curves, arrays = (
        {name: plain(values) for name, values in part.items()}
        for part in (first.curves | later.curves, first.arrays | later.arrays)
    )
    rows = {"seed": arrays["seeds"], **{name: arrays[name] for name in key}}
    steps = plain(trained.path.steps) if curves else ()
    return trials, _history(rows, steps, curves), arrays if places else {}


def _history(rows: Mapping[str, Any], steps: Any, curves: Mapping[str, Any]) -> pd.DataFrame:
    """Return the curves in long format, by seed (layer, head), step and quantity."""
    key = {name: np.repeat(column, len(steps)) for name, column in rows.items()}
    key["step"] = np.tile(np.asarray(steps, dtype=float), len(rows["seed"]))
    wide = pd.DataFrame(key | {name: values.ravel() for name, values in curves.items()})
    table = wide.melt([*key], var_name="quantity", value_name="value")
    table = table.astype({"quantity": "str", "value": "float64"})
    return table.sort_values([*rows], kind="stable", ignore_index=True)
