"""An attention layer on some sequences, and its heads as instances in few dimensions.

Its rows and heads are bilinear forms; an instance has tokens, queries and W.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot, pad

from attnsvm.config import ConfigError
from attnsvm.display.results import Shaped
from attnsvm.linalg import own_settings, real, tensor_of

CONTROLS = ("none", "spectrum", "queries", "tokens")
"""The head itself, and what it is compared with: see `restricted`."""

RANK = 1e-10
"""Singular values below this, relative to the largest, are rounding."""

SCORE_ERROR = 1e-6
"""Largest error of a score that counts as rounding, relative to the largest difference of two."""

GRAM_RANK = 1e-12
"""Eigenvalues of a Gram matrix below this, relative to the largest, are rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionLayer(Shaped):
    """The heads of an attention layer, and the rows that it sees.

    With keys K_h [x; 1] and queries Q_h [z; 1], biases in the last column, head h gives the key
    row x and the query row z the logit

        [x; 1]^T W_h [z; 1],     W_h = K_h^T Q_h / sqrt(m).

    The softmax over the keys does not depend on the last row of W_h, the bias of the keys.

    X (N, T, d) are the rows that give the keys, Z (N, S, e) those that give the queries, in
    self-attention X. K (H, m, d + 1) and Q (H, m, e + 1) are the maps to keys and queries; all are
    float64. `mask` (N, S, T), bool, says which keys a query may attend to.
    """

    X: Tensor
    Z: Tensor
    K: Tensor
    Q: Tensor
    mask: Tensor

    def __post_init__(self) -> None:
        for name in ("X", "Z", "K", "Q"):
            object.__setattr__(self, name, real(name, getattr(self, name)).detach())
        object.__setattr__(self, "mask", tensor_of("mask", self.mask).bool())

    def W(self, head: int) -> Tensor:
        """Return W_h, shape (d + 1, e + 1)."""
        return self.K[head].mT @ self.Q[head] / math.sqrt(self.K.shape[1])

    def logits(self) -> Tensor:
        """Return the logits of every head, shape (N, H, S, T), also where masked."""
        keys = torch.einsum("hmd,ntd->nhtm", self.K, with_one(self.X))
        queries = torch.einsum("hme,nse->nhsm", self.Q, with_one(self.Z))
        return queries @ keys.mT / math.sqrt(self.K.shape[1])

    def log_attention(self) -> Tensor:
        """Return the log-softmax of every head, shape (N, H, S, T); -inf where masked."""
        return self.logits().masked_fill(~self.mask[:, None], -torch.inf).log_softmax(-1)


def with_one(rows: Tensor) -> Tensor:
    """Return rows (..., d) with a further entry 1, (..., d + 1)."""
    return torch.cat([rows, torch.ones_like(rows[..., :1])], -1)


# --- one head ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Shaped):
    """The heads of a layer on samples in r = max(min(d, n (T - 1)), min(e + 1, n)) dimensions.

    X (n, T, r) are the tokens, relative to the first admissible one of their sample, Z (n, r) the
    queries, and `mask` (n, T), bool, the admissible tokens. logits (H, n, T) and W (H, r, r) are
    those of each head or of its control, W what the tokens see of it; others (H, r, r) are those of
    each head itself. source (n, T) is the sequence of each token.
    """

    X: Tensor
    Z: Tensor
    mask: Tensor
    logits: Tensor
    W: Tensor
    others: Tensor
    source: Tensor

    def head(self, head: int, gamma: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return W (H, r, r) of a head and then of the others, and vectors v_i of scores, (n, r).

        v_i^T (x_it - x_iu) is by how much token t of sample i scores above token u, by scores gamma
        (n, T). Unless they are given, the token that the head attends to most scores 1, the others
        0.
        """
        with own_settings():
            if gamma is None:
                selected = self.logits[head].masked_fill(~self.mask, -torch.inf).argmax(1)
                gamma = one_hot(selected, self.mask.shape[1]).to(self.X)
            W = torch.cat([self.W[head, None], self.others[:head], self.others[head + 1 :]])
            return W, _scores(self.X, self.mask, gamma)


def restricted(
    layer: AttentionLayer, query: Tensor, control: str = "none", generator: Generator | None = None
) -> Restricted:
    """Return a layer on one query of each sequence, in the span of these tokens and queries.

    With orthonormal bases E of all differences of two tokens of a sample, and F of all [z; 1], the
    tokens are d_it = E^T (x_it - x_first) and the queries z_i = F^T [z; 1]. Their SVMs in the
    Frobenius and nuclear norms are those of the given tokens and queries (lemma 1 of arXiv
    2308.16898). Attention depends on W through d_it^T W z_i only, so W is given as its projection
    on span{d_it z_i^T}: the matrix of least Frobenius norm with the same attention.

    `query` (n,), int64, is the row of each sequence whose query is used. The control is none: the
    heads; spectrum: random matrices with their singular values; queries: each query with the tokens
    of another sequence; tokens: the tokens at each place shuffled among sequences. Its random draws
    are those of `generator`. ConfigError if there is no such control.
    """
    if control not in CONTROLS:
        raise ConfigError(f"control={control!r}: must be {' | '.join(CONTROLS)}")
    n, T, d = layer.X.shape
    at = torch.arange(n)
    X, Z, mask = layer.X, with_one(layer.Z[at, query]), layer.mask[at, query]
    source = at[:, None].repeat(1, T)
    if control == "queries":
        order = torch.randperm(n, generator=generator)  # each is sent to the next of this cycle
        sent = torch.empty_like(order)
        sent[order] = order.roll(1)
        Z, mask = Z[sent], mask[sent]  # a causal query keeps its position
    elif control == "tokens":
        source = torch.stack([torch.randperm(n, generator=generator) for _ in range(T)], 1)
        X = X[source, torch.arange(T)]
    first = mask.to(torch.int8).argmax(1)
    D = (X - X[at, first][:, None]).masked_fill(~mask[..., None], 0.0)
    r = max(min(d, n * (T - 1)), min(Z.shape[1], n))
    K, Q = layer.K[..., :-1], layer.Q
    with own_settings():
        E, F = _basis(D.flatten(0, 1), r), _basis(Z, r)
        x, z = (D.flatten(0, 1) @ E).view(n, T, r), Z @ F
        inverse, logits = _inverse(x, z), _logits(D, Z, K, Q)
        W = others = _visible(x, z, inverse, logits)
        if control == "spectrum":
            logits = _logits(D, Z, *same_spectrum(K, Q, generator))
            W = _visible(x, z, inverse, logits)
        return Restricted(x, z, mask, logits, W, others, source)


def _logits(D: Tensor, Z: Tensor, K: Tensor, Q: Tensor) -> Tensor:
    """Return the logits (H, n, T) of tokens (n, T, d) and queries (n, e + 1), K (H, m, d)."""
    keys = torch.einsum("hmd,ntd->hntm", K, D)
    queries = torch.einsum("hme,ne->hnm", Q, Z) / math.sqrt(K.shape[1])
    return (keys @ queries[..., None])[..., 0]


def _inverse(x: Tensor, z: Tensor) -> Tensor:
    """Return the pseudo-inverse of the Gram matrix of the x_it z_i^T, (n T, n T).

    The Gram matrix is scaled to unit diagonal first.
    """
    T, size = x.shape[1], x.norm(dim=-1) * z.norm(dim=-1)[:, None]
    scale = torch.where(size > 0, 1 / size, 0.0).flatten()
    rows = x.flatten(0, 1)
    gram = (rows @ rows.mT) * (z @ z.mT).repeat_interleave(T, 0).repeat_interleave(T, 1)
    gram = scale[:, None] * gram * scale
    return scale[:, None] * torch.linalg.pinv(gram, rtol=GRAM_RANK, hermitian=True) * scale


def _visible(x: Tensor, z: Tensor, inverse: Tensor, logits: Tensor) -> Tensor:
    """Return the smallest W_h with x_it^T W_h z_i = logits (H, n, T), shape (H, r, r).

    W_h = sum_it a_it x_it z_i^T, and the Gram matrix of the x_it z_i^T maps a to the logits.
    """
    a = (logits.flatten(1) @ inverse).view_as(logits)
    return torch.einsum("hnt,ntd->hdn", a, x) @ z


def _basis(rows: Tensor, r: int) -> Tensor:
    """Return an orthonormal basis of the span of rows (N, d), and zeros, (d, r)."""
    sigma, Vh = torch.linalg.svd(rows, full_matrices=False)[1:]
    kept = Vh[:r].masked_fill(sigma[:r, None] <= RANK * sigma[0], 0.0)
    basis = rows.new_zeros(rows.shape[1], r)
    basis[:, : len(kept)] = kept.mT
    return basis


def same_spectrum(K: Tensor, Q: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
    """Return K', Q' such that K'^T Q' has the singular values of K^T Q and random vectors.

    Heads are in front, K (H, m, d) and Q (H, m, e). The singular vectors, the same for all heads,
    are uniform: those of Gaussian matrices.
    """
    R_K, R_Q = (torch.linalg.qr(A.mT)[1] for A in (K, Q))
    sigma = torch.linalg.svdvals(R_K @ R_Q.mT).sqrt()
    drawn = []
    for A in (K, Q):
        G = torch.randn(A.shape[-1], sigma.shape[1], generator=generator, dtype=torch.float64)
        E, R = torch.linalg.qr(G)  # with a positive diagonal of R, E is uniform
        factor = (E * R.diagonal().sign() * sigma[:, None]).mT
        drawn.append(pad(factor, (0, 0, 0, A.shape[1] - sigma.shape[1])))
    return drawn[0], drawn[1]


def _scores(x: Tensor, mask: Tensor, gamma: Tensor) -> Tensor:
    """Return the smallest v_i with v_i^T (x_it - x_iu) = gamma_it - gamma_iu, (n, r).

    t and u are admissible, and the first of them is 0. There is none, a ConfigError, if samples
    have more tokens than independent rows.
    """
    first = mask.to(torch.int8).argmax(1, keepdim=True)
    wanted = (gamma - gamma.gather(1, first)).masked_fill(~mask, 0.0)
    v: Tensor = (torch.linalg.pinv(x, rtol=RANK) @ wanted[..., None])[..., 0]
    missed = ((x @ v[..., None])[..., 0] - wanted).masked_fill(~mask, 0.0).abs().amax()
    if missed > SCORE_ERROR * wanted.abs().amax():
        must = "must be less: no linear head has these scores, as tokens of a sample are dependent"
        raise ConfigError(f"data.T={mask.shape[1]}: {must}")
    return v
