"""One attention layer on some sequences: its rows, and its heads as bilinear forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.config import ConfigError


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """The heads of an attention layer, and the rows that it sees.

    With keys K_h [x; 1] and queries Q_h [z; 1], biases in the last column, head h gives the key
    row x and the query row z the logit

        [x; 1]^T W_h [z; 1],     W_h = K_h^T Q_h / sqrt(m).

    The softmax over the keys does not depend on the last row of W_h, the bias of the keys.

    Attributes
    ----------
    X : Tensor
        Rows that give the keys, shape (N, T, d), float64.
    Z : Tensor
        Rows that give the queries, shape (N, S, e), float64; in self-attention X.
    K : Tensor
        Maps to the keys, shape (H, m, d + 1), float64.
    Q : Tensor
        Maps to the queries, shape (H, m, e + 1), float64.
    mask : Tensor
        Which keys a query may attend to, shape (N, S, T), bool.
    """

    X: Tensor
    Z: Tensor
    K: Tensor
    Q: Tensor
    mask: Tensor

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return len(self.K)

    def W(self, head: int) -> Tensor:
        """Return W_h, shape (d + 1, e + 1).

        Raises
        ------
        ConfigError
            If there is no such head.
        """
        self.check_head(head)
        return self.K[head].mT @ self.Q[head] / math.sqrt(self.K.shape[1])

    def check_head(self, head: int) -> None:
        """Raise ConfigError if there is no such head."""
        if not 0 <= head < self.heads:
            raise ConfigError(f"head={head}: must be >= 0 and < {self.heads}, the heads of a layer")

    def log_attention(self) -> Tensor:
        """Return the log-softmax of every head, shape (N, H, S, T); -inf where masked."""
        keys = torch.einsum("hmd,ntd->nhtm", self.K, with_one(self.X))
        queries = torch.einsum("hme,nse->nhsm", self.Q, with_one(self.Z))
        logits = queries @ keys.mT / math.sqrt(self.K.shape[1])
        return logits.masked_fill(~self.mask[:, None], -torch.inf).log_softmax(-1)


def with_one(rows: Tensor) -> Tensor:
    """Return rows (..., d) with a further entry 1, (..., d + 1)."""
    return torch.cat([rows, torch.ones_like(rows[..., :1])], -1)
