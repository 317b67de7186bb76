"""A run from its config to its record; the only file that knows all stages."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.build import build
from attnsvm.comparison import (
    assumption_b1,
    convergence_types,
    svmeq,
    svmeq_least_squares,
)
from attnsvm.config import GROUPS, ConfigError, RunConfig, SvmConfig
from attnsvm.data import Seeded
from attnsvm.draft import Draft
from attnsvm.problem import ProblemBatch
from attnsvm.record import RunRecord
from attnsvm.selection import TokenSelection, optimal_tokens, select_tokens
from attnsvm.svm import Norm, SvmSolution, SvmStatus, single_token, solve_gen_svm, solve_svm
from attnsvm.svm.reference import published_rank, solve_reference
from attnsvm.training import Trajectory, chunk_size, train
from attnsvm.trajectory import STALLED, TrainingStatus

MAX_DRAWS_PER_TRIAL = 200
"""With selection.until_accepted: give up after this many instances for each that is wanted."""

TIED_SCORES = "two tokens share the best score: which one is optimal is not decided"

STALLED_REASON = (
    "the last steps are rounding noise, or the path's last point is no minimiser "
    f"(relative error of the direction >= {STALLED:g})"
)

CORRELATION_COLUMN = {"frobenius": "one_minus_corr_w_mm", "nuclear": "one_minus_corr_w_star_mm"}


def run(config: RunConfig) -> RunRecord:
    """Draw, train, read, separate and compare the instances that `config` asks for.

    Parameters
    ----------
    config : RunConfig
        A checked config.

    Returns
    -------
    RunRecord
        A row for every instance that was drawn, whatever became of it.

    Raises
    ------
    ConfigError
        If the data or the device do not allow what the config asks for.
    """
    return _joined(list(parts(config)))


def parts(config: RunConfig, size: int | None = None) -> Iterator[RunRecord]:
    """Yield the record of `run` part by part, in the order of the seeds, in bounded memory.

    Parameters
    ----------
    config : RunConfig
        A checked config.
    size : int, optional
        Most instances of a part, whose numbers do not depend on it; by default those of
        `chunk_size`.
    """
    stages = _Stages(config, _device(config.device))
    if config.selection.until_accepted:
        yield from _until_accepted(stages, size)
    else:
        for batch in stages.batches(size):
            yield stages.record(batch)


def check(config: RunConfig) -> None:
    """Raise ConfigError for what the schema cannot see, without doing the run.

    Every class that the config names is made, and the optimizer meets the head; of seeded data one
    instance is drawn, so that the model, the head and the parameterization meet its shape. Files
    and devices are left to the run: a driver need not have what its jobs have.
    """
    parts = {group: build(getattr(config, group), group, config.extensions) for group in GROUPS}
    parts["optimizer"].check_head(parts["head"])
    if isinstance(parts["data"], Seeded):
        one = parts["data"].sample(parts["head"], parts["model"], 1, config.seed)
        parts["parameterization"].shapes(one.d)


def _device(name: str) -> torch.device:
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError("device=cuda: no CUDA device is available here; allowed is auto | cpu")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and available) else "cpu")


def _until_accepted(stages: _Stages, size: int | None) -> Iterator[RunRecord]:
    """Yield the records of the seeds up to the one that completes `trials` accepted instances."""
    config = stages.config
    size = size or stages.chunk_size(stages.draw(1, config.seed))
    drawn = accepted = 0
    while accepted < config.trials and drawn < MAX_DRAWS_PER_TRIAL * config.trials:
        rate = accepted / drawn if drawn else 1.0
        missing = config.trials - accepted
        trials = min(math.ceil(1.1 * missing / max(rate, 0.1)), 4 * config.trials, size)
        part = stages.record(stages.draw(trials, config.seed + drawn))
        yield _first_accepted(part, missing)
        drawn += len(part.trials)
        accepted += int((part.trials["status"] == "ok").sum())


def _joined(parts: list[RunRecord]) -> RunRecord:
    names = dict.fromkeys(name for part in parts for name in part.solutions)
    timings: Counter[str] = Counter()
    for part in parts:
        timings.update(part.timings)
    return RunRecord(
        trials=pd.concat([part.trials for part in parts], ignore_index=True),
        history=pd.concat([part.history for part in parts], ignore_index=True),
        solutions={
            name: np.concatenate([p.solutions[name] for p in parts if name in p.solutions])
            for name in names
        },
        timings=timings,
    )


def _first_accepted(record: RunRecord, wanted: int) -> RunRecord:
    """Return the record cut after the `wanted`-th accepted instance, if there are so many."""
    accepted = (record.trials["status"] == "ok").to_numpy().cumsum()
    size = min(int(np.searchsorted(accepted, wanted)) + 1, len(record.trials))
    seeds = record.trials["seed"].iloc[:size]
    kept = np.isin(record.solutions.get("seeds", []), seeds)
    return RunRecord(
        trials=record.trials.iloc[:size].reset_index(drop=True),
        history=record.history[record.history["seed"].isin(seeds)].reset_index(drop=True),
        solutions={name: array[kept] for name, array in record.solutions.items()},
        timings=record.timings,
    )


def norms_of(svm: SvmConfig) -> list[Norm]:
    """Return the norms to minimise."""
    return [cast(Norm, norm) for norm in svm.norms]


class _Stages:
    """The stages of a run on one batch of instances."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.timings: dict[str, float] = {}

    def batches(self, size: int | None) -> Iterator[ProblemBatch]:
        """Yield the instances that the config asks for, at most `size` at a time."""
        seeded = isinstance(self._build("data"), Seeded)
        first, trials = self.config.seed, self.config.trials
        whole = self.draw(1 if seeded else trials, first)
        total = trials if seeded else whole.B
        count = math.ceil(total / (size or self.chunk_size(whole)))
        for part in np.array_split(np.arange(total), count):
            start, stop = int(part[0]), int(part[-1]) + 1
            yield (
                self.draw(stop - start, first + start) if seeded else whole.take(slice(start, stop))
            )

    def chunk_size(self, batch: ProblemBatch) -> int:
        """Return how many instances like those of `batch` are worked on at once."""
        trained = self.config.selection.tokens != "optimal"
        return chunk_size(batch, len(self._build("optimizer").grid()) if trained else 0)

    def draw(self, trials: int, seed: int) -> ProblemBatch:
        """Return the instances seed, ..., seed + trials - 1."""
        with self._timed("draw"):
            data, head, model = self._build("data"), self._build("head"), self._build("model")
            batch: ProblemBatch = data.sample(head, model, trials, seed)
            return batch.to(self.device)

    def record(self, batch: ProblemBatch) -> RunRecord:
        """Return the record of the instances of `batch`, with the timings since the last one."""
        draft = Draft(batch)
        READINGS[self.config.selection.tokens](self, draft)
        with self._timed("tabulate"):
            tables = draft.table(), draft.history(), draft.solutions()
        timings, self.timings = self.timings, {}
        return RunRecord(*tables, timings)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - begin

    def _build(self, group: str) -> Any:
        return build(getattr(self.config, group), group, self.config.extensions)

    # --- readings: which tokens the SVM separates -------------------------------------------------

    def optimal(self, draft: Draft) -> None:
        """Separate the optimal tokens; nothing is trained."""
        selected, tie = optimal_tokens(draft.batch)
        draft.columns["tie"] = tie
        draft.mark(tie & _tie_matters(draft.batch), "tie", TIED_SCORES)
        self._separate(draft, selected)
        draft.mark(tie, "tie", TIED_SCORES)

    def top(self, draft: Draft) -> None:
        """Train, and separate the token that each sample attends to most."""
        path, selection = self._train(draft)
        reading = self.config.selection
        draft.mark(selection.tied_scores, "tie", TIED_SCORES)
        draft.mark(
            ~selection.saturated,
            "unsaturated",
            f"smallest top softmax is below {reading.saturation:g}",
        )
        solutions = self._separate(draft, selection.selected)
        with self._timed("compare"):
            if "frobenius" in solutions:
                types = convergence_types(draft.batch, selection, solutions["frobenius"])
                draft.columns["convergence"] = [
                    "" if status in ("tie", "diverged") else kind
                    for kind, (status, _) in zip(types, draft.verdicts, strict=True)
                ]
            for norm, solution in solutions.items():
                draft.compare(CORRELATION_COLUMN[norm], path.steps, path.snapshots, solution.W)

    def multi(self, draft: Draft) -> None:
        """Train, and separate all attended tokens from the others (Gen-SVM).

        Instances that are rejected keep their row; no SVM is solved and no curve kept of them.
        """
        path, selection = self._train(draft)
        self._reject(draft, path, selection)
        index = draft.accepted()
        if len(index) == 0:
            draft.record_none()
            return
        part = draft.part(index)
        attended, log_softmax = selection.attended[index], path.log_softmax[index]
        self._separate_attended(part, selection.selected[index], attended, log_softmax)
        with self._timed("compare"):
            snapshots = path.snapshots[index]
            part.compare("one_minus_corr_1token", path.steps, snapshots, part.arrays["one_token_W"])
            for norm in norms_of(self.config.svm):
                mm = part.arrays[f"{norm}_W"]
                part.compare(CORRELATION_COLUMN[norm], path.steps, snapshots, mm)
            if "frobenius" in self.config.svm.norms:
                parts = part.arrays["frobenius_fin_W"][:, None], part.arrays["frobenius_W"][:, None]
                best, published = svmeq(snapshots, *parts), svmeq_least_squares(snapshots, *parts)
                part.compare("one_minus_corr_svmeq", path.steps, snapshots, best)
                part.compare("one_minus_corr_svmeq_lsq", path.steps, snapshots, published)
        draft.absorb(part, index)

    def _separate_attended(
        self, draft: Draft, selected: Tensor, attended: Tensor, log_softmax: Tensor
    ) -> None:
        """Solve Gen-SVM at the attended tokens and Att-SVM at the most attended one."""
        batch, svm = draft.batch, self.config.svm
        tolerances: dict[str, Any] = {"gap": svm.gap, "rank_tolerance": svm.rank_tolerance}
        with self._timed("svm"):
            one = solve_svm(batch.X, batch.Z, selected, mask=batch.mask, **tolerances)
            pairs = {
                norm: solve_gen_svm(
                    batch.X, batch.Z, attended, log_softmax, norm, batch.mask, **tolerances
                )
                for norm in norms_of(svm)
            }
        draft.arrays |= {"attended": attended, "log_softmax": log_softmax}
        for norm, (fin, mm) in pairs.items():
            draft.judge(f"{norm} W_fin", fin)
            draft.judge(f"{norm} W_mm", mm)
            draft.tabulate(norm, mm)
            draft.store(norm, mm)
            draft.store(f"{norm}_fin", fin)
        draft.judge("one-token SVM", one)
        draft.store("one_token", one)

    # --- stages -----------------------------------------------------------------------------------

    def _train(self, draft: Draft) -> tuple[Trajectory, TokenSelection]:
        reading = self.config.selection
        with self._timed("train"):
            path = train(
                draft.batch,
                self._build("parameterization"),
                self._build("optimizer"),
                self._build("loss"),
                progress=sys.stderr.isatty(),
            )
        selection = select_tokens(
            draft.batch,
            path,
            saturation=reading.saturation,
            attended=reading.attended,
            negligible=reading.negligible,
        )
        ends = path.status(reading.saturation)
        draft.columns |= {
            "training": [end.value for end in ends],
            "tie": selection.tie,
            "saturated": selection.saturated,
            "min_top_softmax": selection.top_softmax.amin(-1),
            "max_masked_softmax": selection.max_masked,
            "attended_tokens": selection.attended.sum(-1).double().mean(-1),
            "flat": _flat(draft.batch, path),
            "risk": path.loss[:, -1],
            "W_norm": path.W.norm(dim=(-2, -1)),
        }
        draft.curves |= {
            "risk": (path.steps, path.loss),
            "max_softmax": (path.steps, path.softmax.amax(-1).mean(-1)),
            "W_norm": (path.steps, path.snapshots.norm(dim=(-2, -1))),
        }
        draft.arrays |= {"trained_W": path.W, "selected": selection.selected}
        if self.config.keep_path:
            draft.arrays |= {
                "snapshots": path.snapshots,
                "softmax": path.softmax,
                "steps": path.steps.expand(draft.batch.B, -1),
                "scores": draft.batch.scores(),
            }
        if draft.batch.head.train:
            draft.batch = dataclasses.replace(draft.batch, head_parameters=path.head_parameters)
        draft.mark(path.diverged, "diverged", "a weight is not finite")
        draft.mark(selection.tied_softmax, "tie", "two tokens share the largest softmax")
        if not reading.keep_stalled:
            stalled = [end is TrainingStatus.STALLED for end in ends]
            draft.mark(stalled, "stalled", STALLED_REASON)
        return path, selection

    def _reject(self, draft: Draft, path: Trajectory, selection: TokenSelection) -> None:
        """Set aside the instances on which the multi-token theory says nothing, with the reason."""
        reading = self.config.selection
        negligible = path.log_softmax <= math.log(reading.negligible)
        masked_out = (negligible & draft.batch.mask).flatten(1).any(-1)
        if reading.reject_all_positive:
            draft.mark((draft.batch.Y > 0).all(-1), "rejected", "all labels are +1")
        draft.mark(
            selection.ambiguous,
            "rejected",
            f"a softmax lies in ({reading.negligible:g}, {reading.attended:g})",
        )
        draft.mark(~masked_out, "rejected", f"no softmax is <= {reading.negligible:g}")
        draft.mark(
            ~selection.attended.any(-1).all(-1),
            "rejected",
            f"a sample attends to no token, all its softmax are < {reading.attended:g}",
        )

    def _separate(self, draft: Draft, selected: Tensor) -> dict[Norm, SvmSolution]:
        """Solve Att-SVM at the selected tokens in every norm, judged and tabulated."""
        batch, svm = draft.batch, self.config.svm
        with self._timed("svm"):
            solutions = {
                norm: solve_svm(
                    batch.X,
                    batch.Z,
                    selected,
                    norm,
                    batch.mask,
                    gap=svm.gap,
                    rank_tolerance=svm.rank_tolerance,
                )
                for norm in norms_of(svm)
            }
            draft.columns["assumption_b1"] = assumption_b1(
                single_token(batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask)
            )
        draft.arrays["selected"] = selected
        for norm, solution in solutions.items():
            draft.judge(f"{norm} SVM", solution)
            nothing = [status is SvmStatus.unconstrained for status in solution.status]
            draft.mark(nothing, "unconstrained", SvmStatus.unconstrained.message)
            draft.tabulate(norm, solution)
            draft.store(norm, solution)
        if self.config.svm.published:
            with self._timed("published"):
                self._solve_as_published(draft, selected)
        return solutions

    def _solve_as_published(self, draft: Draft, selected: Tensor) -> None:
        problem = single_token(draft.batch.X, draft.batch.Z, selected, draft.batch.mask)
        for norm in norms_of(self.config.svm):
            found = solve_reference(problem, norm)  # default solver, default tolerances
            draft.columns[f"published_{norm}_status"] = [one.cvxpy_status for one in found]
            draft.columns[f"published_{norm}_rank"] = [published_rank(one.W) for one in found]


def _tie_matters(batch: ProblemBatch) -> Tensor:
    """Return whether tokens of a sample that share the best score differ, (B,).

    Equal tokens cannot be separated whichever of them is selected; different ones can lead to
    different verdicts.
    """
    gamma = batch.scores()
    tied = (gamma == gamma.amax(-1, keepdim=True)).unsqueeze(-1)
    highest = batch.X.masked_fill(~tied, -torch.inf).amax(2)
    lowest = batch.X.masked_fill(~tied, torch.inf).amin(2)
    return (highest > lowest).flatten(1).any(-1)


def _flat(batch: ProblemBatch, path: Trajectory) -> Tensor:
    """Return whether the head's gradient is exactly zero at some sample's final output, (B,)."""
    outputs = (path.softmax[:, -1, :, None] @ batch.X)[:, :, 0]
    return (batch.head.gradient(outputs, path.head_parameters) == 0).all(-1).any(-1)


READINGS: dict[str, Callable[[_Stages, Draft], None]] = {
    "optimal": _Stages.optimal,
    "top": _Stages.top,
    "multi": _Stages.multi,
}
