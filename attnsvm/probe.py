"""Probes, numbers that a run measures of weights and attention: `probe=[NAME]` is a class here.

Their columns, with meaning, unit and range, are declared in `attnsvm.config.probe`.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.data.problem import ProblemBatch
from attnsvm.display.pace import each
from attnsvm.head import Linear
from attnsvm.linalg import one_minus_correlation, times, unit
from attnsvm.loss import Loss
from attnsvm.nn.risk import Risk, attend
from attnsvm.norm import norm_of
from attnsvm.parameterization import W
from attnsvm.record import CorruptRecordError
from attnsvm.record.archive import read_array
from attnsvm.svm import SvmSolution, SvmStatus
from attnsvm.svm.equalities import restoring
from attnsvm.theory import finite_part_distance, optimal_mixture
from attnsvm.theory.comparison import margin_gap
from attnsvm.theory.token_graph import priority_graphs
from attnsvm.training import Trajectory

NORMS = {"frobenius", "nuclear"}
"""Norms of the SVMs that probes measure against."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a batch of B instances at one recorded step.

    The number of updates, or the radius of a regularisation path; weights W (B, d, d), finite;
    factors K and Q (B, d, m), only for a probe with `FACTORS`; attention s (B, n, T), 0 at
    inadmissible tokens; the token (B, n), int64, that each sample attends to most at the end of
    training; the loss of the run; and the SVMs of the selected tokens that the run solves, by norm:
    with selection=multi the margin part W_mm of Gen-SVM.
    """

    batch: ProblemBatch
    step: float
    W: Tensor
    K: Tensor | None
    Q: Tensor | None
    softmax: Tensor
    selected: Tensor
    loss: Loss
    solutions: Mapping[str, SvmSolution[Tensor]]


class Probe(ABC):
    """Measures the quantities that its schema declares, of every instance by itself."""

    FACTORS: ClassVar[bool] = False
    """Whether it needs K and Q."""

    SOLUTIONS: ClassVar[bool] = False
    """Whether it needs the SVMs of the selected tokens."""

    GEN_SVM: ClassVar[bool] = False
    """Whether it also measures against Gen-SVM, whose problems have equalities."""

    WEIGHTS: ClassVar[bool] = False
    """Whether it needs the weights that come with data=pretrained."""

    def check(self, d: int) -> None:  # noqa: B027
        """Raise ConfigError if it cannot measure weights of shape (d, d)."""

    @abstractmethod
    def measure(self, snapshot: Snapshot) -> Mapping[str, Tensor]:
        """Return declared quantities, float64 of shape (B,); NaN where one is not defined.

        One that is missing is defined for no instance.
        """


def measured(probe: Probe, quantities: Iterable[str], snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the quantities of a probe, each (B,); NaN for instances whose weights are not finite.

    ValueError if the probe returns something else than its schema declares.
    """
    finite = snapshot.W.flatten(1).isfinite().all(-1)
    zeroed: dict[str, Any] = {
        name: V.masked_fill(~finite[:, None, None], 0.0)
        for name in ("W", "K", "Q", "softmax")
        if (V := getattr(snapshot, name)) is not None and not finite.all()
    }
    values = dict.fromkeys(quantities, torch.full_like(snapshot.W[:, 0, 0], torch.nan))
    for name, value in probe.measure(dataclasses.replace(snapshot, **zeroed)).items():
        form, must = (tuple(value.shape), value.dtype), (tuple(finite.shape), torch.float64)
        if name not in values or form != must:
            allowed = f"must be one of {sorted(values)}, {must[0]} {must[1]}"
            raise ValueError(
                f"probe {type(probe).__name__}: {name}: {form[0]} {form[1]}; {allowed}"
            )
        values[name] = torch.where(finite, value, torch.nan)
    return values


def over_steps(
    probe: Probe, quantities: Iterable[str], batch: ProblemBatch, path: Trajectory, **fields: Any
) -> dict[str, Tensor]:
    """Return the quantities of a probe at every snapshot, each (B, S).

    `fields` are `selected`, `loss` and `solutions` of every `Snapshot`.
    """
    values = []
    for s in each("snapshot", range(len(path.steps))):
        K, Q = (None if V is None else V[:, s] for V in (path.K_snapshots, path.Q_snapshots))
        state = path.snapshots[:, s], K, Q, path.softmax[:, s]
        snapshot = Snapshot(batch, float(path.steps[s]), *state, **fields)
        values.append(measured(probe, quantities, snapshot))
    return {name: torch.stack([at_step[name] for at_step in values], dim=1) for name in values[0]}


# --- of W -----------------------------------------------------------------------------------------


class Rank(Probe):
    """Effective rank #{sigma_k > threshold sigma_1} and stable rank sum_k sigma_k^2 / sigma_1^2.

    0 < threshold < 1; NaN for W = 0.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return both ranks, from the singular values."""
        sigma = torch.linalg.svdvals(snapshot.W)
        ratio = sigma / sigma[:, :1]  # NaN for W = 0
        effective = (ratio > self.threshold).sum(-1).to(sigma)
        return {
            "effective": torch.where(sigma[:, 0] > 0, effective, torch.nan),
            "stable": ratio.square().sum(-1),
        }


class Balance(Probe):
    """||K^T K - Q^T Q||_F / (||K||_F ||Q||_F); NaN where a factor is zero.

    Gradient flow keeps K^T K - Q^T Q; it is zero for factors of the least norm of K Q^T.
    """

    FACTORS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the gap."""
        K, Q = snapshot.K, snapshot.Q
        assert K is not None
        assert Q is not None
        k, q = (F.flatten(1).norm(dim=1)[:, None, None] for F in (K, Q))
        K, Q = K / k, Q / q  # squares do not overflow
        return {"gap": (K.mT @ K * (k / q) - Q.mT @ Q / (k / q)).flatten(1).norm(dim=1)}


class Distance(Probe):
    """|| W / ||W||_F - M / ||M||_F ||_F = sqrt(2 (1 - correlation)), from 0 to 2; NaN for W = 0.

    M (d, d), finite and not all zero, is in an .npy file. Nothing is unpickled.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def matrix(self) -> Tensor:
        """M, float64; ConfigError if the file cannot be read, or holds no such matrix."""
        must = "must be an .npy file with a matrix of finite numbers, not all zero"
        try:
            M = read_array(Path(self.path).resolve())
        except CorruptRecordError as error:
            raise ConfigError(f"probe.distance.path={self.path}: {error}; {must}") from error
        if M.dtype.kind not in "fiu" or M.ndim != 2 or not np.isfinite(M).all() or not M.any():
            raise ConfigError(f"probe.distance.path={self.path}: {M.dtype} {M.shape}; {must}")
        return torch.from_numpy(M.astype(np.float64))

    def check(self, d: int) -> None:
        """Raise ConfigError unless M is (d, d)."""
        if (shape := tuple(self.matrix.shape)) != (d, d):
            raise ConfigError(f"probe.distance.path={self.path}: shape {shape}; must be {(d, d)}")

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the distance."""
        apart = one_minus_correlation(snapshot.W, self.matrix.to(snapshot.W.device))
        return {"direction": (2 * apart).sqrt()}


class MarginGap(Probe):
    """1 - rho(W) of `attnsvm.margin_gap`, by norm; NaN for a norm whose SVM is not solved."""

    SOLUTIONS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the gap by each norm."""
        solutions = snapshot.solutions
        return {norm: margin_gap(snapshot.W, solutions[norm]) for norm in NORMS & solutions.keys()}


class Constrained(Probe):
    """1 - <-G, W> / (||G||_dual ||W||), G = grad L(W), between 0 and 2, and ||W||, by norm.

    Frank-Wolfe's gap, relative: L(W) - L(V) <= gap ||G||_dual ||W|| for all ||V|| <= ||W|| if the
    risk is convex, as that of a linear classifier. Steps of one size in a norm, with weights that
    decay, lead there (arXiv 2404.04454, 2506.15054). NaN where W or G is zero.
    """

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the gap, with the exact gradient whatever its size, and the norm of W."""
        risk, V = Risk(snapshot.batch, W(), snapshot.loss), (snapshot.W,)
        (G,) = risk.gradient(V, risk.forward(V)).parts
        values, along = {}, (G * snapshot.W).sum((1, 2))
        for norm in map(norm_of, ("frobenius", "spectral", "max", "nuclear")):
            values[f"size_{norm.name}"] = size = norm.value(snapshot.W)
            values[norm.name] = 1 + along / (norm.dual.value(G) * size)
        return values


class OtherHeads(Probe):
    """Mean correlation of the weights of the other heads with the SVM, by norm.

    The weights are those that come with data=pretrained. With selection=multi they are projected
    on the matrices with equal logits inside of every set of attended tokens, as W_mm has. NaN for a
    norm whose SVM is not solved, and where there is no other head.
    """

    SOLUTIONS: ClassVar[bool] = True
    GEN_SVM: ClassVar[bool] = True
    WEIGHTS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the mean correlation in each norm."""
        weights, solutions = snapshot.batch.weights, snapshot.solutions
        if weights is None or weights.shape[1] < 2 or not solutions:
            return {}
        restored = restoring(next(iter(solutions.values())).problem.equalities())
        rows = unit(torch.stack([restored(V) for V in weights[:, 1:].unbind(1)], 1)).flatten(2)
        return {
            norm: times(rows, unit(solutions[norm].W).flatten(1)[..., None]).mean((1, 2))
            for norm in NORMS & solutions.keys()
        }


# --- of attention ---------------------------------------------------------------------------------


class Entropy(Probe):
    """-sum_t s_t log s_t of each sample, in nats: 0 if it attends to one token, at most log T."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return mean and maximum over the samples."""
        entropy = torch.special.entr(snapshot.softmax).sum(-1)
        return {"mean": entropy.mean(-1), "max": entropy.amax(-1)}


class ExcessRisk(Probe):
    """log(L - L*) of `attnsvm.nn.risk.Risk.log_excess`, which neither cancels nor underflows.

    L* is the risk of attending to the selected tokens alone, the limit of L once attention
    saturates on them. NaN where L <= L*, and for heads other than the linear one.
    """

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return log(L - L*)."""
        if type(snapshot.batch.head) is not Linear:
            return {}
        risk = Risk(snapshot.batch, W(), snapshot.loss)
        value = risk.log_excess(risk.forward((snapshot.W,)), snapshot.selected)
        return {"log": value.where(value.isfinite(), torch.nan)}


class Slope(Probe):
    """min_i ||grad h(X_i^T s_i)||_2: 0 if the head is flat at a sample, which does not move W."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the least slope of the head over the samples."""
        batch = snapshot.batch
        means = (snapshot.softmax[:, :, None] @ batch.X)[:, :, 0]
        slopes = batch.head.gradient(means, batch.head_parameters)
        return {"least": slopes.norm(dim=-1).amin(-1)}


class HeldOut(Probe):
    """Attention on samples that W was not trained on, those of `ProblemBatch.held_out`."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the share of samples that attend most to an optimal token, and the excess risk."""
        batch = snapshot.batch.held_out
        if batch is None:
            raise ConfigError("probe=[held_out]: data must be planted, with data.held_out >= 1")
        forward = attend(batch, batch.Z @ snapshot.W.mT, batch.head_parameters)
        gamma = batch.scores()
        best = gamma.amax(-1)
        optimal = gamma.gather(2, forward.top)[..., 0] == best
        return {"optimal": optimal.double().mean(-1), "excess": (best - forward.margins).mean(-1)}


class Optimality(Probe):
    """Definition 2 of arXiv 2308.16898, sample by sample.

    The selected tokens of an instance are locally optimal in a norm if the share in it is 1. With
    selection=multi that is not defined where a sample attends to several tokens: NaN. Each share
    comes with its expected value if the scores of every sample were in random order: a token is
    above k others in one of 1 + k orders.
    """

    SOLUTIONS: ClassVar[bool] = True
    GEN_SVM: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the shares, and those by chance."""
        gamma, selected = snapshot.batch.scores(), snapshot.selected[..., None]
        below = gamma < gamma.gather(2, selected)
        others = snapshot.batch.mask.scatter(2, selected, False)
        shares = _shares("best", below, others)
        for norm in NORMS & snapshot.solutions.keys():
            solution = snapshot.solutions[norm]
            known = solution.having(SvmStatus.solved) & ~solution.problem.equality.any(1)
            for name, share in _shares(norm, below, solution.support).items():
                shares[name] = share.where(known, torch.nan)
        return shares


def _shares(name: str, below: Tensor, others: Tensor) -> dict[str, Tensor]:
    """Return the share of samples with all `others` (B, n, T) below, and that by chance."""
    return {
        name: (below | ~others).all(2).double().mean(1),
        f"{name}_chance": (1 + others.sum(2)).double().reciprocal().mean(1),
    }


@lru_cache(maxsize=1)  # of all snapshots
def mixture_of(batch: ProblemBatch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the mixture that scores best, and the distance of its finite part."""
    mixture = optimal_mixture(batch)
    return mixture, finite_part_distance(batch, mixture)


class Mixture(Probe):
    """The attention of least risk, and the W_fin that it determines; both known before training."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the total variation distance of the softmax, and the relative one of W_fin."""
        mixture, finite = mixture_of(snapshot.batch)
        apart = 0.5 * (snapshot.softmax - mixture).abs().sum(-1)
        return {"apart": apart.amax(-1), "fin": finite(snapshot.W)}


class TokenGraph(Probe):
    """The token-priority graphs of arXiv 2403.08081, and the attention that goes by them.

    Mean number of components and of edges of a query's graph, tokens of the largest component of
    all, and the attention to the component of the label, mean over the samples.
    """

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the sizes of the graphs, and the attention."""
        graphs, s = priority_graphs(snapshot.batch), snapshot.softmax
        inside = torch.stack([graph.inside for graph in graphs]).to(s.device)
        sizes = {name: [graph.sizes[name] for graph in graphs] for name in graphs[0].sizes}
        sizes["attention"] = (s * inside).sum(2).mean(1).tolist()
        return {name: s.new_tensor(values) for name, values in sizes.items()}
