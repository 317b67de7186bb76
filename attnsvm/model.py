"""Queries and admissible tokens: from drawn tokens, queries and labels to samples with a mask."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.groups import TransformerConfig


@dataclass(frozen=True)
class Samples:
    """Samples of instances: X (..., n, T, d), Z (..., n, d), Y (..., n), mask (..., n, T)."""

    X: Tensor
    Z: Tensor
    Y: Tensor
    mask: Tensor


class Model(ABC):
    """A rule that defines the query, the admissible tokens and the label of every sample."""

    OWN_QUERIES = True
    """Whether the queries are tokens, so that Z is not needed."""

    def label_shape(self, n: int, T: int) -> tuple[int, ...]:
        """Return the shape of the labels of n drawn samples, (n,) or (n, T): one per query."""
        return (n,)

    @abstractmethod
    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the samples made from drawn tokens X (..., n, T, d) and queries Z (..., n, d).

        The last axes of the labels Y are `label_shape(n, T)`. The admissible tokens are `mask`
        (..., n, T), None: all.
        """


class CrossAttention(Model):
    """The query z_i is drawn with the sample, independent of its tokens."""

    OWN_QUERIES = False

    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the drawn samples."""
        if Z is None:
            raise ConfigError("Z: missing; must be (B, n, d) with model=cross_attention")
        return Samples(X, Z, Y, _all_or(mask, X))


class LinearClassifier(Model):
    """A linear classifier as attention: the tokens are its classes e_1, ..., e_K, z_i the point."""

    OWN_QUERIES = False

    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the drawn samples; ConfigError unless their tokens are the classes."""
        if not (X == torch.eye(*X.shape[-2:], dtype=X.dtype, device=X.device)).all():
            must = "data must be classes | contexts, or file with X (n, d) and y (n,)"
            raise ConfigError(f"model=linear: {must}: the tokens are the classes")
        return CrossAttention().expand(X, Z, Y, mask)


@dataclass(eq=False)
class SelfAttention(Model):
    """The query is one of the sample's own tokens, z_i = x_{i,query} (arXiv 2308.16898, eq. 1)."""

    query: int = 0

    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the drawn samples with z_i = x_{i,query}."""
        T = X.shape[-2]
        if not 0 <= self.query < T:
            raise ConfigError(f"model.query={self.query}: must be >= 0 and < T={T}")
        return Samples(X, X[..., self.query, :].contiguous(), Y, _all_or(mask, X))


@dataclass(eq=False)
class Sequence(Model):
    """Every position is a query: n sequences of T tokens become n*T samples.

    Sample (i, k), at index i*T + k, has the tokens of sequence i and the query z = x_ik
    (arXiv 2308.16898, sec. 7). The mask excludes positions as keys, not as queries. If `causal`,
    query k attends to tokens t <= k only, and one without an admissible t <= k is an error.
    """

    causal: bool = False

    def label_shape(self, n: int, T: int) -> tuple[int, ...]:
        """Return (n, T): one label per query."""
        return (n, T)

    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the n*T samples."""
        T = X.shape[-2]
        allowed = _all_or(mask, X).unsqueeze(-2).expand(*X.shape[:-1], T)
        if self.causal:
            allowed = allowed & torch.ones(T, T, dtype=torch.bool, device=X.device).tril()
        keys = X.unsqueeze(-3).expand(*X.shape[:-2], T, *X.shape[-2:])
        flat: Callable[[Tensor, int], Tensor] = lambda t, at: t.flatten(at - 1, at).contiguous()  # noqa: E731
        return Samples(flat(keys, -3), flat(X, -2), flat(Y, -1), flat(allowed, -2))


READOUTS = ("first", "mean", "every")
"""Where a network predicts, in the order of the codes of the compiled loop."""


@dataclass(eq=False)
class Transformer(Model):
    """Several layers of attention over the positions of a sequence; every position is a query.

    Layer l maps the rows x_1, ..., x_T to

        o_k = (1 / sqrt(H)) sum_h V_h^T sum_t s^h_kt x_t,     s^h_k = softmax_t(x_t^T W_h x_k),

    and the next layer's rows are o_k, or (x_k + o_k) / sqrt(2) with a residual connection; then,
    with an MLP, y becomes (y + M_2^T relu(M_1^T y)) / sqrt(2). The mask excludes positions as keys.

    Parameters
    ----------
    layers, heads : int
        L and H, at least 1.
    residual : bool
        Whether a layer adds its input.
    causal : bool
        Whether position k attends to positions t <= k only.
    values : str
        identity: V_h = I; orthogonal: V_h random orthogonal; at the start, if they are trained.
    mlp : int
        Hidden units of the MLP after each layer; 0: none.
    readout : str
        first: the prediction is made at position 0; mean: of the mean of all positions; every: at
        every position, with a label for each.
    trained : str
        attention: nothing else; values, mlp or head: these too; all: all of them.
    rate : float
        Step of what is trained besides attention, as a share of the step of attention.
    """

    layers: int = 2
    heads: int = 1
    residual: bool = True
    causal: bool = False
    values: str = "identity"
    mlp: int = 0
    readout: str = "first"
    trained: str = "attention"
    rate: float = 0.1

    def __post_init__(self) -> None:
        TransformerConfig(**vars(self))  # raises ConfigError for a value that is not allowed

    def trains(self, part: str) -> bool:
        """Return whether `part`, values, mlp or head, is trained beside attention."""
        return self.trained in (part, "all")

    def label_shape(self, n: int, T: int) -> tuple[int, ...]:
        """Return (n,), or (n, T) where every position predicts."""
        return (n, T) if self.readout == "every" else (n,)

    def expand(self, X: Tensor, Z: Tensor | None, Y: Tensor, mask: Tensor | None) -> Samples:
        """Return the sequences, with z_i = x_i1; n*T samples where every position predicts."""
        if self.readout == "every":
            return Sequence(self.causal).expand(X, Z, Y, mask)
        return SelfAttention().expand(X, Z, Y, mask)

    def sequences(self, X: Tensor, Y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens (B, n, T, d), labels (B, n) or (B, n, T), and keys (B, n, T), of samples.

        Undoes `expand`.
        """
        if self.readout != "every":
            return X, Y, mask
        B, samples, T, _ = X.shape
        last = mask[:, T - 1 :: T]  # with a causal mask the last query may attend to every key
        return X[:, ::T], Y.view(B, samples // T, T), last


def _all_or(mask: Tensor | None, X: Tensor) -> Tensor:
    return torch.ones_like(X[..., 0], dtype=torch.bool) if mask is None else mask
