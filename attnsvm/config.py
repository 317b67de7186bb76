"""What a run is: the schema behind `conf/`, every field with its default, its unit and its range.

Group name = folder in `conf/` = module name = field of `RunConfig`. A default stands here and
nowhere else. Nothing heavy is imported: a command line is checked before anything is loaded.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

MACHINE_EPS = 2.220446049250313e-16


class ConfigError(ValueError):
    """A value that is not allowed; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field may hold: low <= value <= high, strictly above low if `open`."""

    low: float = -math.inf
    high: float = math.inf
    open: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value` is a finite number in the range (NaN is in none)."""
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return False
        above = value > self.low if self.open else value >= self.low
        return above and value <= self.high

    def __str__(self) -> str:
        lower = f"{'>' if self.open else '>='} {self.low:g}" if self.low > -math.inf else ""
        upper = f"<= {self.high:g}" if self.high < math.inf else ""
        return f"a finite number {' and '.join(part for part in (lower, upper) if part)}".rstrip()


@dataclass(frozen=True)
class OneOf:
    """The words that a field may hold."""

    words: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of the words."""
        return value in self.words

    def __str__(self) -> str:
        return " | ".join(self.words)


@dataclass(frozen=True)
class ListOf:
    """A field that holds a list without repetition, each item allowed by `item`."""

    item: OneOf | Range

    def holds(self, value: Any) -> bool:
        """Whether `value` is a list of allowed items, none of them twice."""
        return (
            isinstance(value, Seq)
            and not isinstance(value, str)
            and all(self.item.holds(v) for v in value)
            and len(set(value)) == len(value)
        )

    def __str__(self) -> str:
        return f"a list without repetition of {self.item}"


def option(default: Any, allowed: Range | OneOf | ListOf | None, doc: str) -> Any:
    """Return a dataclass field with its default, the values it may hold and what it means."""
    metadata = {"allowed": allowed, "doc": doc}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(node: Any, prefix: str = "") -> None:
    """Raise ConfigError for the first field of the dataclass `node` of wrong type or range."""
    for f in dataclasses.fields(node):
        value, allowed = getattr(node, f.name), f.metadata.get("allowed")
        kind, _, optional = str(getattr(f.type, "__name__", f.type)).partition(" | ")
        if value is None and optional:
            continue
        if kind in KINDS and not _is_a(value, kind):
            raise ConfigError(f"{prefix}{f.name}={value}: allowed is {KINDS[kind]}{_and(allowed)}")
        if allowed is not None and not allowed.holds(value):
            raise ConfigError(f"{prefix}{f.name}={value}: allowed is {allowed}")


KINDS = {"int": "a whole number", "float": "a number", "bool": "true | false", "str": "a word"}


def _is_a(value: Any, kind: str) -> bool:
    if kind in ("bool", "str"):
        return isinstance(value, {"bool": bool, "str": str}[kind])
    number = numbers.Integral if kind == "int" else numbers.Real
    return isinstance(value, number) and not isinstance(value, bool)


def _and(allowed: Range | OneOf | ListOf | None) -> str:
    return "" if allowed is None else f", {allowed}"


class Group:
    """Base of the groups' options: checks its own fields as soon as it is made."""

    GROUP = ""

    def __post_init__(self) -> None:
        check_fields(self, prefix=f"{self.GROUP}.")


POSITIVE_COUNT = Range(low=1)
POSITIVE = Range(low=0, open=True)
NON_NEGATIVE = Range(low=0)


# --- model: who attends to what ------------------------------------------------------------------


@dataclass
class ModelConfig(Group):
    """Which query each sample has and which tokens it may attend to."""

    GROUP = "model"
    _target_: str = MISSING


@dataclass
class CrossAttentionConfig(ModelConfig):
    """The query z_i is drawn with the sample."""

    _target_: str = "attnsvm.model.CrossAttention"


@dataclass
class SelfAttentionConfig(ModelConfig):
    """The query is one of the sample's own tokens, z_i = x_{i,query}."""

    _target_: str = "attnsvm.model.SelfAttention"
    query: int = option(0, Range(low=0), "index of the query token, 0 <= query < T")


@dataclass
class SequenceConfig(ModelConfig):
    """Every position is a query: n sequences of T tokens become n*T samples."""

    _target_: str = "attnsvm.model.Sequence"
    causal: bool = option(False, None, "position k attends to tokens t <= k only")


# --- parameterization: what is trained -----------------------------------------------------------


@dataclass
class ParameterizationConfig(Group):
    """The variables that the attention weights W are made of."""

    GROUP = "parameterization"
    _target_: str = MISSING


@dataclass
class WConfig(ParameterizationConfig):
    """The combined weights W themselves."""

    _target_: str = "attnsvm.parameterization.W"


@dataclass
class KQConfig(ParameterizationConfig):
    """W = K Q^T with K, Q of shape (d, m)."""

    _target_: str = "attnsvm.parameterization.KQ"
    m: int | None = option(None, POSITIVE_COUNT, "columns of K and Q, 1 <= m <= d; null means d")


# --- head: from the attended token to a prediction -----------------------------------------------


@dataclass
class HeadConfig(Group):
    """The prediction head h."""

    GROUP = "head"
    _target_: str = MISSING


@dataclass
class LinearHeadConfig(HeadConfig):
    """h(o) = v^T o."""

    _target_: str = "attnsvm.head.Linear"
    train: bool = option(False, None, "train v together with the attention weights")


@dataclass
class ReluHeadConfig(HeadConfig):
    """h(o) = 1^T relu(V^T o) with ||V||_F = 1."""

    _target_: str = "attnsvm.head.Relu"
    train: bool = option(False, None, "train V together with the attention weights")


@dataclass
class MlpHeadConfig(HeadConfig):
    """A small torch.nn network: Linear(d, width), GELU, Linear(width, 1)."""

    _target_: str = "attnsvm.head.Mlp"
    width: int = option(16, POSITIVE_COUNT, "hidden units")
    train: bool = option(False, None, "train the network together with the attention weights")


@dataclass(init=False, repr=False, eq=False)
class QuadraticHeadConfig(HeadConfig):
    """h(o) = v^T o - lambda ||o||^2.

    The field is called `lambda`, as in the paper: a word that Python keeps to itself, hence the
    detour in its declaration.
    """

    _target_: str = "attnsvm.head.Quadratic"
    __annotations__["lambda"] = float
    locals()["lambda"] = option(0.1, NON_NEGATIVE, "weight of ||o||^2 (score units)")

    def __init__(self, **fields: Any) -> None:
        for f in dataclasses.fields(self):
            setattr(self, f.name, fields.pop(f.name, f.default))
        if fields:
            raise TypeError(f"unknown fields {sorted(fields)}")
        self.__post_init__()


# --- data: where instances come from -------------------------------------------------------------


@dataclass
class DataConfig(Group):
    """A seeded source of problem instances."""

    GROUP = "data"
    _target_: str = MISSING


@dataclass
class SphereConfig(DataConfig):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""

    _target_: str = "attnsvm.data.Sphere"
    n: int = option(6, POSITIVE_COUNT, "samples of an instance")
    T: int = option(8, POSITIVE_COUNT, "tokens of a sample")
    d: int = option(10, POSITIVE_COUNT, "dimension of a token")


@dataclass
class OrthonormalConfig(DataConfig):
    """Each sample's tokens are orthonormal (T <= d); all labels +1."""

    _target_: str = "attnsvm.data.Orthonormal"
    n: int = option(6, POSITIVE_COUNT, "samples of an instance")
    T: int = option(8, POSITIVE_COUNT, "tokens of a sample, T <= d")
    d: int = option(10, POSITIVE_COUNT, "dimension of a token")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.T > self.d:
            raise ConfigError(f"data.T={self.T}: allowed is T <= d={self.d} orthonormal tokens")


@dataclass
class PathsFarConfig(DataConfig):
    """First published two-dimensional scene: n=2, T=3, samples far apart."""

    _target_: str = "attnsvm.data.PathsFar"


@dataclass
class PathsNearConfig(DataConfig):
    """Second published two-dimensional scene: n=2, T=5, samples overlapping."""

    _target_: str = "attnsvm.data.PathsNear"


@dataclass
class FileConfig(DataConfig):
    """Instances from an .npz file: X (B,n,T,d), Z (B,n,d), Y (B,n), optional mask (B,n,T)."""

    _target_: str = "attnsvm.data.File"
    path: str = MISSING


@dataclass
class DigitsConfig(DataConfig):
    """Patches of scikit-learn's handwritten digits, two of them as the classes."""

    _target_: str = "attnsvm.digits.Digits"
    n: int = option(6, POSITIVE_COUNT, "images of an instance")
    positive: int = option(3, Range(0, 9), "the digit of label +1")
    negative: int = option(8, Range(0, 9), "the digit of label -1")
    patch: int = option(4, Range(1, 8), "pixels along the edge of a patch; d = patch^2")
    stride: int = option(2, Range(1, 8), "pixels from patch to patch; T = ((8-patch)//stride+1)^2")


# --- optimizer: how the weights move -------------------------------------------------------------


@dataclass
class OptimizerConfig(Group):
    """How every instance is trained, from which weights on."""

    GROUP = "optimizer"
    _target_: str = MISSING
    init: str = option("uniform", OneOf(("zero", "uniform", "small")), "initial weights")
    init_scale: float = option(1e-2, POSITIVE, "factor on the uniform draw when init=small")


@dataclass
class FirstOrderConfig(OptimizerConfig):
    """Full-batch first-order steps, step k = 0, 1, ... of size eta_k."""

    lr: float = option(0.1, POSITIVE, "step size (Frobenius norm of a normalised step)")
    steps: int = option(2000, Range(low=0), "number of updates")
    growth: float = option(0.0, NON_NEGATIVE, "growth of the step size per step; 0: constant")
    schedule: str = option(
        "linear",
        OneOf(("linear", "geometric")),
        "linear: eta_k = lr (1 + growth k); geometric: eta_k = lr (1 + growth)^k",
    )
    gradient: str = option(
        "log_domain",
        OneOf(("log_domain", "direct")),
        "log_domain: exact at any norm; direct: as published, rounding noise once saturated",
    )
    ridge: float = option(0.0, NON_NEGATIVE, "weight of the squared Frobenius norms in the loss")
    record_every: int = option(100, POSITIVE_COUNT, "steps between two snapshots")
    record: str = option(
        "linear",
        OneOf(("linear", "geometric")),
        "linear: a snapshot every record_every steps; geometric: at 1, 2, 5, 10, 20, 50, ...",
    )


@dataclass
class NormalizedGDConfig(FirstOrderConfig):
    """Gradient divided by its norm; for (K, Q) each factor by its own."""

    _target_: str = "attnsvm.optimizer.NormalizedGD"


@dataclass
class GDConfig(FirstOrderConfig):
    """Gradient descent with a fixed step."""

    _target_: str = "attnsvm.optimizer.GD"


@dataclass
class PolyakConfig(FirstOrderConfig):
    """Gradient descent with step lr (L - L*) / ||grad||^2, L* the risk at the optimal tokens."""

    _target_: str = "attnsvm.optimizer.Polyak"
    lr: float = option(1.0, POSITIVE, "factor on the Polyak step")


@dataclass
class MomentumConfig(FirstOrderConfig):
    """Heavy-ball gradient descent."""

    _target_: str = "attnsvm.optimizer.Momentum"
    beta: float = option(0.9, Range(0, 1), "share of the velocity that a step keeps")


@dataclass
class AdamConfig(FirstOrderConfig):
    """Adam with bias correction."""

    _target_: str = "attnsvm.optimizer.Adam"
    lr: float = option(1e-3, POSITIVE, "step size (of an entry)")
    beta1: float = option(0.9, Range(0, 0.999999), "share of the mean gradient that a step keeps")
    beta2: float = option(0.999, Range(0, 0.999999), "the same of the mean squared gradient")
    eps: float = option(1e-8, NON_NEGATIVE, "added to the root; 0: blind to the gradient's size")


@dataclass
class SignGDConfig(FirstOrderConfig):
    """Every entry moves by the step size, against the sign of its gradient."""

    _target_: str = "attnsvm.optimizer.SignGD"
    lr: float = option(0.01, POSITIVE, "step size (of an entry)")


@dataclass
class MirrorDescentConfig(FirstOrderConfig):
    """Mirror descent with the potential sum |w|^p / p."""

    _target_: str = "attnsvm.optimizer.MirrorDescent"
    p: float = option(3.0, Range(1, 100, open=True), "exponent of the potential, p > 1")
    normalized: bool = option(True, None, "divide the gradient by its norm, as normalized_gd does")


@dataclass
class RegularizationPathConfig(OptimizerConfig):
    """Minimisers in balls ||W||_F <= R, or (||K||_F^2 + ||Q||_F^2)/2 <= R, of growing R."""

    _target_: str = "attnsvm.regularization_path.RegularizationPath"
    radii: list[float] = option(
        [3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4],
        ListOf(Range(low=0, open=True)),
        "radii R, increasing",
    )
    iterations: int = option(1000, POSITIVE_COUNT, "most quasi-Newton iterations at a radius")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.radii or list(self.radii) != sorted(self.radii):
            raise ConfigError(f"optimizer.radii={self.radii}: allowed is an increasing list")


# --- loss: the risk of a prediction --------------------------------------------------------------


@dataclass
class LossConfig(Group):
    """A decreasing loss of the margin u = y f."""

    GROUP = "loss"
    _target_: str = MISSING


@dataclass
class LogisticLossConfig(LossConfig):
    """log(1 + exp(-u))."""

    _target_: str = "attnsvm.loss.Logistic"


@dataclass
class ExponentialLossConfig(LossConfig):
    """exp(-u)."""

    _target_: str = "attnsvm.loss.Exponential"


@dataclass
class LinearLossConfig(LossConfig):
    """-u."""

    _target_: str = "attnsvm.loss.Linear"


# --- selection: which tokens the SVM separates ---------------------------------------------------


@dataclass
class SelectionConfig:
    """How the trained attention is read."""

    tokens: str = option(
        "top",
        OneOf(("top", "optimal", "multi")),
        "top: the token of largest softmax; optimal: argmax score, no training; "
        "multi: all tokens with softmax >= attended",
    )
    saturation: float = option(
        0.999, Range(0, 1), "an instance whose smallest top softmax is below this is unsaturated"
    )
    attended: float = option(1e-3, Range(0, 1, open=True), "softmax from which a token is attended")
    negligible: float = option(1e-6, Range(0, 1, open=True), "softmax up to which it is not")
    reject_all_positive: bool = option(
        False, None, "multi: reject instances whose labels are all +1, as published"
    )
    until_accepted: bool = option(
        False, None, "multi: draw further seeds until `trials` instances are accepted"
    )
    keep_stalled: bool = option(
        False, None, "keep stalled runs as data points: the published arithmetic's"
    )

    def __post_init__(self) -> None:
        check_fields(self, prefix="selection.")
        if self.negligible > self.attended:
            raise ConfigError(
                f"selection.negligible={self.negligible}: allowed is <= attended={self.attended}"
            )
        if self.until_accepted and self.tokens != "multi":
            raise ConfigError(
                f"selection.until_accepted=True: allowed with selection.tokens=multi only, "
                f"which rejects instances; tokens={self.tokens} rejects none"
            )


# --- svm: what is solved and to which accuracy ---------------------------------------------------


@dataclass
class SvmConfig:
    """Which attention SVMs are solved."""

    norms: list[str] = option(
        ["frobenius", "nuclear"], ListOf(OneOf(("frobenius", "nuclear"))), "norms to minimise"
    )
    gap: float = option(1e-9, Range(1e-12, 1e-2), "relative duality gap that makes `solved`")
    rank_tolerance: float = option(1e-6, Range(0, 1, open=True), "rank: sigma > this * sigma_1")
    published: bool = option(
        False, None, "also solve as the published scripts do: default tolerances, rank at 1e-7"
    )

    def __post_init__(self) -> None:
        check_fields(self, prefix="svm.")


# --- the run -------------------------------------------------------------------------------------


@dataclass
class RunConfig:
    """One run: a batch of instances, trained, read, separated, compared and recorded."""

    model: ModelConfig = MISSING
    parameterization: ParameterizationConfig = MISSING
    head: HeadConfig = MISSING
    data: DataConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    loss: LossConfig = MISSING
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    svm: SvmConfig = dataclasses.field(default_factory=SvmConfig)
    sweep: str | None = option(None, None, "name of the experiment that this run belongs to")
    trials: int = option(100, POSITIVE_COUNT, "number of instances")
    seed: int = option(0, Range(0, 2**31), "seed of the first instance; instance i has seed + i")
    keep_path: bool = option(False, None, "store the weights and softmax of every snapshot")
    device: str = option("auto", OneOf(("auto", "cpu", "cuda")), "where tensors live")
    extensions: list[str] = option([], None, "packages, beside attnsvm, that `_target_` may name")
    mixed_code: bool = option(False, None, "add to a folder whose records come from other code")
    dry_run: bool = option(False, None, "list the runs and estimate their time, run nothing")

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_across_groups()

    def _check_across_groups(self) -> None:
        T, d = getattr(self.data, "T", None), getattr(self.data, "d", None)
        query, m = getattr(self.model, "query", None), getattr(self.parameterization, "m", None)
        if query is not None and T is not None and query >= T:
            raise ConfigError(f"model.query={query}: allowed is 0 <= query < data.T={T}")
        if m is not None and d is not None and m > d:
            raise ConfigError(f"parameterization.m={m}: allowed is 1 <= m <= data.d={d}")
        if self.selection.until_accepted and isinstance(self.data, FileConfig):
            raise ConfigError(
                "selection.until_accepted=True: allowed with seeded data only, "
                "data=file has the instances that it has"
            )


GROUPS: dict[str, dict[str, type]] = {
    "model": {
        "cross_attention": CrossAttentionConfig,
        "self_attention": SelfAttentionConfig,
        "sequence": SequenceConfig,
    },
    "parameterization": {"w": WConfig, "kq": KQConfig},
    "head": {
        "linear": LinearHeadConfig,
        "relu": ReluHeadConfig,
        "quadratic": QuadraticHeadConfig,
        "mlp": MlpHeadConfig,
    },
    "data": {
        "sphere": SphereConfig,
        "orthonormal": OrthonormalConfig,
        "paths_far": PathsFarConfig,
        "paths_near": PathsNearConfig,
        "file": FileConfig,
        "digits": DigitsConfig,
    },
    "optimizer": {
        "normalized_gd": NormalizedGDConfig,
        "gd": GDConfig,
        "polyak": PolyakConfig,
        "momentum": MomentumConfig,
        "adam": AdamConfig,
        "sign_gd": SignGDConfig,
        "mirror_descent": MirrorDescentConfig,
        "regularization_path": RegularizationPathConfig,
    },
    "loss": {
        "logistic": LogisticLossConfig,
        "exponential": ExponentialLossConfig,
        "linear": LinearLossConfig,
    },
}
"""Every option of every group that has several implementations, by the name a user types."""
