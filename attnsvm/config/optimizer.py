"""The schema of the group `optimizer`: the update rule of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p
from typing import Annotated, ClassVar

from attnsvm.config.fields import (
    INDEX,
    NOT_NEGATIVE,
    POSITIVE,
    SEEDS,
    SIZE,
    Broken,
    ListOf,
    OneOf,
    Option,
    Range,
)
from attnsvm.config.norm import NormName

CONES = ("cone", "cone_runner_up")
"""Initial weights at an angle to the direction of an SVM."""


@dataclass
class OptimizerConfig(Option):
    """How every instance is trained, and from which initial weights."""

    GROUP = "optimizer"
    ROTATION_EQUIVARIANT: ClassVar[bool] = False
    """Whether its steps are the same in every orthonormal basis: not if it acts on entries."""

    init: Annotated[
        str,
        OneOf(
            (
                "zero",
                "uniform",
                "small",
                "balanced",
                "aligned",
                "cone",
                "cone_runner_up",
                "file",
                "pretrained",
            )
        ),
        "initial weights; balanced: those of small with K^T K = Q^T Q; aligned: against the "
        "gradient at W = 0; cone: at init_angle to an SVM's direction; cone_runner_up: that of "
        "the optimal tokens, but of the second best in the first sample; file: those in "
        "init_path; pretrained: those of the head of data=pretrained",
    ] = "uniform"
    init_scale: Annotated[
        float,
        POSITIVE,
        "factor on the uniform draw when init=small | balanced; norm of W when init=aligned | "
        "cone | cone_runner_up",
    ] = 1e-2
    init_path: Annotated[
        str | None,
        ".npz; init=file: W0, or K0 and Q0; init=cone: tokens (null: the optimal ones); for all"
        " instances, or, with an array seeds, for each",
    ] = None
    init_angle: Annotated[
        float,
        Range(0, 180),
        "angle of W to the SVM's direction, init=cone | cone_runner_up (degrees)",
    ] = 0.0

    def _broken(self) -> Broken:
        if self.init == "file" and self.init_path is None:
            yield "init_path", "an .npz file with init=file"
        if self.init_path is not None and self.init not in ("file", "cone"):
            yield "init_path", f"null with init={self.init}"


@dataclass
class FirstOrderConfig(OptimizerConfig):
    """First-order steps, step k = 0, 1, ... of size eta_k, of all samples or of some."""

    OF_THE_RISK: ClassVar[bool] = False
    """Whether a step needs the risk of all samples, and no other change of the weights."""

    lr: Annotated[float, POSITIVE, "step size (Frobenius norm of a normalised step)"] = 0.1
    steps: Annotated[int, INDEX, "number of updates"] = 2000
    growth: Annotated[
        float, NOT_NEGATIVE, "change of the step size per step, see schedule; 0: constant"
    ] = 0.0
    schedule: Annotated[
        str,
        OneOf(("linear", "geometric", "decay")),
        "linear: eta_k = lr (1 + growth k); geometric: lr (1 + growth)^k; decay: lr / (1 + "
        "growth k)^decay",
    ] = "linear"
    decay: Annotated[float, Range(0, 1, open=True), "exponent of schedule=decay"] = 0.5
    gradient: Annotated[
        str,
        OneOf(("log_domain", "direct")),
        "log_domain: exact at any norm; direct: as published, rounding noise after saturation",
    ] = "log_domain"
    ridge: Annotated[float, NOT_NEGATIVE, "weight of the squared Frobenius norms in the loss"] = 0.0
    weight_decay: Annotated[
        float,
        NOT_NEGATIVE,
        "lambda: a step also moves the attention weights by -eta_k lambda of themselves "
        "(decoupled, as of AdamW)",
    ] = 0.0
    batch: Annotated[int | None, SIZE, "samples of a step's gradient, batch <= n; null: all"] = None
    order: Annotated[
        str,
        OneOf(("cyclic", "shuffled", "replacement")),
        "in which order batches take the samples: as they are, shuffled anew for each pass, or "
        "drawn with replacement",
    ] = "shuffled"
    order_seed: Annotated[int, SEEDS, "seed of the order, the same for all instances"] = 0
    record_every: Annotated[int, SIZE, "steps between two snapshots"] = 100
    record: Annotated[
        str,
        OneOf(("linear", "geometric")),
        "linear: a snapshot every record_every steps; geometric: at 1, 2, 5, 10, 20, 50, ...",
    ] = "linear"

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.schedule == "geometric" and self.steps * log1p(self.growth) > 700:
            yield "growth", "smaller with schedule=geometric: its last step size is not finite"
        if self.OF_THE_RISK and self.batch is not None:
            yield "batch", "null: its step is by the risk of all samples"
        if self.OF_THE_RISK and self.weight_decay:
            yield "weight_decay", "0: its step is by the risk alone"
        if self.weight_decay and (self.growth and self.schedule != "decay"):
            yield "weight_decay", "0 with steps that grow: they would overshoot"
        if self.lr * self.weight_decay > 1:
            yield "weight_decay", f"<= 1 / optimizer.lr={self.lr}: a step would turn the weights"


@dataclass
class DescentConfig(FirstOrderConfig):
    """Steps along the gradient, or a mean of gradients."""

    ROTATION_EQUIVARIANT = True


class NormalizedGDConfig(DescentConfig, name="normalized_gd"):
    """Normalised gradient descent, the paper's; of (K, Q) each factor by its own norm."""


class GDConfig(DescentConfig, name="gd"):
    """Gradient descent with a fixed step: W grows like log(steps)."""

    lr: Annotated[float, POSITIVE, "step size"] = 30.0
    steps: int = 50000


class SafeGDConfig(DescentConfig, name="safe_gd"):
    """Gradient descent whose step is the largest that provably lowers the risk.

    It grows as attention saturates.
    """

    OF_THE_RISK = True
    lr: Annotated[float, Range(0, 1, open=True), "share of that step"] = 1.0

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.growth and self.schedule != "decay":
            yield "growth", "0, or schedule=decay: larger steps may raise the risk"


class PolyakConfig(DescentConfig, name="polyak"):
    """Gradient descent with step lr (L - L*) / ||grad||^2, L* the risk at the optimal tokens."""

    OF_THE_RISK = True
    lr: Annotated[float, POSITIVE, "factor on the Polyak step"] = 1.0


class MomentumConfig(DescentConfig, name="momentum"):
    """Heavy-ball gradient descent with a fixed step: W grows like log(steps)."""

    lr: Annotated[float, POSITIVE, "step size"] = 3.0
    steps: int = 50000
    beta: Annotated[float, Range(0, 1), "decay rate of the velocity"] = 0.9
    nesterov: Annotated[bool, "steps along gradient + beta velocity"] = False


class AdamConfig(FirstOrderConfig, name="adam"):
    """Adam with bias correction; eps=0 makes it blind to the size of the gradient."""

    lr: Annotated[float, POSITIVE, "step size (of an entry)"] = 0.1
    beta1: Annotated[float, Range(0, 0.999999), "decay rate of the mean gradient"] = 0.9
    beta2: Annotated[float, Range(0, 0.999999), "decay rate of the mean squared gradient"] = 0.999
    eps: Annotated[float, NOT_NEGATIVE, "added to the root of the mean squared gradient"] = 1e-8


class SignGDConfig(FirstOrderConfig, name="sign_gd"):
    """Every entry changes by the step size, against the sign of its gradient."""

    lr: Annotated[float, POSITIVE, "step size (of an entry)"] = 0.01


class SteepestConfig(FirstOrderConfig, name="steepest"):
    """Steps of one size in optimizer.norm, along the gradient or its momentum: margins in it.

    Of (K, Q) each factor by itself.
    """

    ROTATION_EQUIVARIANT = True  # in a norm that is: one of entries is refused for itself
    norm: Annotated[
        str,
        NormName(),
        "norm of the steps; A+B: A of all columns but the last, B of the last, a bias",
    ] = "spectral"
    beta: Annotated[float, Range(0, 1, below=True), "decay rate of the momentum; 0: none"] = 0.0
    nesterov: Annotated[bool, "steps along gradient + beta momentum"] = False


class MuonConfig(FirstOrderConfig, name="muon"):
    """Muon: Nesterov momentum made nearly orthogonal by Newton-Schulz steps, as published.

    Steps are times the root of rows / columns where a matrix has more rows, as of torch.optim.Muon.
    """

    ROTATION_EQUIVARIANT = True
    lr: Annotated[float, POSITIVE, "step size (spectral norm)"] = 0.02
    beta: Annotated[float, Range(0, 1, below=True), "decay rate of the momentum; 0: none"] = 0.95
    nesterov: Annotated[bool, "steps along gradient + beta momentum"] = True
    newton_schulz_steps: Annotated[int, SIZE, "number of Newton-Schulz steps"] = 5
    polynomial: Annotated[
        str,
        OneOf(("jordan", "you", "polar_express", "quintic", "cubic", "exact")),
        "polynomials of these steps, published by K. Jordan, J. You, arXiv 2505.16932, or the "
        "classical ones; exact: the polar factor itself",
    ] = "jordan"


class MirrorDescentConfig(FirstOrderConfig, name="mirror_descent"):
    """Mirror descent with the potential sum |w|^p / p: margins in the l_p norm."""

    growth: Annotated[float, NOT_NEGATIVE, "change of the step size per step, see schedule"] = 0.05
    p: Annotated[float, Range(1, 100, open=True), "exponent of the potential, p > 1"] = 3.0
    normalized: Annotated[bool, "divide the gradient by its norm, l_q with 1/p + 1/q = 1"] = True


class RegularizationPathConfig(OptimizerConfig, name="regularization_path"):
    """Minimisers in balls of growing radius R; their directions tend to the attention SVMs.

    The balls are ||W||_F <= R, or (||K||_F^2 + ||Q||_F^2)/2 <= R.
    """

    ROTATION_EQUIVARIANT = True
    radii: Annotated[list[float], ListOf(POSITIVE), "radii R, increasing"] = [
        3.0,
        10.0,
        30.0,
        100.0,
        300.0,
        1e3,
        3e3,
        1e4,
        3e4,
    ]
    iterations: Annotated[int, SIZE, "largest number of iterations at a radius"] = 1000
    cone: Annotated[
        float | None,
        Range(0, 90, open=True, below=True),
        "largest angle to the initial weights, in degrees: a local path; null: none",
    ] = None

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.cone is not None and self.init == "zero":
            yield "init", "another start with optimizer.cone"
        if list(self.radii) != sorted(self.radii):
            yield "radii", "an increasing list"
