"""The schema of the group `data`: where problem instances come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from attnsvm.config.fields import (
    INDEX,
    MISSING,
    MOST,
    NOT_NEGATIVE,
    SIZE,
    Broken,
    OneOf,
    Option,
    Range,
)

Embeddings = Annotated[
    str,
    OneOf(("sphere", "orthonormal")),
    "of the vocabulary: uniform on the unit sphere, or orthonormal",
]


class DataConfig(Option):
    """A seeded source of problem instances."""

    GROUP = "data"


@dataclass
class DrawnConfig(DataConfig):
    """Instances of any size."""

    n: Annotated[int, SIZE, "samples of an instance"] = 6
    T: Annotated[int, SIZE, "tokens of a sample"] = 8
    d: Annotated[int, SIZE, "dimension of a token"] = 10


class SphereConfig(DrawnConfig, name="sphere"):
    """Tokens, queries and head uniform on the unit sphere, labels +-1: the paper's instances."""


class OrthonormalConfig(DrawnConfig, name="orthonormal"):
    """Orthonormal tokens (T <= d), labels +1: the paper's instances for the quadratic head."""

    T: Annotated[int, SIZE, "tokens of a sample, T <= d"] = 8

    def _broken(self) -> Broken:
        if self.T > self.d:
            yield "T", f"<= d={self.d}: the tokens are orthonormal"


class PromptConfig(DrawnConfig, name="prompt"):
    """One query for all samples, labels +1: the trained prompt of arXiv 2306.13596.

    Tokens and head are uniform on the unit sphere.
    """


class PlantedConfig(DrawnConfig, name="planted"):
    """One token of each sample carries the label and resembles the query.

    Further samples can be held out.
    """

    score_gap: Annotated[
        float, Range(0, 0.999), "score of the relevant token; of all others: 0"
    ] = 0.5
    signal: Annotated[
        float, NOT_NEGATIVE, "length of the query's part of the relevant token, over the noise"
    ] = 1.0
    held_out: Annotated[int, INDEX, "further samples of each instance, not trained on"] = 0


class SphereInSpanConfig(DrawnConfig, name="sphere_in_span"):
    """Instances of sphere in the n (T + 1) dimensions that tokens and queries span: for large d."""

    @property
    def dimension(self) -> int:
        """Return r, the dimension of the span."""
        return min(self.d, self.n * (self.T + 1))


class PathsFarConfig(DataConfig, name="paths_far"):
    """First two-dimensional scene of the paper's trajectory figure: n=2, T=3, samples far apart.

    Published with seed=1 trials=1.
    """


class PathsNearConfig(DataConfig, name="paths_near"):
    """Second two-dimensional scene of the paper's trajectory figure: n=2, T=5, overlapping.

    Published with seed=3 trials=1.
    """


class FileConfig(DataConfig, name="file"):
    """Your own instances: data.path=tokens.npz with X (B,n,T,d), Z (B,n,d), Y (B,n).

    Or token ids (B,n,T) and next (B,n); a mask is optional.
    """

    path: Annotated[str, "the file; a value is required"] = MISSING


class DigitsConfig(DataConfig, name="digits"):
    """Patches of scikit-learn's handwritten digits, two digits as the classes."""

    n: Annotated[int, SIZE, "images of an instance"] = 6
    positive: Annotated[int, Range(0, 9), "the digit of label +1"] = 3
    negative: Annotated[int, Range(0, 9), "the digit of label -1"] = 8
    patch: Annotated[int, Range(1, 8), "pixels along the edge of a patch; d = patch^2"] = 4
    stride: Annotated[int, Range(1, 8), "pixels between patches; T = ((8-patch)//stride+1)^2"] = 2


@dataclass
class VocabularyConfig(DrawnConfig):
    """Sequences of a vocabulary with their next tokens; the query is the last token."""

    T: Annotated[int, SIZE, "tokens of a sequence"] = 4
    d: Annotated[int, SIZE, "dimension of an embedding"] = 8
    K: Annotated[int, SIZE, "tokens of the vocabulary, K <= d"] = 6
    output: Annotated[
        str,
        OneOf(("inverse", "tied")),
        "rows C of the scores C x: of the pseudo-inverse, so that only the token itself has "
        "one, or the embeddings",
    ] = "inverse"

    def _broken(self) -> Broken:
        if self.K > self.d:
            yield "K", f"<= d={self.d}: the embeddings are linearly independent"


class TokenGraphConfig(VocabularyConfig, name="token_graph"):
    """Next-token prediction: sequences of a vocabulary, each with the next token among its own.

    The query is the last token.
    """

    graph: Annotated[
        str,
        OneOf(("acyclic", "cyclic")),
        "acyclic: each last token orders the vocabulary, and the next token is the first of the"
        " sequence by it; cyclic: any of the sequence",
    ] = "acyclic"
    embeddings: Embeddings = "sphere"


class TextConfig(VocabularyConfig, name="text"):
    """Next-word prediction: windows of a real text, each with its next word.

    The query is the last word; data.text=FILE, null: ours.
    """

    n: Annotated[int, SIZE, "windows of the text, drawn without replacement"] = 100
    T: Annotated[int, SIZE, "words of a window"] = 8
    d: int = 16
    K: Annotated[int, SIZE, "words of the vocabulary, the most frequent ones, K <= d"] = 16
    embeddings: Embeddings = "orthonormal"
    text: Annotated[str | None, "a text, UTF-8; null: the own text"] = None


@dataclass
class ClassifierConfig(DataConfig):
    """Points with labels, for model=linear with loss=cross_entropy."""

    n: Annotated[int, SIZE, "samples of an instance, a point with a label each"] = 24
    d: Annotated[int, SIZE, "dimension of a point"] = 8
    K: Annotated[int, Range(2, MOST), "labels: classes, or the tokens of a vocabulary"] = 6

    @property
    def T(self) -> int:
        """Return the tokens of a sample: one for each class."""
        return self.K

    @property
    def dimension(self) -> int:
        """Return the dimension of tokens and queries."""
        return max(self.K, self.d)


class ClassesConfig(ClassifierConfig, name="classes"):
    """Points that a linear classifier separates, for model=linear with loss=cross_entropy."""

    points: Annotated[
        str,
        OneOf(("gaussian", "rademacher")),
        "gaussian: normal; rademacher: signs times a factor c of each point, uniform in [0.5, 1.5]",
    ] = "gaussian"
    margin: Annotated[float, NOT_NEGATIVE, "by how much a point is moved towards its class"] = 0.5
    condition: Annotated[
        float,
        Range(1),
        "condition number of the covariance of Gaussian points before they are moved, a "
        "geometric spectrum along the axes",
    ] = 1.0
    bias: Annotated[
        bool,
        "points are moved by a common vector of length one, and have a further, last entry 1 / "
        "sqrt(d), whose column of W is a bias",
    ] = False

    @property
    def dimension(self) -> int:
        """Return the dimension of tokens and queries, that of the bias included."""
        return max(self.K, self.d + self.bias)

    def _broken(self) -> Broken:
        for name, usual in (("margin", 0), ("condition", 1), ("bias", False)):
            if self.points == "rademacher" and getattr(self, name) != usual:
                must = "with points=rademacher: the entries of a point have one size"
                yield name, f"{str(usual).lower()} {must}"


class ContextsConfig(ClassifierConfig, name="contexts"):
    """Contexts with several next tokens each, for a linear decoder: model=linear.

    With loss=cross_entropy.
    """

    contexts: Annotated[int, SIZE, "different points, contexts <= n"] = 4
    support: Annotated[int, SIZE, "next tokens that a context may have, support <= K"] = 2
    scores: Annotated[
        str,
        OneOf(("label", "random")),
        "label: the next token has score 1, others 0; random: the tokens of a sample have "
        "scores uniform on the unit sphere",
    ] = "label"

    def _broken(self) -> Broken:
        if self.contexts > self.n:
            yield "contexts", f"<= n={self.n}: each has a sample"
        if self.support > self.K:
            yield "support", f"<= K={self.K}: they are of the vocabulary"


class PretrainedConfig(DataConfig, name="pretrained"):
    """A head of a real transformer on sentences of a text.

    The model is data.transformer=minilm, or a folder with config.json, model.safetensors and
    tokenizer.json; the head is data.at_layer, data.at_head. docs/findings/pretrained.md
    """

    transformer: Annotated[
        str, "minilm, or a folder with config.json, model.safetensors and tokenizer.json"
    ] = "minilm"
    text: Annotated[str | None, "a text with one sentence a line; null: the own text"] = None
    at_layer: Annotated[int, INDEX, "the layer, from 0"] = 0
    at_head: Annotated[int, INDEX, "the head of the layer, from 0"] = 0
    n: Annotated[int, SIZE, "sentences of an instance"] = 24
    T: Annotated[int, Range(2), "tokens of a sentence; longer ones are truncated"] = 8
    sinks: Annotated[bool, "false: without the first token, as [CLS], and the last [SEP]"] = True
    control: Annotated[
        str,
        OneOf(("none", "spectrum", "queries", "tokens")),
        "none: the head; spectrum: random weights with its singular values; queries: of other "
        "sentences; tokens: those at each place shuffled among sentences",
    ] = "none"
    scores: Annotated[
        str,
        OneOf(("attended", "loss")),
        "attended: the token that the head attends to most is the best; loss: by how much more "
        "attention to a token lowers the model's loss, of next tokens or sentences",
    ] = "attended"

    def _broken(self) -> Broken:
        if self.T < 3 and not self.sinks:
            yield "T", ">= 3 with data.sinks=false, for a choice"
