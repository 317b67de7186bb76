"""The stages of a run in order: draw, train, select, separate, compare, measure, tabulate.

Each stage takes the frozen values of the stages before it and returns one of its own:

    ProblemBatch -> Trained -> Selected -> Separated -> Findings -> RunRecord

A run branches in three places: `train` (one layer, or a network of several), `SELECTIONS` (which
tokens the SVM separates), and `batches` (instances are drawn from seeds, or come from a file).
"""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import RunConfig
from attnsvm.config.identity import result_fields
from attnsvm.config.probe import described_quantities
from attnsvm.config.sources import package_of
from attnsvm.data import Seeded
from attnsvm.display.pace import doing
from attnsvm.experiment import results, svms
from attnsvm.experiment.objects import RunObjects
from attnsvm.experiment.results import OK, Findings, Selected, Separated, Status, Trained, marked
from attnsvm.experiment.svms import WITH_LAW, compare_with_law, compare_with_law_of_layers
from attnsvm.linalg import CPU, own_settings
from attnsvm.model import Transformer
from attnsvm.nn.risk import Risk
from attnsvm.probe import over_steps
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import further_columns
from attnsvm.record.schema import RunRecord
from attnsvm.selection import TokenSelection, optimal_tokens, select_tokens, tied_optimal
from attnsvm.theory import INSTANCE_HYPOTHESES, aligned_gradient, ratio_of_steps
from attnsvm.training import TrainingStatus, Trajectory, chunk_size, train, uncompiled
from attnsvm.transformer import LayerTrajectory, layer_problems, networks_at_once, train_layers

log = logging.getLogger(__name__)


class Stages:
    """The stages of a run on one batch of instances, each timed.

    A subclass may take stored solutions in the place of those of the solver (`solve`).
    """

    def __init__(self, config: RunConfig, objects: RunObjects, device: torch.device) -> None:
        self.config, self.objects, self.device = config, objects, device
        self.norms = list(config.svm.norms)
        self.timings: dict[str, float] = {}
        self.reported = False
        self.further = further_columns(result_fields(config), described_quantities(config.probe))

    @own_settings()
    def record_of(self, batch: ProblemBatch) -> RunRecord:
        """Return the record of the instances of `batch`, with the timings since the last record."""
        return SELECTIONS[self.config.selection.tokens](self, batch)

    @contextmanager
    def _timed(self, stage: str, words: str) -> Iterator[None]:
        begin = time.perf_counter()
        with doing(words):
            yield
        self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - begin

    # --- draw -------------------------------------------------------------------------------------

    def batches(self, size: int | None) -> Iterator[ProblemBatch]:
        """Yield the instances of the config, at most `size` at a time."""
        seeded = isinstance(self.objects.data, Seeded)
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
        """Return how many instances of the size of `batch` are processed at once."""
        trained = self.config.selection.tokens != "optimal"
        snapshots = len(self.objects.optimizer.grid()) if trained else 0
        if isinstance(model := self.objects.model, Transformer):
            return networks_at_once(batch, model, snapshots)
        return chunk_size(batch, snapshots * (3 if self.objects.factors else 1))

    @own_settings()
    def draw(self, trials: int, seed: int) -> ProblemBatch:
        """Return the instances seed, ..., seed + trials - 1."""
        with self._timed("draw", "drawing"):
            objects = self.objects
            return objects.data.sample(objects.head, objects.model, trials, seed)

    # --- which tokens the SVM separates -----------------------------------------------------------

    def optimal(self, batch: ProblemBatch) -> RunRecord:
        """Separate the optimal tokens; nothing is trained."""
        selected, tie = optimal_tokens(batch)
        findings = Findings({"tie": tie}) | self.hypotheses(batch)
        separated = self.separate(batch, selected, {})
        tied = results.EXCLUSIONS["tied_scores"]
        exclusions = [(tied_optimal(batch), *tied), *separated.exclusions, (tie, *tied)]
        status = marked([OK] * batch.B, exclusions)
        return self.tabulate(batch, {}, status, findings | separated.findings)

    def top(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate the token that each sample attends to most."""
        trained = self.train(batch)
        selected = self.select(trained, self._top_exclusions)
        tokens = selected.selection.selected
        findings = selected.findings | self.hypotheses(trained.batch, trained.path)
        separated = self.separate(trained.batch, tokens, trained.key)
        findings |= separated.findings
        with self._timed("compare", "comparing"):
            near = self.config.selection.settled
            findings |= svms.compare(selected, separated, self.implicit_bias(), near)
        if (norm := self.law_norm()) is not None:
            findings |= self.law(selected, norm)
        findings |= self.measure(trained, tokens, separated)
        status = marked(selected.status, separated.exclusions)
        return self.tabulate(trained.batch, trained.key, status, findings)

    def multi(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate all attended tokens from the others (Gen-SVM).

        Rejected instances keep their row and hypotheses, but have no SVM and no curve.
        """
        whole = self.train(batch)
        selected = self.select(whole, self._multi_exclusions)
        status, index = selected.status, selected.accepted()
        findings = selected.findings | self.hypotheses(whole.batch, whole.path)
        findings = findings.recorded(index)
        if len(index):
            trained, selection = whole.take(index), selected.selection[index]
            with self._timed("svm", "solving"):
                solve = partial(self.solve, trained.batch, trained.key)
                separated = svms.separate_attended(trained, selection, self.norms, solve)
            with self._timed("compare", "comparing"):
                compared = separated.findings | svms.compare_attended(trained.path, separated)
            compared |= self.measure(trained, selection.selected, separated)
            findings |= compared.spread(index, len(status), self.further)
            status = marked(status, separated.exclusions, index)
        return self.tabulate(whole.batch, whole.key, status, findings, index)

    def scc(self, batch: ProblemBatch) -> RunRecord:
        """Train, and separate the components of the labels in their token-priority graphs."""
        trained, objects = self.train(batch), self.objects
        selected = self.select(trained, lambda *_: {"tied_scores": tied_optimal(batch)})
        findings = selected.findings | self.hypotheses(batch, trained.path)
        with self._timed("svm", "solving"):
            solve = partial(self.solve, batch, trained.key)
            separated = svms.separate_components(trained.batch, objects.loss, self.norms, solve)
        with self._timed("compare", "comparing"):
            findings |= separated.findings | svms.compare_components(trained.path, separated)
        findings |= self.measure(trained, selected.selection.selected, separated)
        status = marked(selected.status, separated.exclusions)
        return self.tabulate(trained.batch, trained.key, status, findings)

    # --- train ------------------------------------------------------------------------------------

    def train(self, batch: ProblemBatch) -> Trained:
        """Train the instances; a network is divided into its layers and heads."""
        objects = self.objects
        rules = objects.parameterization, objects.optimizer, objects.loss
        with self._timed("train", "training"):
            if isinstance(objects.model, Transformer):
                networks = train_layers(batch, objects.model, *rules)
                return self.divided(batch, networks)
            there = batch.to(self.device)
            risk = Risk(there, objects.parameterization, objects.loss)
            what = self.device == CPU and uncompiled(risk, objects.optimizer)
            if what and not self.reported:  # once a run
                log.info("training by torch, many times slower: no compiled code for %s", what)
            self.reported = True
            path = train(there, *rules, keep_factors=objects.factors)
        return Trained(batch, path.to(CPU))

    def divided(self, batch: ProblemBatch, networks: LayerTrajectory) -> Trained:
        """Return each layer and head of trained networks as a problem of one layer."""
        problems = layer_problems(batch, networks, self.config.selection.attended)
        names = "positions_seen", "unseen_gradient", "unseen_softmax", "selected_since"
        arrays = {f"network_{name}": part for name, part in problems.network.items()}
        arrays |= {name: getattr(problems, name) for name in ("log_adjoint", "reached")}
        findings = Findings({name: getattr(problems, name) for name in names}, arrays=arrays)
        key = {"layer": problems.layer, "attention_head": problems.head}
        return Trained(problems.batch, problems.path, key, findings)

    # --- select -----------------------------------------------------------------------------------

    def select(
        self, trained: Trained, further: Callable[[Trained, TokenSelection], dict[str, Tensor]]
    ) -> Selected:
        """Return the tokens that each sample attends to, and the instances that are excluded.

        `further` returns exclusions besides those of training.
        """
        chosen, path = self.config.selection, trained.path
        thresholds = {
            name: getattr(chosen, name) for name in ("saturation", "attended", "negligible")
        }
        selection = select_tokens(trained.drawn, path, **thresholds)
        ends = path.status(chosen.saturation)
        exclusions = results.exclusions(
            chosen,
            startless=path.snapshots[:, 0].isnan().any(-1).any(-1),
            undefined=results.undefined(trained, self.objects.loss),
            diverged=path.diverged,
            stalled=torch.tensor([end is TrainingStatus.STALLED for end in ends]),
            **further(trained, selection),
        )
        findings = trained.network | results.training_findings(
            trained, selection, ends, self.config.keep_path, self.objects.factors
        )
        return Selected(trained, selection, marked([OK] * len(ends), exclusions), findings)

    def _top_exclusions(self, trained: Trained, selection: TokenSelection) -> dict[str, Tensor]:
        ties = {name: getattr(selection, name) for name in ("tied_softmax", "tied_scores")}
        return ties | {"unsaturated": ~selection.saturated}

    def _multi_exclusions(self, trained: Trained, selection: TokenSelection) -> dict[str, Tensor]:
        """Return the instances to which the multi-token theory does not apply."""
        most, mask = self.config.selection.negligible, trained.batch.mask
        negligible = (trained.path.log_softmax <= math.log(most)) & mask
        return {
            "tied_softmax": selection.tied_softmax,
            "positive": (trained.batch.Y > 0).all(-1),  # as published
            "ambiguous": selection.ambiguous,
            "nothing_negligible": ~negligible.flatten(1).any(-1),
            "unattended": ~selection.attended.any(-1).all(-1),
        }

    def hypotheses(self, batch: ProblemBatch, path: Trajectory | None = None) -> Findings:
        """Return the columns of the hypotheses; without a path there are no initial weights."""
        columns: dict[str, Any] = {}
        with self._timed("svm", "solving"):
            for name in self.config.hypotheses:
                if name in INSTANCE_HYPOTHESES:
                    columns[name] = INSTANCE_HYPOTHESES[name](batch)
                elif path is not None:
                    columns[name] = aligned_gradient(batch, path.snapshots[:, 0], self.objects.loss)
        return Findings(columns)

    # --- separate ---------------------------------------------------------------------------------

    def separate(
        self, batch: ProblemBatch, selected: Tensor, key: Mapping[str, Tensor]
    ) -> Separated:
        """Solve the SVMs of the selected tokens (B, n)."""
        m, solve = self.objects.parameterization.max_rank(batch.d), partial(self.solve, batch, key)
        with self._timed("svm", "solving"):
            separated = svms.separate(batch, selected, self.norms, m, solve)
        if not self.config.svm.published:
            return separated
        with self._timed("published", "published method"):
            published = svms.solve_as_published(batch, selected, self.norms)
        return dataclasses.replace(separated, findings=separated.findings | published)

    def solve(
        self, batch: ProblemBatch, key: Mapping[str, Tensor], name: str, compute: Callable[..., Any]
    ) -> Any:
        """Return the solutions of the SVM called `name` for the instances of `batch`."""
        svm = self.config.svm
        return compute(gap=svm.gap, rank_tolerance=svm.rank_tolerance)

    def implicit_bias(self) -> str | None:
        """Return the norm of the SVM that training converges to; None where it is not known.

        Of steps by some of the samples, or of weights that decay, it is not.
        """
        objects = self.objects
        if any(getattr(objects.optimizer, name, None) for name in ("batch", "weight_decay")):
            return None
        return objects.parameterization.implicit_bias(objects.optimizer.implicit_bias)

    # --- joint training ---------------------------------------------------------------------------

    def law_norm(self) -> str | None:
        """Return the norm of the law of joint training; None for a run without one."""
        objects = self.objects
        rules = objects.optimizer, objects.parameterization, objects.head, objects.loss
        ours = all(package_of(type(rule).__module__) == "attnsvm" for rule in rules)
        lawful = objects.head.train and (type(objects.head), type(objects.loss)) in WITH_LAW
        lawful |= isinstance(objects.model, Transformer)
        return self.implicit_bias() if ours and lawful else None

    def law(self, selected: Selected, norm: str) -> Findings:
        """Compare the trained weights with the law of joint training."""
        objects, trained = self.objects, selected.trained
        solve = partial(self.solve, trained.batch, trained.key)
        with self._timed("svm", "solving"):
            if trained.key:
                return compare_with_law_of_layers(selected, norm, solve)
            ratio = ratio_of_steps(objects.optimizer, objects.parameterization, objects.head.rate)
            return compare_with_law(selected, norm, ratio, solve)

    # --- measure, tabulate ------------------------------------------------------------------------

    def measure(self, trained: Trained, selected: Tensor, separated: Separated) -> Findings:
        """Return the quantities of the probes at every snapshot."""
        batch, path, measured = trained.batch, trained.path, Findings()
        fields = {"selected": selected, "loss": self.objects.loss, "solutions": separated.solutions}
        for name, probe in self.objects.probes.items():
            with self._timed("probe", f"probe {name}"):
                quantities = self.config.probe[name].QUANTITIES
                probe.check(batch.d)
                for quantity, values in over_steps(
                    probe, quantities, batch, path, **fields
                ).items():
                    measured |= results.quantity(f"{name}_{quantity}", path.steps, values)
        return measured

    def tabulate(
        self,
        batch: ProblemBatch,
        key: Mapping[str, Tensor],
        status: tuple[Status, ...],
        findings: Findings,
        index: Tensor | None = None,
    ) -> RunRecord:
        """Return the record; curves and arrays are those of the instances at `index`, or of all."""
        with self._timed("tabulate", "tabulating"):
            index = torch.arange(batch.B) if index is None else index
            tables = results.tables(batch, key, status, findings, index, self.further)
        timings, self.timings = self.timings, {}
        return RunRecord(*tables, timings)


SELECTIONS: dict[str, Callable[[Stages, ProblemBatch], RunRecord]] = {
    method.__name__: method for method in (Stages.optimal, Stages.top, Stages.multi, Stages.scc)
}
"""What a run does, by `selection.tokens`."""
