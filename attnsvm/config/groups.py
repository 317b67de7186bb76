"""The schema of the groups `model`, `parameterization`, `head`, `data` and `loss`."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from attnsvm.config.fields import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE_COUNT,
    ConfigError,
    Group,
    OneOf,
    Range,
    option,
)

# --- model: queries and admissible tokens --------------------------------------------------------


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
    query: int = option(0, COUNT, "index of the query token, 0 <= query < T")


@dataclass
class SequenceConfig(ModelConfig):
    """Every position is a query: n sequences of T tokens become n*T samples."""

    _target_: str = "attnsvm.model.Sequence"
    causal: bool = option(False, None, "position k attends to tokens t <= k only")


# --- parameterization: the trained variables -----------------------------------------------------


@dataclass
class ParameterizationConfig(Group):
    """The trained variables that define the attention weights W."""

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


@dataclass
class QuadraticHeadConfig(HeadConfig):
    """h(o) = v^T o - lambda ||o||^2."""

    _target_: str = "attnsvm.head.Quadratic"
    lam: float = option(0.1, NON_NEGATIVE, "lambda, the weight of ||o||^2 (score units)")


# --- data: the source of instances ---------------------------------------------------------------


@dataclass
class DataConfig(Group):
    """A seeded source of problem instances."""

    GROUP = "data"
    _target_: str = MISSING


@dataclass
class DrawnConfig(DataConfig):
    """Instances of any size."""

    n: int = option(6, POSITIVE_COUNT, "samples of an instance")
    T: int = option(8, POSITIVE_COUNT, "tokens of a sample")
    d: int = option(10, POSITIVE_COUNT, "dimension of a token")


@dataclass
class SphereConfig(DrawnConfig):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""

    _target_: str = "attnsvm.data.Sphere"


@dataclass
class SphereInSpanConfig(DrawnConfig):
    """Instances of sphere, in coordinates of the span of tokens and queries: for large d."""

    _target_: str = "attnsvm.data.SphereInSpan"

    @property
    def dimension(self) -> int:
        """Return r, the dimension of the span."""
        return min(self.d, self.n * (self.T + 1))


@dataclass
class PlantedConfig(DrawnConfig):
    """One token of each sample carries the label, and resembles the query."""

    _target_: str = "attnsvm.data.Planted"
    score_gap: float = option(0.5, Range(0, 0.999), "score of the relevant token; of all others: 0")
    signal: float = option(
        1.0, NON_NEGATIVE, "length of the query's part of the relevant token, over the noise"
    )
    held_out: int = option(0, COUNT, "further samples of each instance, not trained on")


@dataclass
class PromptConfig(DrawnConfig):
    """Tokens and v uniform on the unit sphere; one query for all samples; all labels +1."""

    _target_: str = "attnsvm.data.Prompt"


@dataclass
class OrthonormalConfig(DrawnConfig):
    """Each sample's tokens are orthonormal (T <= d); all labels +1."""

    _target_: str = "attnsvm.data.Orthonormal"
    T: int = option(8, POSITIVE_COUNT, "tokens of a sample, T <= d")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.T > self.d:
            raise ConfigError(f"data.T={self.T}: must be <= d={self.d}: the tokens are orthonormal")


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
    path: str = option(MISSING, None, "the file; a value is required")


@dataclass
class DigitsConfig(DataConfig):
    """Patches of scikit-learn's handwritten digits, two of them as the classes."""

    _target_: str = "attnsvm.data.Digits"
    n: int = option(6, POSITIVE_COUNT, "images of an instance")
    positive: int = option(3, Range(0, 9), "the digit of label +1")
    negative: int = option(8, Range(0, 9), "the digit of label -1")
    patch: int = option(4, Range(1, 8), "pixels along the edge of a patch; d = patch^2")
    stride: int = option(2, Range(1, 8), "pixels between patches; T = ((8-patch)//stride+1)^2")


@dataclass
class PretrainedConfig(DataConfig):
    """A head of a pretrained model on sentences of a text."""

    _target_: str = "attnsvm.data.Pretrained"
    transformer: str = option(
        "minilm",
        None,
        "minilm, or a folder with config.json, model.safetensors and tokenizer.json; bert or gpt2",
    )
    text: str | None = option(None, None, "a text with one sentence a line; null: the own text")
    at_layer: int = option(0, COUNT, "the layer, from 0")
    at_head: int = option(0, COUNT, "the head of the layer, from 0")
    n: int = option(24, POSITIVE_COUNT, "sentences of an instance")
    T: int = option(8, Range(low=2), "tokens of a sentence; longer ones are truncated")
    control: str = option(
        "none",
        OneOf(("none", "spectrum", "queries", "tokens")),
        "none: the head; spectrum: random weights with its singular values; queries: of other "
        "sentences; tokens: those at each place shuffled among sentences",
    )
    scores: str = option(
        "attended",
        OneOf(("attended", "loss")),
        "attended: the token that the head attends to most is the best; loss: by how much more "
        "attention to a token lowers the model's loss, of next tokens or sentences",
    )


# --- loss: the risk of a prediction --------------------------------------------------------------


@dataclass
class LossConfig(Group):
    """A loss of the margin u = y f."""

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

    _target_: str = "attnsvm.loss.LinearLoss"


@dataclass
class SquaredLossConfig(LossConfig):
    """(u - target)^2, not decreasing: breaks the theory on purpose."""

    _target_: str = "attnsvm.loss.Squared"
    target: float = option(1.0, Range(), "margin of least loss")
