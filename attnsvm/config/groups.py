"""The schema of the groups `model`, `parameterization`, `head` and `loss`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from attnsvm.config.fields import INDEX, NOT_NEGATIVE, POSITIVE, SIZE, Broken, OneOf, Option, Range

Causal = Annotated[bool, "position k attends to tokens t <= k only"]


class ModelConfig(Option):
    """Which query each sample has and which tokens it may attend to."""

    GROUP = "model"


class CrossAttentionConfig(ModelConfig, name="cross_attention"):
    """The query z_i is drawn with the sample."""


class LinearClassifierConfig(ModelConfig, name="linear"):
    """A linear classifier: softmax(W x), with data=classes, contexts, or X and y of a file."""


class SelfAttentionConfig(ModelConfig, name="self_attention"):
    """The query is one of the sample's own tokens, z_i = x_{i,query}."""

    query: Annotated[int, INDEX, "index of the query token, 0 <= query < T"] = 0


class SequenceConfig(ModelConfig, name="sequence"):
    """Every position is a query: n sequences of T tokens become n*T samples."""

    causal: Causal = False


class TransformerConfig(ModelConfig, name="transformer"):
    """Several layers and heads of attention, each compared with the SVM of its own input."""

    layers: Annotated[int, SIZE, "number of layers"] = 2
    heads: Annotated[int, SIZE, "attention heads of each layer"] = 1
    residual: Annotated[bool, "a layer adds its input: (x + o) / sqrt(2)"] = True
    causal: Causal = False
    values: Annotated[
        str, OneOf(("identity", "orthogonal")), "value matrix of every head, at the start"
    ] = "identity"
    mlp: Annotated[int, INDEX, "hidden units of the MLP after each layer; 0: none"] = 0
    readout: Annotated[
        str,
        OneOf(("first", "mean", "every")),
        "where a prediction is made: at position 0, of the mean of all, at every position",
    ] = "first"
    trained: Annotated[
        str,
        OneOf(("attention", "values", "mlp", "head", "all")),
        "what is trained: attention alone, or with values, MLPs, the prediction head, or all",
    ] = "attention"
    rate: Annotated[
        float,
        POSITIVE,
        "step of values, MLPs and head, as a share of the optimizer's; each along its own "
        "normalised gradient",
    ] = 0.1

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


class WConfig(ParameterizationConfig, name="w"):
    """The combined weights W themselves: the limit is the Frobenius-norm SVM."""


class KQConfig(ParameterizationConfig, name="kq"):
    """W = K Q^T with K, Q of shape (d, m): the limit is the nuclear-norm SVM."""

    m: Annotated[int | None, SIZE, "columns of K and Q, 1 <= m <= d; null means d"] = None


class HeadConfig(Option):
    """The prediction head h."""

    GROUP = "head"


class LinearHeadConfig(HeadConfig, name="linear"):
    """h(o) = v^T o."""

    train: Annotated[bool, "train v together with the attention weights"] = False


class ReluHeadConfig(HeadConfig, name="relu"):
    """h(o) = 1^T relu(V^T o) with ||V||_F = 1: the paper's MLP head."""

    train: Annotated[bool, "train V together with the attention weights"] = False


class QuadraticHeadConfig(HeadConfig, name="quadratic"):
    """h(o) = v^T o - lambda ||o||^2: large lambda makes attention spread over several tokens."""

    lam: Annotated[float, NOT_NEGATIVE, "lambda, the weight of ||o||^2 (score units)"] = 0.1


class MlpHeadConfig(HeadConfig, name="mlp"):
    """A small torch network: Linear(d, width), GELU, Linear(width, 1).

    Any other: a subclass of attnsvm.head.Module in your own package.
    """

    width: Annotated[int, SIZE, "hidden units"] = 16
    train: Annotated[bool, "train the network together with the attention weights"] = False


class JointHeadConfig(HeadConfig, name="joint"):
    """h(o) = v^T o, with v trained with the attention in steps of its own size."""

    train: Annotated[bool, "true: v is trained together with the attention weights"] = True
    v_rate: Annotated[float, POSITIVE, "step of v, as a share of the optimizer's"] = 1.0

    def _broken(self) -> Broken:
        if not self.train:
            yield "train", "true; head=linear has false"


class VocabularyHeadConfig(HeadConfig, name="vocabulary"):
    """h(o) = log softmax(C o)_y of a next token y: with loss=linear the cross-entropy."""


class LossConfig(Option):
    """A loss of the margin u = y f."""

    GROUP = "loss"


class LogisticLossConfig(LossConfig, name="logistic"):
    """log(1 + exp(-u))."""


class ExponentialLossConfig(LossConfig, name="exponential"):
    """exp(-u)."""


class LogLossConfig(LossConfig, name="log"):
    """-log(u) of a probability u > 0: the loss of next-token prediction.

    With data=token_graph, classes, contexts.
    """


class CrossEntropyConfig(LossConfig, name="cross_entropy", target="Log"):
    """-log of the probability of the label: loss=log as model=linear calls it."""


class LinearLossConfig(LossConfig, name="linear", target="LinearLoss"):
    """-u."""


class SquaredLossConfig(LossConfig, name="squared"):
    """(u - target)^2, not decreasing: breaks the theory on purpose."""

    target: Annotated[float, Range(), "margin of least loss"] = 1.0
