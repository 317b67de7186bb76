"""An attention layer on some sequences, and its heads as instances in few dimensions."""

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

RANK, GRAM_RANK = 1e-10, 1e-12
"""Singular values, and eigenvalues of Gram matrices, that are rounding, relative to the largest."""

SCORE_ERROR = 1e-6
"""Largest error of a score that counts as rounding, relative to the largest difference of two."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionLayer(Shaped):
    """The heads of an attention layer, and the rows that it sees.

    X (N, T, d) are the rows that give the keys, Z (N, S, e) those that give the queries, K
    (H, m, d + 1) and Q (H, m, e + 1) the maps with biases in the last column; all float64. Head h
    has the logits [x; 1]^T W_h [z; 1], W_h = K_h^T Q_h / sqrt(m). `mask` (N, S, T), bool, says
    which keys a query may attend to.
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
    return pad(rows, (0, 1), value=1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Shaped):
    """The heads of a layer on samples in r = max(min(d, n (T - 1)), min(e + 1, n)) dimensions.

    X (n, T, r) are the tokens, relative to the first admissible one of their sample, Z (n, r) the
    queries, and `mask` (n, T), bool, the admissible tokens. W (H, r, r) is what the tokens see of
    each head or of its control, others (H, r, r) of each head itself. source (n, T) is the sequence
    of each token.
    """

    X: Tensor
    Z: Tensor
    mask: Tensor
    W: Tensor
    others: Tensor
    source: Tensor

    @own_settings()
    def head(self, head: int, gamma: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return W (H, r, r) of a head and then of the others, and score vectors v_i (n, r).

        v_i is the smallest vector with v_i^T (x_it - x_iu) = gamma_it - gamma_iu, of scores (n, T):
        by default 1 for the token that the head attends to most, 0 for the others. There is none, a
        ConfigError, if samples have more tokens than independent rows.
        """
        if gamma is None:
            logits = (self.X @ self.W[head] @ self.Z[..., None])[..., 0]
            selected = logits.masked_fill(~self.mask, -torch.inf).argmax(1)
            gamma = one_hot(selected, self.mask.shape[1]).to(self.X)
        first = self.mask.int().argmax(1, keepdim=True)  # its row is 0
        wanted = (gamma - gamma.gather(1, first)).masked_fill(~self.mask, 0.0)[..., None]
        v = torch.linalg.pinv(self.X, rtol=RANK) @ wanted
        missed = (self.X @ v - wanted).masked_fill(~self.mask[..., None], 0.0)
        if missed.abs().amax() > SCORE_ERROR * wanted.abs().amax():
            must = "must be less: no linear head has these scores: tokens of a sample are dependent"
            raise ConfigError(f"data.T={self.mask.shape[1]}: {must}")
        W = torch.cat([self.W[head, None], self.others[:head], self.others[head + 1 :]])
        return W, v[..., 0]


@own_settings()
def restricted(
    layer: AttentionLayer, query: Tensor, control: str = "none", generator: Generator | None = None
) -> Restricted:
    """Return a layer on one query of each sequence, in the span of these tokens and queries.

    With orthonormal bases E of all differences of two tokens of a sample, and F of all [z; 1], the
    tokens are d_it = E^T (x_it - x_first) and the queries z_i = F^T [z; 1]: their SVMs are those of
    the given ones (lemma 1 of arXiv 2308.16898). W is the matrix of least Frobenius norm with the
    attention of the head, its projection on span{d_it z_i^T}.

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
    D = (X - X[at, mask.int().argmax(1)][:, None]).masked_fill(~mask[..., None], 0.0)
    r = max(min(d, n * (T - 1)), min(Z.shape[1], n))
    x, z = (rows @ _basis(rows.flatten(0, -2), r) for rows in (D, Z))
    gram = (x.flatten(0, 1) @ x.flatten(0, 1).mT) * torch.kron(z @ z.mT, z.new_ones(T, T))
    size = gram.diagonal().sqrt()
    unit = torch.where(size > 0, 1 / size, 0.0)
    inverse = torch.linalg.pinv(unit[:, None] * gram * unit, rtol=GRAM_RANK, hermitian=True)

    def seen(K: Tensor, Q: Tensor) -> Tensor:
        """Return sum_it a_it x_it z_i^T with the logits of these maps, (H, r, r)."""
        keys = torch.einsum("hmd,ntd->hntm", K, D)
        queries = torch.einsum("hme,ne->hnm", Q, Z) / math.sqrt(K.shape[1])
        logits = (keys @ queries[..., None]).flatten(1)
        a = (logits * unit @ inverse * unit).view(len(K), n, T)
        return torch.einsum("hnt,ntd->hdn", a, x) @ z

    K, Q = layer.K[..., :-1], layer.Q
    W = others = seen(K, Q)
    if control == "spectrum":
        W = seen(*same_spectrum(K, Q, generator))
    return Restricted(x, z, mask, W, others, source)


def _basis(rows: Tensor, r: int) -> Tensor:
    """Return an orthonormal basis of the span of rows (N, d), and zeros, (d, r)."""
    sigma, Vh = torch.linalg.svd(rows, full_matrices=False)[1:]
    kept = Vh[:r].masked_fill(sigma[:r, None] <= RANK * sigma[0], 0.0)
    return pad(kept.mT, (0, r - len(kept)))


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
