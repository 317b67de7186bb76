"""A run from its config to its record; the only file that contains all stages."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.comparison import margin_gap, svmeq, svmeq_factor, svmeq_least_squares
from attnsvm.config import GROUPS, ConfigError, RunConfig
from attnsvm.config.groups import PretrainedConfig
from attnsvm.config.instantiate import instantiate, instantiated_probes
from attnsvm.config.probe import probe_quantities
from attnsvm.config.transformer import is_transformer
from attnsvm.data import Seeded
from attnsvm.experiment.result import BatchResult
from attnsvm.experiment.separation import (
    bound_attained,
    separate,
    separate_attended,
    solve_as_published,
)
from attnsvm.model import Transformer
from attnsvm.parameterization import Parameterization
from attnsvm.probe import Probe, over_steps
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import (
    NORMS,
    hypothesis_columns,
    layer_columns,
    multi_columns,
    norm_columns,
    probe_columns,
    svmeq_name,
)
from attnsvm.record.schema import RunRecord
from attnsvm.selection import (
    TIED_SCORES,
    TokenSelection,
    optimal_tokens,
    rejected,
    select_tokens,
    tied_optimal,
)
from attnsvm.svm import SvmSolution
from attnsvm.theory import OF_INSTANCES, aligned_gradient, convergence_types, direction_change
from attnsvm.training import STALLED, TrainingStatus, Trajectory, check_start, chunk_size, train
from attnsvm.transformer import layer_problems, networks_at_once, train_layers

MAX_DRAWS_PER_TRIAL = 200
"""With selection.until_accepted: stop after this many drawn instances per requested one."""

STALLED_REASON = (
    "the last steps are rounding noise, or the path's last point is not a minimiser "
    f"(relative error of the direction >= {STALLED:g})"
)

WITHOUT_START = "init=cone: the SVM of the tokens is not solved and has no direction"


def run(config: RunConfig) -> RunRecord:
    """Draw, train, select, separate and compare the instances of `config`.

    Parameters
    ----------
    config : RunConfig
        A checked config.

    Returns
    -------
    RunRecord
        A row for every instance that was drawn, whatever its status.

    Raises
    ------
    ConfigError
        If the data or the device do not support this config.
    """
    return RunRecord.joined(list(parts(config)))


def parts(config: RunConfig, size: int | None = None) -> Iterator[RunRecord]:
    """Yield the record of `run` in parts, in the order of the seeds, in bounded memory.

    Parameters
    ----------
    config : RunConfig
        A checked config.
    size : int, optional
        Largest number of instances in a part, by default that of `chunk_size`; the results do not
        depend on it.
    """
    check(config)
    stages = _Stages(config, _device(config.device))
    if config.selection.until_accepted:
        yield from _until_accepted(stages, size)
    else:
        for batch in stages.batches(size):
            yield stages.record(batch)


def check(config: RunConfig) -> None:
    """Raise ConfigError for errors that the schema cannot find, without running.

    Every object of the config is built, and the optimizer checks the head. For seeded data one
    instance is drawn to check its shape with the model, the head and the parameterization. Files
    and devices are checked in the run only: they may be missing on the machine of the driver.
    """
    parts = {
        group: instantiate(getattr(config, group), group, config.extensions) for group in GROUPS
    }
    if isinstance(parts["model"], Transformer) and not is_transformer(vars(config.model)):
        raise ConfigError(f"model={config.model._target_}: must not be derived from Transformer")
    parts["optimizer"].check_head(parts["head"])
    parts["optimizer"].check_loss(parts["loss"])
    probes = instantiated_probes(config)
    check_probes(config, probes, parts["parameterization"])
    if isinstance(parts["data"], Seeded):
        one = parts["data"].sample(parts["head"], parts["model"], 1, config.seed)
        parts["parameterization"].shapes(one.d)
        if config.selection.tokens != "optimal":
            check_start(parts["parameterization"], parts["optimizer"], one.d)
        for probe in probes.values():
            probe.check(one.d)


def check_probes(config: RunConfig, probes: Mapping[str, Probe], rule: Parameterization) -> None:
    """Raise ConfigError if a probe needs what the run does not have."""
    probe_columns(probe_quantities(config.probe))
    names = [f"{name}_{one}" for name, node in config.probe.items() for one in node.QUANTITIES]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"probe=[{','.join(config.probe)}]: two of them have the column {twice[0]}; its name "
            "must be of one only"
        )
    for name, probe in probes.items():
        if probe.FACTORS and len(rule.NAMES) != 2:
            raise ConfigError(f"probe=[{name}]: needs K and Q; parameterization must be kq")
        if probe.FACTORS and is_transformer(vars(config.model)):
            raise ConfigError(f"probe=[{name}]: needs K and Q; model must not be transformer")
        if probe.WEIGHTS and not isinstance(config.data, PretrainedConfig):
            raise ConfigError(
                f"probe=[{name}]: needs the heads of a layer; data must be pretrained"
            )
        allowed = ("top", "multi") if probe.GEN_SVM else ("top",)
        if probe.SOLUTIONS and config.selection.tokens not in allowed:
            raise ConfigError(
                f"probe=[{name}]: needs the SVM of the selected tokens; selection must be "
                f"{' | '.join(allowed)}"
            )


def _device(name: str) -> torch.device:
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigError("device=cuda: no CUDA device is available here; must be auto | cpu")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and available) else "cpu")


def _until_accepted(stages: _Stages, size: int | None) -> Iterator[RunRecord]:
    """Yield records of successive seeds until `trials` instances are accepted."""
    config = stages.config
    size = size or stages.chunk_size(stages.draw(1, config.seed))
    drawn = accepted = 0
    while accepted < config.trials and drawn < MAX_DRAWS_PER_TRIAL * config.trials:
        rate = accepted / drawn if drawn else 1.0
        missing = config.trials - accepted
        trials = min(math.ceil(1.1 * missing / max(rate, 0.1)), 4 * config.trials, size)
        part = stages.record(stages.draw(trials, config.seed + drawn))
        yield part.first_accepted(missing)
        drawn += len(part.trials)
        accepted += int((part.trials["status"] == "ok").sum())


class _Stages:
    """The stages of a run on one batch of instances, each timed."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.norms = list(config.svm.norms)
        svm = config.svm
        self.tolerances: dict[str, Any] = {"gap": svm.gap, "rank_tolerance": svm.rank_tolerance}
        self.timings: dict[str, float] = {}
        self.probes = instantiated_probes(config)
        measured = probe_columns(probe_quantities(config.probe))
        fixed = *norm_columns(self.norms), *multi_columns(config.selection.tokens, self.norms)
        fixed = *fixed, *hypothesis_columns(config.hypotheses)
        self.further = (*fixed, *layer_columns(vars(config.model)), *measured)
        self.factors = any(probe.FACTORS for probe in self.probes.values())

    def batches(self, size: int | None) -> Iterator[ProblemBatch]:
        """Yield the instances of the config, at most `size` at a time."""
        seeded = isinstance(self._instance("data"), Seeded)
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
        """Return how many instances like those of `batch` are processed at once."""
        trained = self.config.selection.tokens != "optimal"
        snapshots = len(self._instance("optimizer").grid()) if trained else 0
        if isinstance(model := self._instance("model"), Transformer):
            return networks_at_once(batch, model, snapshots)
        return chunk_size(batch, snapshots * (3 if self.factors else 1))

    def draw(self, trials: int, seed: int) -> ProblemBatch:
        """Return the instances seed, ..., seed + trials - 1."""
        with self._timed("draw"):
            data, head = self._instance("data"), self._instance("head")
            model = self._instance("model")
            batch: ProblemBatch = data.sample(head, model, trials, seed)
            return batch.to(self.device)

    def record(self, batch: ProblemBatch) -> RunRecord:
        """Return the record of the instances of `batch`, with the timings since the last record."""
        result = BatchResult(batch, self.further)
        SELECTIONS[self.config.selection.tokens](self, result)
        with self._timed("tabulate"):
            tables = result.table(), result.history(), result.solutions()
        timings, self.timings = self.timings, {}
        return RunRecord(*tables, timings)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - begin

    def _instance(self, group: str) -> Any:
        return instantiate(getattr(self.config, group), group, self.config.extensions)

    # --- selections: which tokens the SVM separates -----------------------------------------------

    def optimal(self, result: BatchResult) -> None:
        """Separate the optimal tokens; nothing is trained."""
        selected, tie = optimal_tokens(result.batch)
        result.columns["tie"] = tie
        self._decide(result)
        result.mark(*tied_optimal(result.batch, tie))
        self._separate(result, selected)
        result.mark(tie, "tie", TIED_SCORES)

    def top(self, result: BatchResult) -> None:
        """Train, and separate the token that each sample attends to most."""
        path, selection = self._train(result)
        self._decide(result, path)
        chosen = self.config.selection
        result.mark(selection.tied_scores, "tie", TIED_SCORES)
        result.mark(
            ~selection.saturated,
            "unsaturated",
            f"smallest top softmax is below {chosen.saturation:g}",
        )
        solutions = self._separate(result, selection.selected)
        with self._timed("compare"):
            result.columns["direction_change"] = direction_change(path)
            norm, near = self._implicit_bias(), chosen.settled
            types = convergence_types(result.batch, selection, path, solutions, norm, near)
            result.columns["convergence"] = [
                "" if status in ("tie", "diverged") else kind
                for kind, (status, _) in zip(types, result.status, strict=True)
            ]
            for norm, solution in solutions.items():
                result.columns[f"{norm}_margin_gap"] = margin_gap(path.W, solution)
                result.compare(f"one_minus_corr_{norm}", path.steps, path.snapshots, solution.W)
                if norm not in NORMS:
                    gaps = [margin_gap(W, solution) for W in path.snapshots.unbind(1)]
                    result.curves[f"margin_gap_{norm}"] = path.steps, torch.stack(gaps, dim=1)
        self._measure(result, path, selection.selected, solutions)

    def multi(self, result: BatchResult) -> None:
        """Train, and separate all attended tokens from the others (Gen-SVM).

        Rejected instances keep their row and hypotheses, but have no SVM and no curve.
        """
        path, selection = self._train(result)
        self._decide(result, path)
        chosen = self.config.selection
        for where, status, reason in rejected(
            result.batch,
            path,
            selection,
            attended=chosen.attended,
            negligible=chosen.negligible,
            all_positive=chosen.reject_all_positive,
        ):
            result.mark(where, status, reason)
        index = result.accepted()
        if len(index) == 0:
            result.record_none()
            return
        part = result.part(index)
        attended, log_softmax = selection.attended[index], path.log_softmax[index]
        with self._timed("svm"):
            tokens = selection.selected[index], attended, log_softmax
            given = self.norms, self._solve
            solutions = separate_attended(part, *tokens, *given, **self.tolerances)
            bound_attained(part, *tokens, path.W[index], *given, **self.tolerances)
        with self._timed("compare"):
            snapshots = path.snapshots[index]
            part.compare("one_minus_corr_1token", path.steps, snapshots, part.arrays["one_token_W"])
            for norm in self.norms:
                mm = part.arrays[f"{norm}_W"]
                part.compare(f"one_minus_corr_{norm}", path.steps, snapshots, mm)
                parts = part.arrays[f"{norm}_fin_W"][:, None], mm[:, None]
                part.compare(svmeq_name(norm), path.steps, snapshots, svmeq(snapshots, *parts))
                part.columns[f"svmeq_C_{norm}"] = svmeq_factor(snapshots, *parts)[:, -1]
                if norm == "frobenius":
                    published = svmeq_least_squares(snapshots, *parts)
                    part.compare("one_minus_corr_svmeq_lsq", path.steps, snapshots, published)
        self._measure(part, path.take(index), selection.selected[index], solutions)
        result.absorb(part, index)

    # --- stages -----------------------------------------------------------------------------------

    def _train(self, result: BatchResult) -> tuple[Trajectory, TokenSelection]:
        chosen = self.config.selection
        with self._timed("train"):
            path = self._trained(result)
        selection = select_tokens(
            result.batch,
            path,
            saturation=chosen.saturation,
            attended=chosen.attended,
            negligible=chosen.negligible,
        )
        ends = path.status(chosen.saturation)
        result.enter_training(path, selection, ends)
        if self.config.keep_path:
            result.store_path(path)
        if self.factors and path.K is not None:
            result.arrays |= {"trained_K": path.K, "trained_Q": path.Q}
        if result.batch.head.train:
            if set(path.head_parameters) == {"v"}:
                result.arrays |= {"trained_v": path.head_parameters["v"], "Y": result.batch.Y}
            result.batch = dataclasses.replace(result.batch, head_parameters=path.head_parameters)
        nowhere = path.snapshots[:, 0].isnan().any(-1).any(-1)
        result.mark(nowhere, "rejected", WITHOUT_START)
        result.mark(path.diverged, "diverged", "a weight is not finite")
        result.mark(selection.tied_softmax, "tie", "two tokens share the largest softmax")
        if not chosen.keep_stalled:
            stalled = [end is TrainingStatus.STALLED for end in ends]
            result.mark(stalled, "stalled", STALLED_REASON)
        return path, selection

    def _trained(self, result: BatchResult) -> Trajectory:
        """Train the instances; those of a network are divided into its layers and heads."""
        rule, optimizer, loss, model = (
            self._instance(group) for group in ("parameterization", "optimizer", "loss", "model")
        )
        if not isinstance(model, Transformer):
            return train(
                result.batch,
                rule,
                optimizer,
                loss,
                progress=sys.stderr.isatty(),
                keep_factors=self.factors,
            )
        progress = sys.stderr.isatty()
        networks = train_layers(result.batch, model, rule, optimizer, loss, progress=progress)
        problems = layer_problems(result.batch, networks, self.config.selection.attended)
        key = {"layer": problems.layer, "attention_head": problems.head}
        result.divide(problems.batch, key)
        result.columns["positions_seen"] = problems.positions_seen
        result.columns["unseen_gradient"] = problems.unseen_gradient
        result.columns["selected_since"] = problems.selected_since
        result.arrays |= {f"network_{name}": part for name, part in problems.network.items()}
        return problems.path

    def _separate(self, result: BatchResult, selected: Tensor) -> dict[str, SvmSolution[Tensor]]:
        m = self._instance("parameterization").max_rank(result.batch.d)
        with self._timed("svm"):
            given = selected, self.norms, m, self._solve
            solutions = separate(result, *given, **self.tolerances)
        if self.config.svm.published:
            with self._timed("published"):
                solve_as_published(result, selected, self.norms)
        return solutions

    def _solve(self, result: BatchResult, name: str, compute: Callable[[], Any]) -> Any:
        """Return the solutions of the SVM `name`; `attnsvm.verify` gives back the stored ones."""
        return compute()

    def _measure(
        self,
        result: BatchResult,
        path: Trajectory,
        selected: Tensor,
        solutions: Mapping[Any, SvmSolution[Tensor]],
    ) -> None:
        """Add the quantities of the probes at every snapshot."""
        for name, probe in self.probes.items():
            with self._timed("probe"):
                quantities = self.config.probe[name].QUANTITIES
                probe.check(result.batch.d)
                given = path, selected, self._instance("loss"), solutions
                found = over_steps(probe, quantities, result.batch, *given)
                for quantity, values in found.items():
                    result.measure(f"{name}_{quantity}", path.steps, values)

    def _decide(self, result: BatchResult, path: Trajectory | None = None) -> None:
        """Add the columns of the hypotheses; without a path there are no initial weights."""
        with self._timed("svm"):
            for name in self.config.hypotheses:
                if name in OF_INSTANCES:
                    result.columns[name] = OF_INSTANCES[name](result.batch)
                elif path is not None:
                    start, loss = path.snapshots[:, 0], self._instance("loss")
                    result.columns[name] = aligned_gradient(result.batch, start, loss)

    def _implicit_bias(self) -> str | None:
        """Return the norm of the SVM that training converges to."""
        of_W = self._instance("optimizer").implicit_bias
        norm: str | None = self._instance("parameterization").implicit_bias(of_W)
        return norm


SELECTIONS: dict[str, Callable[[_Stages, BatchResult], None]] = {
    "optimal": _Stages.optimal,
    "top": _Stages.top,
    "multi": _Stages.multi,
}
