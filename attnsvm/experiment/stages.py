"""The stages of a run in order: draw, train, select, separate, compare, measure, tabulate.

    ProblemBatch -> Trained -> TokenSelection -> Work -> Findings -> RunRecord

A run branches in three places: `train` (one layer, or a network of several), `SELECTIONS` (which
tokens the SVM separates), and `batches` (instances are drawn from seeds, or come from a file).
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.identity import result_fields
from attnsvm.config.probe import described_quantities
from attnsvm.data import Seeded
from attnsvm.data.problem import ProblemBatch
from attnsvm.display.pace import doing
from attnsvm.experiment import results, svms
from attnsvm.experiment.law import compare_with_law
from attnsvm.experiment.objects import check
from attnsvm.experiment.results import OK, Findings, Trained, marked
from attnsvm.experiment.svms import Svm, Work
from attnsvm.linalg import CPU, own_settings
from attnsvm.model import Transformer
from attnsvm.nn.risk import Risk
from attnsvm.probe import over_steps
from attnsvm.record.columns import further_columns
from attnsvm.record.schema import RunRecord
from attnsvm.selection import optimal_tokens, select_tokens, tied_optimal
from attnsvm.theory import INSTANCE_HYPOTHESES, aligned_gradient
from attnsvm.training import chunk_size, train, uncompiled
from attnsvm.transformer import layer_problems, networks_at_once, train_layers

log = logging.getLogger(__name__)


class Stages:
    """The stages of a run on one batch of instances, each timed; ConfigError as from `check`.

    A subclass may take stored solutions in the place of those of the solver (`known`).
    """

    def __init__(self, config: RunConfig) -> None:
        self.config, self.objects, self.device = config, check(config), _device(config.device)
        self.seeded = isinstance(self.objects.data, Seeded)
        self.timings: dict[str, float] = {}
        self.reported = False
        self.further = further_columns(result_fields(config), described_quantities(config.probe))

    @contextmanager
    def timed(self, stage: str, words: str) -> Iterator[None]:
        """Add the time of a block to that of its stage; what it contains counts for its own."""
        begin, before = time.perf_counter(), sum(self.timings.values())
        with doing(words):
            yield
        inner = sum(self.timings.values()) - before
        own = time.perf_counter() - begin - inner
        self.timings[stage] = self.timings.get(stage, 0.0) + own

    # --- draw -------------------------------------------------------------------------------------

    def batches(self, size: int | None) -> Iterator[ProblemBatch]:
        """Yield the instances of the config, at most `size` at a time."""
        size = size or self.chunk_size(self.whole)
        for start in range(0, self.total, size):
            yield self.instances(start, min(start + size, self.total))

    @cached_property
    def whole(self) -> ProblemBatch:
        """All instances; of those that are drawn from seeds the first one."""
        return self.draw(1 if self.seeded else self.config.trials, self.config.seed)

    @property
    def total(self) -> int:
        """The number of instances: fewer than `trials` if a file has fewer."""
        return self.config.trials if self.seeded else self.whole.B

    def instances(self, start: int, stop: int) -> ProblemBatch:
        """Return the instances at start, ..., stop - 1."""
        if self.seeded:
            return self.draw(stop - start, self.config.seed + start)
        return self.whole.take(slice(start, stop))

    def chunk_size(self, batch: ProblemBatch) -> int:
        """Return how many instances are processed at once, all of the shape of `batch`."""
        trained = self.config.selection.tokens != "optimal"
        snapshots = len(self.objects.optimizer.grid()) if trained else 0
        if isinstance(model := self.objects.model, Transformer):
            return networks_at_once(batch, model, snapshots)
        return chunk_size(batch, snapshots * (3 if self.objects.factors else 1))

    @own_settings()
    def draw(self, trials: int, seed: int) -> ProblemBatch:
        """Return the instances seed, ..., seed + trials - 1."""
        with self.timed("draw", "drawing"):
            objects = self.objects
            return objects.data.sample(objects.head, objects.model, trials, seed)

    # --- all stages of a batch --------------------------------------------------------------------

    @own_settings()
    def record_of(self, batch: ProblemBatch) -> RunRecord:
        """Return the record of the instances of `batch`, with the timings since the last record."""
        return SELECTIONS[self.config.selection.tokens](self, batch)

    def optimal(self, batch: ProblemBatch) -> RunRecord:
        """Separate the optimal tokens; nothing is trained."""
        selected, tie = optimal_tokens(batch)
        work = Work(self, Trained(batch))
        work.findings.columns.update(tie=tie, **self.hypotheses(work.trained))
        with self.timed("svm", "solving"):
            svms.separate(work, selected)
        differ, either = (
            results.exclusions(self.config, {"tied_scores": tied})
            for tied in (tied_optimal(batch), tie)
        )
        status = marked([OK] * batch.B, [*differ, *work.exclusions, *either])
        return self.tabulate(work.trained, status, Findings(), slice(None), work.findings)

    def top(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate the token that each sample attends to most."""

        def separated(work: Work) -> None:
            with self.timed("svm", "solving"):
                svms.separate(work, work.selection.selected)
            svms.compare(work)
            compare_with_law(work)

        return self.trained(batch, separated)

    def multi(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate all attended tokens from the others (Gen-SVM).

        Rejected instances keep their row and hypotheses, but have no SVM and no curve.
        """
        return self.trained(batch, svms.attended, accepted_only=True)

    def scc(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate the components of the labels in their token-priority graphs."""
        return self.trained(batch, svms.components)

    def trained(
        self, batch: ProblemBatch, separate: Callable[[Work], None], accepted_only: bool = False
    ) -> RunRecord:
        """Train, select tokens, and let `separate` solve SVMs and compare the weights with them."""
        trained, chosen = self.train(batch), self.config.selection
        thresholds = {of: getattr(chosen, of) for of in ("saturation", "attended", "negligible")}
        selection = select_tokens(trained.drawn, trained.path, **thresholds)
        exclusions = results.exclusions_of_training(
            self.config, trained, selection, self.objects.loss
        )
        status = marked([OK] * trained.drawn.B, exclusions)
        findings = results.training_findings(trained, selection, self.config)
        findings.columns.update(self.hypotheses(trained))
        accepted = torch.tensor([mark == OK for mark in status])
        index: Any = accepted.nonzero()[:, 0] if accepted_only else slice(None)
        later = Findings()
        if accepted.any() or not accepted_only:
            work = Work(self, trained.take(index), selection[index], status)
            with self.timed("compare", "comparing"):
                separate(work)
            self.measure(work)
            status, later = marked(status, work.exclusions, index), work.findings
        return self.tabulate(trained, status, findings, index, later)

    def train(self, batch: ProblemBatch) -> Trained:
        """Train the instances; a network is divided into its layers and heads."""
        objects = self.objects
        rules = objects.parameterization, objects.optimizer, objects.loss
        with self.timed("train", "training"):
            if isinstance(objects.model, Transformer):
                networks = train_layers(batch, objects.model, *rules)
                problems = layer_problems(batch, networks, self.config.selection.attended)
                return Trained.of_layers(problems)
            there = batch.to(self.device)
            risk = Risk(there, objects.parameterization, objects.loss)
            what = self.device == CPU and uncompiled(risk, objects.optimizer)
            if what and not self.reported:  # once a run
                log.info("training by torch, many times slower: no compiled code for %s", what)
            self.reported = True
            path = train(there, *rules, keep_factors=objects.factors)
        return Trained(batch, path.to(CPU))

    def hypotheses(self, trained: Trained) -> dict[str, Any]:
        """Return the columns of the hypotheses; those of the start only if there is a path."""
        columns: dict[str, Any] = {}
        with self.timed("svm", "solving"):
            for name in self.config.hypotheses:
                if name in INSTANCE_HYPOTHESES:
                    columns[name] = INSTANCE_HYPOTHESES[name](trained.batch)
                elif trained.path is not None:
                    start = trained.path.snapshots[:, 0]
                    columns[name] = aligned_gradient(trained.batch, start, self.objects.loss)
        return columns

    def known(self, name: str, solution: Svm, trained: Trained) -> Svm:
        """Return the solution of the SVM called `name` that is recorded: the solver's."""
        return solution

    def measure(self, work: Work) -> None:
        """Add the quantities of the probes at every snapshot."""
        batch, path = work.trained.batch, work.trained.path
        fields = {"selected": work.selection.selected, "loss": self.objects.loss}
        for name, probe in self.objects.probes.items():
            with self.timed("probe", f"probe {name}"):
                quantities = self.config.probe[name].QUANTITIES
                probe.check(batch.d)
                values = over_steps(
                    probe, quantities, batch, path, solutions=work.solutions, **fields
                )
                for quantity, value in values.items():
                    work.findings.quantity(f"{name}_{quantity}", value)

    def tabulate(self, trained: Trained, *parts: Any) -> RunRecord:
        """Return the record of `results.tables`."""
        with self.timed("tabulate", "tabulating"):
            tables = results.tables(self.further, trained, *parts)
        timings, self.timings = self.timings, {}
        return RunRecord(*tables, timings)


def _device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and "SLURM_STEP_GPUS" not in os.environ):
        return CPU
    if not torch.cuda.is_available():
        raise ConfigError(f"device={name}: no CUDA device is available here; must be cpu")
    log.info("device=cuda: torch trains one layer there; the CPU trains networks and does all else")
    return torch.device("cuda")


SELECTIONS: dict[str, Callable[[Stages, ProblemBatch], RunRecord]] = {
    method.__name__: method for method in (Stages.optimal, Stages.top, Stages.multi, Stages.scc)
}
"""What a run does, by `selection.tokens`."""
