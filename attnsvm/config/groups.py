"""The schema of the groups `model`, `parameterization`, `head`, `data` and `loss`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from attnsvm.config.fields import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_COUNT,
    Broken,
    OneOf,
    Option,
    Range,
    option,
)


class ModelConfig(Option):
    """Which query each sample has and which tokens it may attend to."""

    GROUP = "model"


class CrossAttentionConfig(ModelConfig, name="cross_attention", target="CrossAttention"):
    """The query z_i is drawn with the sample."""


class SelfAttentionConfig(ModelConfig, name="self_attention", target="SelfAttention"):
    """The query is one of the sample's own tokens, z_i = x_{i,query}."""

    query: int = option(0, COUNT, "index of the query token, 0 <= query < T")


class SequenceConfig(ModelConfig, name="sequence", target="Sequence"):
    """Every position is a query: n sequences of T tokens become n*T samples."""

    causal: bool = option(False, None, "position k attends to tokens t <= k only")


class TransformerConfig(ModelConfig, name="transformer", target="Transformer"):
    """Several layers and heads of attention, each trained; every one has an SVM of its own."""

    layers: int = option(2, POSITIVE_COUNT, "number of layers")
    heads: int = option(1, POSITIVE_COUNT, "attention heads of each layer")
    residual: bool = option(True, None, "a layer adds its input: (x + o) / sqrt(2)")
    causal: bool = option(False, None, "position k attends to tokens t <= k only")
    values: str = option(
        "identity", OneOf(("identity", "orthogonal")), "value matrix of every head, at the start"
    )
    mlp: int = option(0, COUNT, "hidden units of the MLP after each layer; 0: none")
    readout: str = option(
        "first",
        OneOf(("first", "mean", "every")),
        "where a prediction is made: at position 0, of the mean of all, at every position",
    )
    trained: str = option(
        "attention",
        OneOf(("attention", "values", "mlp", "head", "all")),
        "what is trained: attention alone, or with values, MLPs, the prediction head, or all",
    )
    rate: float = option(
        0.1,
        POSITIVE,
        "step of values, MLPs and head, as a share of the optimizer's; each along its own "
        "normalised gradient",
    )

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

    m: int | None = option(None, POSITIVE_COUNT, "columns of K and Q, 1 <= m <= d; null means d")


class HeadConfig(Option):
    """The prediction head h."""

    GROUP = "head"


class LinearHeadConfig(HeadConfig, name="linear", target="Linear"):
    """h(o) = v^T o."""

    train: bool = option(False, None, "train v together with the attention weights")


class ReluHeadConfig(HeadConfig, name="relu", target="Relu"):
    """h(o) = 1^T relu(V^T o) with ||V||_F = 1."""

    train: bool = option(False, None, "train V together with the attention weights")


class QuadraticHeadConfig(HeadConfig, name="quadratic", target="Quadratic"):
    """h(o) = v^T o - lambda ||o||^2."""

    lam: float = option(0.1, NON_NEGATIVE, "lambda, the weight of ||o||^2 (score units)")


class MlpHeadConfig(HeadConfig, name="mlp", target="Mlp"):
    """A small torch.nn network: Linear(d, width), GELU, Linear(width, 1)."""

    width: int = option(16, POSITIVE_COUNT, "hidden units")
    train: bool = option(False, None, "train the network together with the attention weights")


class JointHeadConfig(HeadConfig, name="joint", target="Joint"):
    """h(o) = v^T o, with v trained in steps of a size of its own."""

    train: bool = option(True, None, "true: v is trained together with the attention weights")
    v_rate: float = option(1.0, POSITIVE, "step of v, as a share of the optimizer's")

    def _broken(self) -> Broken:
        if not self.train:
            yield "train", "true; head=linear has false"


class DataConfig(Option):
    """A seeded source of problem instances."""

    GROUP = "data"


@dataclass
class DrawnConfig(DataConfig):
    """Instances of any size."""

    n: int = option(6, POSITIVE_COUNT, "samples of an instance")
    T: int = option(8, POSITIVE_COUNT, "tokens of a sample")
    d: int = option(10, POSITIVE_COUNT, "dimension of a token")


class SphereConfig(DrawnConfig, name="sphere", target="Sphere"):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""


class OrthonormalConfig(DrawnConfig, name="orthonormal", target="Orthonormal"):
    """Each sample's tokens are orthonormal (T <= d); all labels +1."""

    T: int = option(8, POSITIVE_COUNT, "tokens of a sample, T <= d")

    def _broken(self) -> Broken:
        if self.T > self.d:
            yield "T", f"<= d={self.d}: the tokens are orthonormal"


class PromptConfig(DrawnConfig, name="prompt", target="Prompt"):
    """Tokens and v uniform on the unit sphere; one query for all samples; all labels +1."""


class PlantedConfig(DrawnConfig, name="planted", target="Planted"):
    """One token of each sample carries the label, and resembles the query."""

    score_gap: float = option(0.5, Range(0, 0.999), "score of the relevant token; of all others: 0")
    signal: float = option(
        1.0, NON_NEGATIVE, "length of the query's part of the relevant token, over the noise"
    )
    held_out: int = option(0, COUNT, "further samples of each instance, not trained on")


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
    """Instances from an .npz file: X (B,n,T,d), Z (B,n,d), Y (B,n), optional mask (B,n,T)."""

    path: str = option(MISSING, None, "the file; a value is required")


class DigitsConfig(DataConfig, name="digits", target="Digits"):
    """Patches of scikit-learn's handwritten digits, two of them as the classes."""

    n: int = option(6, POSITIVE_COUNT, "images of an instance")
    positive: int = option(3, Range(0, 9), "the digit of label +1")
    negative: int = option(8, Range(0, 9), "the digit of label -1")
    patch: int = option(4, Range(1, 8), "pixels along the edge of a patch; d = patch^2")
    stride: int = option(2, Range(1, 8), "pixels between patches; T = ((8-patch)//stride+1)^2")


class TokenGraphConfig(DrawnConfig, name="token_graph", target="TokenGraph"):
    """Sequences of a vocabulary with their next tokens; the query is the last token."""

    T: int = option(4, POSITIVE_COUNT, "tokens of a sequence")
    d: int = option(8, POSITIVE_COUNT, "dimension of an embedding")
    K: int = option(6, POSITIVE_COUNT, "tokens of the vocabulary, K <= d")
    graph: str = option(
        "acyclic",
        OneOf(("acyclic", "cyclic")),
        "acyclic: each last token orders the vocabulary, and the next token is the first of the "
        "sequence by it; cyclic: any of the sequence",
    )
    embeddings: str = option(
        "sphere",
        OneOf(("sphere", "orthonormal")),
        "of the vocabulary: uniform on the unit sphere, or orthonormal",
    )

    def _broken(self) -> Broken:
        if self.K > self.d:
            yield "K", f"<= d={self.d}: the embeddings are linearly independent"


class PretrainedConfig(DataConfig, name="pretrained", target="Pretrained"):
    """A head of a pretrained model on sentences of a text."""

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
    sinks: bool = option(True, None, "false: without the first token, as [CLS], and the last [SEP]")
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
    """-log(u), of a probability u > 0: with data=token_graph."""


class LinearLossConfig(LossConfig, name="linear", target="LinearLoss"):
    """-u."""


class SquaredLossConfig(LossConfig, name="squared", target="Squared"):
    """(u - target)^2, not decreasing: breaks the theory on purpose."""

    target: float = option(1.0, Range(), "margin of least loss")
