"""The schema of the group `optimizer`: the update rule of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p
from typing import ClassVar

from attnsvm.config.fields import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_COUNT,
    Broken,
    ListOf,
    OneOf,
    Option,
    Range,
    option,
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

    STEADY: ClassVar[tuple[str, ...]] = ()
    """Parameterizations of which its steps, if they do not grow, never amplify rounding errors."""

    init: str = option(
        "uniform",
        OneOf(("zero", "uniform", "small", "balanced", "aligned", *CONES, "file", "pretrained")),
        "initial weights; balanced: those of small with K^T K = Q^T Q; aligned: against the "
        "gradient at W = 0; cone: at init_angle to an SVM's direction; cone_runner_up: that of the "
        "optimal tokens, but of the second best in the first sample; file: those in init_path; "
        "pretrained: those of the head of data=pretrained",
    )
    init_scale: float = option(
        1e-2,
        POSITIVE,
        "factor on the uniform draw when init=small | balanced; norm of W when init=aligned | cone "
        "| cone_runner_up",
    )
    init_path: str | None = option(
        None,
        None,
        ".npz; init=file: W0, or K0 and Q0; init=cone: tokens (null: the optimal ones); for all "
        "instances, or, with an array seeds, for each",
    )
    init_angle: float = option(
        0.0,
        Range(0, 180),
        "angle of W to the SVM's direction, init=cone | cone_runner_up (degrees)",
    )

    def _broken(self) -> Broken:
        if self.init == "file" and self.init_path is None:
            yield "init_path", "an .npz file with init=file"
        if self.init_path is not None and self.init not in ("file", "cone"):
            yield "init_path", f"null with init={self.init}"


@dataclass
class FirstOrderConfig(OptimizerConfig):
    """Full-batch first-order steps, step k = 0, 1, ... of size eta_k."""

    lr: float = option(0.1, POSITIVE, "step size (Frobenius norm of a normalised step)")
    steps: int = option(2000, COUNT, "number of updates")
    growth: float = option(
        0.0, NON_NEGATIVE, "change of the step size per step, see schedule; 0: constant"
    )
    schedule: str = option(
        "linear",
        OneOf(("linear", "geometric", "decay")),
        "linear: eta_k = lr (1 + growth k); geometric: lr (1 + growth)^k; "
        "decay: lr / (1 + growth k)^decay",
    )
    decay: float = option(0.5, Range(0, 1, open=True), "exponent of schedule=decay")
    gradient: str = option(
        "log_domain",
        OneOf(("log_domain", "direct")),
        "log_domain: exact at any norm; direct: as published, rounding noise after saturation",
    )
    ridge: float = option(0.0, NON_NEGATIVE, "weight of the squared Frobenius norms in the loss")
    record_every: int = option(100, POSITIVE_COUNT, "steps between two snapshots")
    record: str = option(
        "linear",
        OneOf(("linear", "geometric")),
        "linear: a snapshot every record_every steps; geometric: at 1, 2, 5, 10, 20, 50, ...",
    )

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.schedule == "geometric" and self.steps * log1p(self.growth) > 700:
            yield "growth", "smaller with schedule=geometric: its last step size is not finite"


@dataclass
class DescentConfig(FirstOrderConfig):
    """Steps along the gradient, or a mean of gradients."""

    ROTATION_EQUIVARIANT = True
    STEADY: ClassVar[tuple[str, ...]] = ("w", "kq")


class NormalizedGDConfig(DescentConfig, name="normalized_gd", target="NormalizedGD"):
    """Gradient divided by its norm; for (K, Q) each factor by its own norm."""

    STEADY = ("w",)


class GDConfig(DescentConfig, name="gd", target="GD"):
    """Gradient descent with a fixed step: W grows like log(steps)."""

    lr: float = option(30.0, POSITIVE, "step size")
    steps: int = option(50000, COUNT, "number of updates")


class SafeGDConfig(DescentConfig, name="safe_gd", target="SafeGD"):
    """Gradient descent whose step is the largest that provably lowers the risk."""

    lr: float = option(1.0, Range(0, 1, open=True), "share of that step")

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.growth and self.schedule != "decay":
            yield "growth", "0, or schedule=decay: larger steps may raise the risk"


class PolyakConfig(DescentConfig, name="polyak", target="Polyak"):
    """Gradient descent with step lr (L - L*) / ||grad||^2, L* the risk at the optimal tokens."""

    lr: float = option(1.0, POSITIVE, "factor on the Polyak step")


class MomentumConfig(DescentConfig, name="momentum", target="Momentum"):
    """Heavy-ball gradient descent with a fixed step: W grows like log(steps)."""

    lr: float = option(3.0, POSITIVE, "step size")
    steps: int = option(50000, COUNT, "number of updates")
    beta: float = option(0.9, Range(0, 1), "decay rate of the velocity")


class AdamConfig(FirstOrderConfig, name="adam", target="Adam"):
    """Adam with bias correction."""

    STEADY = ("w", "kq")
    lr: float = option(0.1, POSITIVE, "step size (of an entry)")
    beta1: float = option(0.9, Range(0, 0.999999), "decay rate of the mean gradient")
    beta2: float = option(0.999, Range(0, 0.999999), "decay rate of the mean squared gradient")
    eps: float = option(1e-8, NON_NEGATIVE, "added to the root of the mean squared gradient")


class SignGDConfig(FirstOrderConfig, name="sign_gd", target="SignGD"):
    """Every entry changes by the step size, against the sign of its gradient."""

    lr: float = option(0.01, POSITIVE, "step size (of an entry)")


class SteepestConfig(FirstOrderConfig, name="steepest", target="Steepest"):
    """Steps of one size in a norm, along the gradient or its momentum; (K, Q) each factor."""

    ROTATION_EQUIVARIANT = True  # in a norm that is: one of entries is refused for itself
    norm: str = option("spectral", NormName(), "norm of the steps")
    beta: float = option(0.0, Range(0, 1, below=True), "decay rate of the momentum; 0: none")
    nesterov: bool = option(False, None, "steps along gradient + beta momentum")


class MuonConfig(FirstOrderConfig, name="muon", target="Muon"):
    """Nesterov momentum made nearly orthogonal by Newton-Schulz steps."""

    ROTATION_EQUIVARIANT = True
    lr: float = option(0.02, POSITIVE, "step size (spectral norm)")
    beta: float = option(0.95, Range(0, 1, below=True), "decay rate of the momentum; 0: none")
    nesterov: bool = option(True, None, "steps along gradient + beta momentum")
    newton_schulz_steps: int = option(5, POSITIVE_COUNT, "number of Newton-Schulz steps")


class MirrorDescentConfig(FirstOrderConfig, name="mirror_descent", target="MirrorDescent"):
    """Mirror descent with the potential sum |w|^p / p."""

    growth: float = option(0.05, NON_NEGATIVE, "change of the step size per step, see schedule")
    p: float = option(3.0, Range(1, 100, open=True), "exponent of the potential, p > 1")
    normalized: bool = option(True, None, "divide the gradient by its norm, l_q with 1/p + 1/q = 1")


class RegularizationPathConfig(
    OptimizerConfig, name="regularization_path", target="RegularizationPath"
):
    """Minimisers in balls ||W||_F <= R, or (||K||_F^2 + ||Q||_F^2)/2 <= R, of growing R."""

    ROTATION_EQUIVARIANT = True
    radii: list[float] = option(
        [3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4],
        ListOf(Range(low=0, open=True)),
        "radii R, increasing",
    )
    iterations: int = option(1000, POSITIVE_COUNT, "largest number of iterations at a radius")
    cone: float | None = option(
        None,
        Range(low=0, high=90, open=True, below=True),
        "largest angle to the initial weights, in degrees: a local path; null: none",
    )

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.cone is not None and self.init == "zero":
            yield "init", "another start with optimizer.cone"
        if list(self.radii) != sorted(self.radii):
            yield "radii", "an increasing list"
