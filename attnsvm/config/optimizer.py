"""The schema of the group `optimizer`: the update rule of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p
from typing import ClassVar

from attnsvm.config.fields import Broken, Option

CONES = ("cone", "cone_runner_up")
"""Initial weights at an angle to the direction of an SVM."""


@dataclass
class OptimizerConfig(Option):
    """How every instance is trained, and from which initial weights."""

    GROUP = "optimizer"
    ROTATION_EQUIVARIANT: ClassVar[bool] = False
    """Whether its steps are the same in every orthonormal basis: not if it acts on entries."""

    init: str = "uniform"
    init_scale: float = 1e-2
    init_path: str | None = None
    init_angle: float = 0.0

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

    lr: float = 0.1
    steps: int = 2000
    growth: float = 0.0
    schedule: str = "linear"
    decay: float = 0.5
    gradient: str = "log_domain"
    ridge: float = 0.0
    weight_decay: float = 0.0
    batch: int | None = None
    order: str = "shuffled"
    order_seed: int = 0
    record_every: int = 100
    record: str = "linear"

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


class NormalizedGDConfig(DescentConfig, name="normalized_gd", target="NormalizedGD"):
    """Gradient divided by its norm; for (K, Q) each factor by its own norm."""


class GDConfig(DescentConfig, name="gd", target="GD"):
    """Gradient descent with a fixed step: W grows like log(steps)."""

    lr: float = 30.0
    steps: int = 50000


class SafeGDConfig(DescentConfig, name="safe_gd", target="SafeGD"):
    """Gradient descent whose step is the largest that provably lowers the risk."""

    OF_THE_RISK = True
    lr: float = 1.0

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.growth and self.schedule != "decay":
            yield "growth", "0, or schedule=decay: larger steps may raise the risk"


class PolyakConfig(DescentConfig, name="polyak", target="Polyak"):
    """Gradient descent with step lr (L - L*) / ||grad||^2, L* the risk at the optimal tokens."""

    OF_THE_RISK = True
    lr: float = 1.0


class MomentumConfig(DescentConfig, name="momentum", target="Momentum"):
    """Heavy-ball gradient descent with a fixed step: W grows like log(steps)."""

    lr: float = 3.0
    steps: int = 50000
    beta: float = 0.9
    nesterov: bool = False


class AdamConfig(FirstOrderConfig, name="adam", target="Adam"):
    """Adam with bias correction."""

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


class SignGDConfig(FirstOrderConfig, name="sign_gd", target="SignGD"):
    """Every entry changes by the step size, against the sign of its gradient."""

    lr: float = 0.01


class SteepestConfig(FirstOrderConfig, name="steepest", target="Steepest"):
    """Steps of one size in a norm, along the gradient or its momentum; (K, Q) each factor."""

    ROTATION_EQUIVARIANT = True  # in a norm that is: one of entries is refused for itself
    norm: str = "spectral"
    beta: float = 0.0
    nesterov: bool = False


class MuonConfig(FirstOrderConfig, name="muon", target="Muon"):
    """Nesterov momentum made nearly orthogonal by Newton-Schulz steps."""

    ROTATION_EQUIVARIANT = True
    lr: float = 0.02
    beta: float = 0.95
    nesterov: bool = True
    newton_schulz_steps: int = 5
    polynomial: str = "jordan"


class MirrorDescentConfig(FirstOrderConfig, name="mirror_descent", target="MirrorDescent"):
    """Mirror descent with the potential sum |w|^p / p."""

    growth: float = 0.05
    p: float = 3.0
    normalized: bool = True


class RegularizationPathConfig(
    OptimizerConfig, name="regularization_path", target="RegularizationPath"
):
    """Minimisers in balls ||W||_F <= R, or (||K||_F^2 + ||Q||_F^2)/2 <= R, of growing R."""

    ROTATION_EQUIVARIANT = True
    radii: list[float] = [3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4]
    iterations: int = 1000
    cone: float | None = None

    def _broken(self) -> Broken:
        yield from super()._broken()
        if self.cone is not None and self.init == "zero":
            yield "init", "another start with optimizer.cone"
        if list(self.radii) != sorted(self.radii):
            yield "radii", "an increasing list"
