"""A recorded run once more: stored weights in place of training, stored SVMs in place of solving.

The only file of the proof that uses the stages of `attnsvm.experiment`. What is not stored, such as
the weights between the first and the last step, takes three values, one in each variant: a number
that is the same in all of them does not depend on it, and is compared; others are trusted. What
follows from those weights alone could be the same by chance: it becomes the number of the variant.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Generator, Tensor

from attnsvm import svm
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.optimizer import CONES
from attnsvm.experiment.stages import RunObjects, Selected, Stages, Trained
from attnsvm.loss import LinearLoss, Logistic, Squared
from attnsvm.model import Transformer
from attnsvm.nn.risk import Risk, attend
from attnsvm.norm import norm_of
from attnsvm.parameterization import W as Combined
from attnsvm.problem import ProblemBatch
from attnsvm.record import CorruptRecordError
from attnsvm.record.schema import RunRecord
from attnsvm.svm.certificate import lower_bound
from attnsvm.svm.solution import Certificate
from attnsvm.svm.weighted import with_offsets
from attnsvm.theory import joint
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

    The config has an option of ours in the place of plug-ins; `unknown` is what is not known.
    """

    def __init__(self, config: RunConfig, unknown: Unknown) -> None:
        super().__init__(config, RunObjects.of(config), torch.device("cpu"))
        self.unknown = unknown
        self.steps: list[float] = []
        """The recorded steps."""
        self.stored: StoredRows
        self.variant = 0
        self.noise: Generator | None = None
        self.entered: set[str] = set()
        """Columns that hang on trained weights."""

    def again(
        self, batch: ProblemBatch, stored: StoredRows, variant: int, noise: int | None, error: float
    ) -> RunRecord:
        """Return the record of instances with stored tokens, and drawn labels and head.

        Of rows without arrays the columns `entered` say nothing. The variant takes the place of
        what is not known. `noise` is the seed of a perturbation of weights in their last bits, and
        of what is drawn by its relative `error`.
        """
        self.stored, self.variant = stored, variant % len(VARIANTS)
        if "loss" in self.unknown.groups:
            self.objects = dataclasses.replace(self.objects, loss=LOSSES[self.variant])
        self.noise = None if noise is None else Generator().manual_seed(noise)
        if self.noise is not None and error:
            head = {n: self._noisy(p, error) for n, p in batch.head_parameters.items()}
            batch = dataclasses.replace(batch, head_parameters=head)
            if isinstance(self.objects.model, Transformer):
                batch = dataclasses.replace(batch, X=self._noisy(batch.X, error))
        with torch.no_grad():
            return self._with_unknown(self.record_of(batch))

    def _with_unknown(self, found: RunRecord) -> RunRecord:
        """Return the record with other numbers in each variant where weights are not stored."""
        if self.config.keep_path or len(self.steps) <= 2:
            return found
        between = ~found.history["step"].isin([self.steps[0], self.steps[-1]])
        value = found.history["value"].mask(between, float(self.variant))
        since = {"selected_since": self.steps[self.variant]} if "layer" in found.trials else {}
        trials, history = found.trials.assign(**since), found.history.assign(value=value)
        return dataclasses.replace(found, trials=trials, history=history)

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

    def law_norm(self) -> str | None:
        """Return the norm of the law of joint training; none for the rules of a plug-in."""
        ours = not self.unknown.groups & {"optimizer", "parameterization", "head", "loss"}
        return super().law_norm() if ours else None

    # --- training ---------------------------------------------------------------------------------

    def select(self, trained: Trained, further: Any) -> Selected:
        """Return the selected tokens; note the columns that hang on trained weights."""
        found = super().select(trained, further)
        self.entered = set(found.findings.columns)
        return found

    def train(self, batch: ProblemBatch) -> Trained:
        """Return the stored weights in the place of training."""
        if isinstance(self.objects.model, Transformer):
            return self._layers(batch)
        B, d, keys = batch.B, batch.d, _keys(batch)
        rule, loss = self.objects.parameterization, self.objects.loss
        start = self._start(Risk(batch, rule, loss))
        first = None if start is None else rule.combine(start)
        W = self.stored.filled("trained_W", keys, batch.X.new_zeros(B, d, d))
        snapshots = self._path(first, W)
        if self.config.keep_path:
            between = slice(0 if first is None else 1, -1)
            given = self.stored.filled("snapshots", keys, snapshots)
            snapshots[:, between] = given[:, between]
        snapshots = self._noisy(snapshots.flatten(0, 1)).view(snapshots.shape)
        heads, query = self._heads(batch, keys), Combined().query
        pairs = zip(snapshots.unbind(1), heads, strict=True)
        views = [attend(batch, query((V,), batch.Z), head) for V, head in pairs]
        factors = self._factors(start, keys, d)
        lost = self._without_arrays(keys) | ~snapshots[:, -1].flatten(1).isfinite().all(1)
        if batch.head.train:
            lost = lost | self._stated(keys, "diverged")
        return Trained(batch, Trajectory(
            steps=self._grid(),
            snapshots=snapshots,
            loss=torch.stack([loss.value(self._noisy(view.margins)).mean(-1) for view in views], 1),
            softmax=torch.stack([view.softmax for view in views], 1),
            log_softmax=views[-1].log_softmax,
            W=snapshots[:, -1].clone(),
            K=factors[0][:, -1] if factors else None,
            Q=factors[1][:, -1] if factors else None,
            diverged=lost,
            head_parameters=heads[-1],
            direction_error=self._stalled(keys),
            finite_optimum=self._stated(keys, "finite_optimum"),
            K_snapshots=factors[0] if factors else None,
            Q_snapshots=factors[1] if factors else None,
        ))  # fmt: skip

    def _grid(self) -> Tensor:
        whole = all(isinstance(step, int) for step in self.steps)
        return torch.tensor(self.steps, dtype=torch.int64 if whole else torch.float64)

    def _without_arrays(self, keys: Sequence[Key]) -> Tensor:
        """Return which rows are of instances without arrays, whose weights are not known."""
        return torch.tensor([key[:1] not in self.stored.place for key in keys])

    def _stated(self, keys: Sequence[Key], training: str) -> Tensor:
        """Return which rows say that training ended like this: it is trusted."""
        words = [self.stored.row_at.get(key, {}).get("training") for key in keys]
        return torch.tensor([word == training for word in words])

    def _stalled(self, keys: Sequence[Key]) -> Tensor:
        """Return an error of the direction by which the rows that say so have stalled."""
        return torch.where(self._stated(keys, "stalled"), torch.inf, 0.0).double()

    def _each_step(self, first: Any, between: Any, last: Any) -> list[Any]:
        """Return what holds at every step, which may be the last one only."""
        return [first, *[between] * (len(self.steps) - 2), last][-len(self.steps) :]

    def _path(self, first: Tensor | None, last: Tensor) -> Tensor:
        """Return weights at every step, (B, S, ...): of the variant where they are not known.

        Where nothing is trained they are the initial ones, if these are known.
        """
        between = VARIANTS[self.variant] * last
        begin = between if first is None else first
        end = last if first is None or len(self.steps) > 1 else first
        return torch.stack(self._each_step(begin, between, end), 1)

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

    def _heads(self, batch: ProblemBatch, keys: Sequence[Key]) -> list[dict[str, Tensor]]:
        """Return the parameters of the head at every step."""
        drawn = dict(batch.head_parameters)
        if not batch.head.train:
            return [drawn] * len(self.steps)
        between = {name: VARIANTS[self.variant] * p for name, p in drawn.items()}
        last = between
        if set(drawn) == {"v"}:
            last = {"v": self.stored.filled("trained_v", keys, between["v"])}
        return self._each_step(drawn, between, last)

    def _factors(
        self, start: tuple[Tensor, ...] | None, keys: Sequence[Key], d: int
    ) -> list[Tensor]:
        """Return K and Q at every step, if a probe needs them."""
        rule, paths = self.objects.parameterization, []
        if self.objects.factors and len(rule.NAMES) == 2:
            for k, (name, shape) in enumerate(zip("KQ", rule.shapes(d), strict=True)):
                none = torch.zeros(len(keys), *shape, dtype=torch.float64)
                last = self.stored.filled(f"trained_{name}", keys, none)
                path = self._path(start[k] if start else None, last)
                paths.append(self._noisy(path.flatten(0, 1)).view(path.shape))
        return paths

    def _layers(self, batch: ProblemBatch) -> Trained:
        """Return the stored weights of each layer and head as problems of one layer."""
        made, keys = self.objects, _keys(batch)
        model: Any = made.model
        rule, loss = made.parameterization, made.loss
        optimizer: Any = copy.copy(made.optimizer)
        optimizer.steps = 0  # only the initial weights
        first = train_layers(batch, model, rule, optimizer, loss).snapshots[:, 0]
        net = TrainedNetwork(model, batch, loss, rule)
        drawn = net.drawn
        others = drawn.others(model).items()
        parts = {n: self._noisy(self.stored.filled(f"network_{n}", keys, p)) for n, p in others}
        end = drawn.replaced(parts)
        path = self._path(first, self.stored.filled("network_W", keys, first))
        path = self._noisy(path.reshape(-1, *path.shape[-2:])).view(path.shape)
        pairs = zip(path.unbind(1), self._each_step(drawn, end, end), strict=True)
        views = (net.recorded(weights.replaced({"W": V})) for V, weights in pairs)
        risks, logs = zip(*views, strict=True)
        networks = LayerTrajectory(
            model, loss, self._grid(), path, torch.stack(risks, 1), torch.stack(logs, 1),
            end.replaced({"W": path[:, -1].clone()}), None, None,
            torch.zeros(path.shape[0], *path.shape[2:4], dtype=torch.float64),
        )  # fmt: skip
        divided = self.divided(batch, networks)
        keys = _keys(divided.batch, divided.key)
        trained = divided.path
        lost = trained.diverged | self._without_arrays(keys)
        ended = dataclasses.replace(trained, direction_error=self._stalled(keys), diverged=lost)
        return dataclasses.replace(divided, path=ended)

    # --- SVMs -------------------------------------------------------------------------------------

    def solve(
        self, batch: ProblemBatch, key: Mapping[str, Tensor], name: str, compute: Callable[[], Any]
    ) -> Any:
        """Return the stored solutions."""
        keys, stored = _keys(batch, key), self.stored
        for one in keys:
            if one not in stored.place:
                raise CorruptRecordError(f"solutions.npz: no arrays of {one}, which has an SVM")
        X, Z = (stored.filled(one, keys, getattr(batch, one)) for one in ("X", "Z"))
        admissible = "distinct" if "distinct" in stored.arrays else "mask"
        mask = stored.filled(admissible, keys, batch.mask)
        if name == "log_softmax":
            return stored.filled(name, keys, X[..., 0])
        selected = stored.filled("selected", keys, X.new_zeros(X.shape[:2], dtype=torch.int64))
        if name.endswith("_ratio"):
            ratio = stored.filled(name, keys, X.new_zeros(len(keys)))
            return torch.where(ratio > 0, ratio, torch.nan)  # 0: none was found
        if name == "classifier":
            problem = svm.single_token(*joint.of_head(batch, selected))
            return self._solution(name, "frobenius", keys, problem)
        if f"{name}_ratio" in stored.arrays:
            offsets = stored.filled(f"{name}_offsets", keys, X.new_zeros(selected.shape))
            ratio = stored.filled(f"{name}_ratio", keys, X.new_zeros(len(keys)))
            if "reached" in stored.arrays:  # of a network
                mask = stored.filled("reached", keys, mask)
            problem = with_offsets(svm.single_token(X, Z, selected, mask), offsets, ratio)
            return self._solution(name, name.partition("_")[0], keys, problem)
        if "attended" not in stored.arrays or name == "one_token":
            norm = "frobenius" if name == "one_token" else name
            return self._solution(name, norm, keys, svm.single_token(X, Z, selected, mask))
        given = X, Z, stored.filled("attended", keys, mask)
        logs = stored.filled("log_softmax", keys, X[..., 0])
        norm, _, part = name.rpartition("_")
        if part == "fin":
            fin, mm = svm.finite_part(*given, logs, mask), svm.multi_token(*given, mask)
            parts = ((name, fin), (norm, mm))
            return tuple(self._solution(one, norm, keys, problem) for one, problem in parts)
        problem, _ = svm.attained(X, Z, selected, given[2], logs, mask)
        a = stored.filled(f"{norm}_attained_multipliers", keys, torch.zeros_like(problem.h))
        solved, undecided = svm.SvmStatus.solved, svm.SvmStatus.undecided
        return SimpleNamespace(
            statuses=[undecided if none else solved for none in a.isnan().any(1).tolist()],
            lower_bound=lower_bound(problem, a.nan_to_num(0.0), norm)[1],
            certificate=SimpleNamespace(multipliers=a),
        )

    def _solution(
        self, name: str, norm: str, keys: list[Key], problem: svm.SvmProblem
    ) -> svm.SvmSolution[Tensor]:
        """Return the stored solutions of the SVM `name`; `attnsvm.verify.layer` proves them.

        It also proves kappa and the bound of the rank, which are not known here.
        """
        at = [self.stored.place[key] for key in keys]
        a, unknown = torch.zeros_like(problem.h), torch.full_like(problem.h[:, 0], torch.nan)
        numbers = {
            one: self.stored.filled(f"{name}_{one}", keys, unknown)
            for one in ("objective", "lower_bound", "duality_gap", "min_margin")
        }
        W = self.stored.filled(f"{name}_W", keys, a.new_zeros(len(at), problem.d, problem.d))
        multipliers, ray = (
            self.stored.filled(f"{name}_{one}", keys, a) for one in ("multipliers", "ray")
        )
        rank = self.stored.filled(f"{name}_rank", keys, torch.zeros(len(at), dtype=torch.int64))
        return svm.SvmSolution(
            W=W,
            status=tuple(map(svm.SvmStatus, self.stored.arrays[f"{name}_status"][at].tolist())),
            **numbers,
            rank=rank,
            rank_bound=torch.full_like(rank, -1),
            sigma=torch.linalg.svdvals(W.nan_to_num(0.0)),
            support=torch.from_numpy(self.stored.supports[name][at, self.variant % 2]),
            kappa=unknown,
            certificate=Certificate(
                multipliers, numbers["objective"], numbers["lower_bound"], numbers["duality_gap"],
                unknown, unknown, ray, unknown,
            ),
            solve_time_s=0.0,
            minimised=norm_of(norm),
            problem=problem,
        )  # fmt: skip


def _keys(batch: ProblemBatch, key: Mapping[str, Tensor] | None = None) -> list[Key]:
    """Return what tells the rows of a batch apart: seed, of a network layer and head too."""
    columns = [batch.seeds, *(key or {}).values()]
    return [tuple(map(int, one)) for one in zip(*(c.tolist() for c in columns), strict=True)]
