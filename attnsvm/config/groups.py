"""The schema of the groups `model`, `parameterization`, `head`, `data` and `loss`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from attnsvm.config.fields import Broken, Option


class ModelConfig(Option):
    """Which query each sample has and which tokens it may attend to."""

    GROUP = "model"


class CrossAttentionConfig(ModelConfig, name="cross_attention", target="CrossAttention"):
    """The query z_i is drawn with the sample."""


class LinearClassifierConfig(ModelConfig, name="linear", target="LinearClassifier"):
    """A linear classifier: softmax(W x), with data=classes, contexts, or X and y of a file."""


class SelfAttentionConfig(ModelConfig, name="self_attention", target="SelfAttention"):
    """The query is one of the sample's own tokens, z_i = x_{i,query}."""

    query: int = 0


class SequenceConfig(ModelConfig, name="sequence", target="Sequence"):
    """Every position is a query: n sequences of T tokens become n*T samples."""

    causal: bool = False


class TransformerConfig(ModelConfig, name="transformer", target="Transformer"):
    """Several layers and heads of attention, each trained; every one has an SVM of its own."""

    layers: int = 2
    heads: int = 1
    residual: bool = True
    causal: bool = False
    values: str = "identity"
    mlp: int = 0
    readout: str = "first"
    trained: str = "attention"
    rate: float = 0.1

    def _broken(self) -> Broken:
        if self.causal and self.readout == "first":
            mean = "mean | every with model.causal=true: position 0 attends to itself alone"
            yield "readout", mean
        if self.trained == "mlp" and not self.mlp:
            yield "mlp", ">= 1 to be trained"


INITIAL = ("zero", "uniform", "small")
"""Initial weights that do not depend on the instance."""


def is_transformer(model: Mapping[str, Any]) -> bool:
    """Return whether the fields of `model` are those of a transformer."""
    return bool(model["_target_"] == TransformerConfig._target_)


def one_layer_problems(model: Mapping[str, Any]) -> int:
    """Return how many one-layer problems an instance is: one for each layer and head."""
    return int(model["layers"] * model["heads"]) if is_transformer(model) else 1


class ParameterizationConfig(Option):
    """The trained variables that define the attention weights W."""

    GROUP = "parameterization"


class WConfig(ParameterizationConfig, name="w", target="W"):
    """The combined weights W themselves."""


class KQConfig(ParameterizationConfig, name="kq", target="KQ"):
    """W = K Q^T with K, Q of shape (d, m)."""

    m: int | None = None


class HeadConfig(Option):
    """The prediction head h."""

    GROUP = "head"


class LinearHeadConfig(HeadConfig, name="linear", target="Linear"):
    """h(o) = v^T o."""

    train: bool = False


class ReluHeadConfig(HeadConfig, name="relu", target="Relu"):
    """h(o) = 1^T relu(V^T o) with ||V||_F = 1."""

    train: bool = False


class QuadraticHeadConfig(HeadConfig, name="quadratic", target="Quadratic"):
    """h(o) = v^T o - lambda ||o||^2."""

    lam: float = 0.1


class MlpHeadConfig(HeadConfig, name="mlp", target="Mlp"):
    """A small torch.nn network: Linear(d, width), GELU, Linear(width, 1)."""

    width: int = 16
    train: bool = False


class JointHeadConfig(HeadConfig, name="joint", target="Joint"):
    """h(o) = v^T o, with v trained in steps of a size of its own."""

    train: bool = True
    v_rate: float = 1.0

    def _broken(self) -> Broken:
        if not self.train:
            yield "train", "true; head=linear has false"


class VocabularyHeadConfig(HeadConfig, name="vocabulary", target="Vocabulary"):
    """log softmax(C o)_y of a next token y: with loss=linear the cross-entropy."""


class DataConfig(Option):
    """A seeded source of problem instances."""

    GROUP = "data"


@dataclass
class DrawnConfig(DataConfig):
    """Instances of any size."""

    n: int = 6
    T: int = 8
    d: int = 10


class SphereConfig(DrawnConfig, name="sphere", target="Sphere"):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""


class OrthonormalConfig(DrawnConfig, name="orthonormal", target="Orthonormal"):
    """Each sample's tokens are orthonormal (T <= d); all labels +1."""

    T: int = 8

    def _broken(self) -> Broken:
        if self.T > self.d:
            yield "T", f"<= d={self.d}: the tokens are orthonormal"


class PromptConfig(DrawnConfig, name="prompt", target="Prompt"):
    """Tokens and v uniform on the unit sphere; one query for all samples; all labels +1."""


class PlantedConfig(DrawnConfig, name="planted", target="Planted"):
    """One token of each sample carries the label, and resembles the query."""

    score_gap: float = 0.5
    signal: float = 1.0
    held_out: int = 0


class SphereInSpanConfig(DrawnConfig, name="sphere_in_span", target="SphereInSpan"):
    """Instances of sphere, in coordinates of the span of tokens and queries: for large d."""

    @property
    def dimension(self) -> int:
        """Return r, the dimension of the span."""
        return min(self.d, self.n * (self.T + 1))


class PathsFarConfig(DataConfig, name="paths_far", target="PathsFar"):
    """First published two-dimensional scene: n=2, T=3, samples far apart."""


class PathsNearConfig(DataConfig, name="paths_near", target="PathsNear"):
    """Second published two-dimensional scene: n=2, T=5, samples overlapping."""


class FileConfig(DataConfig, name="file", target="File"):
    """Instances from an .npz file: X, Z, Y, or token ids with the next ones; optional mask."""

    path: str = MISSING


class DigitsConfig(DataConfig, name="digits", target="Digits"):
    """Patches of scikit-learn's handwritten digits, two of them as the classes."""

    n: int = 6
    positive: int = 3
    negative: int = 8
    patch: int = 4
    stride: int = 2


@dataclass
class VocabularyConfig(DrawnConfig):
    """Sequences of a vocabulary with their next tokens; the query is the last token."""

    T: int = 4
    d: int = 8
    K: int = 6
    output: str = "inverse"

    def _broken(self) -> Broken:
        if self.K > self.d:
            yield "K", f"<= d={self.d}: the embeddings are linearly independent"


class TokenGraphConfig(VocabularyConfig, name="token_graph", target="TokenGraph"):
    """Sequences of a vocabulary with their next tokens; the query is the last token."""

    graph: str = "acyclic"
    embeddings: str = "sphere"


class TextConfig(VocabularyConfig, name="text", target="Text"):
    """Words of a text with the next word; the query is the last word."""

    n: int = 100
    T: int = 8
    d: int = 16
    K: int = 16
    embeddings: str = "orthonormal"
    text: str | None = None


@dataclass
class ClassifierConfig(DataConfig):
    """Points with labels, for model=linear with loss=cross_entropy."""

    n: int = 24
    d: int = 8
    K: int = 6

    @property
    def T(self) -> int:
        """Return the tokens of a sample: one for each class."""
        return self.K

    @property
    def dimension(self) -> int:
        """Return the dimension of tokens and queries."""
        return max(self.K, self.d)


class ClassesConfig(ClassifierConfig, name="classes", target="Classes"):
    """Points that a linear classifier separates, for model=linear with loss=cross_entropy."""

    points: str = "gaussian"
    margin: float = 0.5
    condition: float = 1.0
    bias: bool = False

    @property
    def dimension(self) -> int:
        """Return the dimension of tokens and queries, that of the bias included."""
        return max(self.K, self.d + self.bias)

    def _broken(self) -> Broken:
        for name, usual in (("margin", 0), ("condition", 1), ("bias", False)):
            if self.points == "rademacher" and getattr(self, name) != usual:
                must = "with points=rademacher: the entries of a point have one size"
                yield name, f"{str(usual).lower()} {must}"


class ContextsConfig(ClassifierConfig, name="contexts", target="Contexts"):
    """Contexts with several next tokens each, for a linear decoder: model=linear."""

    contexts: int = 4
    support: int = 2
    scores: str = "label"

    def _broken(self) -> Broken:
        if self.contexts > self.n:
            yield "contexts", f"<= n={self.n}: each has a sample"
        if self.support > self.K:
            yield "support", f"<= K={self.K}: they are of the vocabulary"


class PretrainedConfig(DataConfig, name="pretrained", target="Pretrained"):
    """A head of a pretrained model on sentences of a text."""

    transformer: str = "minilm"
    text: str | None = None
    at_layer: int = 0
    at_head: int = 0
    n: int = 24
    T: int = 8
    sinks: bool = True
    control: str = "none"
    scores: str = "attended"

    def _broken(self) -> Broken:
        if self.T < 3 and not self.sinks:
            yield "T", ">= 3 with data.sinks=false, for a choice"


class LossConfig(Option):
    """A loss of the margin u = y f."""

    GROUP = "loss"


class LogisticLossConfig(LossConfig, name="logistic", target="Logistic"):
    """log(1 + exp(-u))."""


class ExponentialLossConfig(LossConfig, name="exponential", target="Exponential"):
    """exp(-u)."""


class LogLossConfig(LossConfig, name="log", target="Log"):
    """-log(u), of a probability u > 0: with data=token_graph, classes, contexts."""


class CrossEntropyConfig(LossConfig, name="cross_entropy", target="Log"):
    """-log of the probability of the label: loss=log as model=linear calls it."""


class LinearLossConfig(LossConfig, name="linear", target="LinearLoss"):
    """-u."""


class SquaredLossConfig(LossConfig, name="squared", target="Squared"):
    """(u - target)^2, not decreasing: breaks the theory on purpose."""

    target: float = 1.0
