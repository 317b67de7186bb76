"""Heads of a pretrained model, derived from its files: an own reader, and own forward passes.

What is on record are rows in bases of their span, which no one needs to choose in the same way. So
what is compared does not depend on them: inner products of rows, logits, and that W is in the span.
The library `tokenizers` is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.config.pretrained import model_folder
from attnsvm.verify.exact import Array
from attnsvm.verify.instances import Instance, UnknownError
from attnsvm.verify.pretrained_network import config_of, maps_at, rows_at, sentences
from attnsvm.verify.pretrained_scores import scores

TEXT = Path(__file__).parents[1] / "pretrained" / "alice.txt"
CONTROL_STREAM = 0x5DEECE66D

SAME = 1e-9
"""Largest error of inner products of rows, relative to the largest of them."""

SEEN = 1e-6
"""Largest error of logits, of W outside of the span, and of correlations of other heads."""

RANK = 1e-10
"""Singular values below this, relative to the largest, are rounding."""


@dataclass(frozen=True)
class HeadRows:
    """One instance in the dimensions of the model.

    Attributes
    ----------
    D : Array (n, T, d)
        Rows relative to the first admissible one of their sample, zero where inadmissible.
    Z : Array (n, d + 1)
        Queries [z; 1].
    mask : (n, T) bool
        Admissible tokens.
    logits : Array (H, n, T)
        d_it^T W z_i of the head, or its control, and then of the other heads of the layer.
    gamma : Array (n, T) or None
        The scores of the tokens by the loss of the model; None: those of what the head attends to.
    """

    D: Array
    Z: Array
    mask: NDArray[np.bool_]
    logits: Array
    gamma: Array | None


class Heads:
    """The instances of a recorded config with data=pretrained.

    Raises
    ------
    UnknownError
        If the library that reads text is not installed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.asked = config["data"]
        self.folder = model_folder(str(self.asked["transformer"]))
        try:
            import tokenizers  # noqa: F401
        except ImportError as error:
            raise UnknownError("the library tokenizers is not installed") from error

    def instance(self, seed: int) -> HeadRows:
        """Return the instance of `seed`."""
        asked = self.asked
        n, T = asked["n"], asked["T"]
        text = TEXT if asked["text"] is None else Path(asked["text"])
        assert self.folder is not None
        config = config_of(self.folder)
        causal, of_loss = config["model_type"] == "gpt2", asked["scores"] == "loss"
        text_tokens = sentences(self.folder, text, T + (causal and of_loss))
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(text_tokens), generator=generator)[:n].numpy()
        query = torch.randint(int(causal), T, (n,), generator=generator).numpy()
        tokens = text_tokens[chosen, :T].tobytes()
        rows = rows_at(self.folder, tokens, T, asked["at_layer"])
        K, Q = maps_at(self.folder, asked["at_layer"])
        mask = np.arange(T) <= query[:, None] if causal else np.ones((n, T), dtype=bool)
        Z = np.concatenate([rows[np.arange(n), query], np.ones((n, 1))], axis=1)
        first = asked["at_head"]
        order = [first, *(h for h in range(len(K)) if h != first)]
        gamma = None
        if of_loss:
            following = text_tokens[(chosen + 1) % len(text_tokens)]
            targets = (text_tokens[chosen, 1:] if causal else following).tobytes()
            of_all = scores(self.folder, tokens, targets, T, asked["at_layer"])
            gamma = of_all[np.arange(n), first, query]
        given = rows, Z, mask, K[order, :, :-1], Q[order] / math.sqrt(K.shape[1])
        return _relative(*_controlled(asked["control"], seed, gamma, *given))


def _controlled(
    control: str,
    seed: int,
    gamma: Array | None,
    X: Array,
    Z: Array,
    mask: NDArray[np.bool_],
    K: Array,
    Q: Array,
) -> tuple[Array | None, Array, Array, NDArray[np.bool_], Array, Array]:
    """Return scores, tokens, queries, mask and maps after the random draws of a control."""
    generator = torch.Generator().manual_seed(seed ^ CONTROL_STREAM)
    n, T = mask.shape
    if control == "queries":
        order = torch.randperm(n, generator=generator).numpy()
        sent = np.empty(n, dtype=int)
        sent[order] = np.roll(order, 1)
        Z, mask = Z[sent], mask[sent]
    elif control == "tokens":
        orders = [torch.randperm(n, generator=generator).numpy() for _ in range(T)]
        X = np.stack([X[order, t] for t, order in enumerate(orders)], axis=1)
        if gamma is not None:
            gamma = np.stack([gamma[order, t] for t, order in enumerate(orders)], axis=1)
    elif control == "spectrum":
        sigma = np.linalg.svd(K[0].T @ Q[0], compute_uv=False)[: K.shape[1]]
        parts = []
        for width in (K.shape[2], Q.shape[2]):
            draws = torch.randn(width, len(sigma), generator=generator, dtype=torch.float64)
            E, R = np.linalg.qr(draws.numpy())
            parts.append((E * np.sign(np.diag(R)) * np.sqrt(sigma)).T)
        K, Q = (np.concatenate([new[None], A[1:]]) for new, A in zip(parts, (K, Q), strict=True))
    return gamma, X, Z, mask, K, Q


def _relative(
    gamma: Array | None, X: Array, Z: Array, mask: NDArray[np.bool_], K: Array, Q: Array
) -> HeadRows:
    first = X[np.arange(len(X)), mask.argmax(1)]
    D = np.where(mask[..., None], X - first[:, None], 0.0)
    logits = np.einsum("hmd,ntd,hme,ne->hnt", K, D, Q, Z, optimize=True)
    return HeadRows(D, Z, mask, logits, gamma)


# --- comparison -----------------------------------------------------------------------------------


def rows_refusals(
    rows: HeadRows, at: Mapping[str, Any], trained: bool
) -> Iterator[tuple[str, str]]:
    """Yield which stored arrays of an instance are not those of the model, and why.

    W is compared if it was not trained.
    """
    if not np.array_equal(at["mask"], rows.mask):
        yield "mask", "is not that of the text and seed"
        return
    for name, own in (("X", rows.D.reshape(-1, rows.D.shape[-1])), ("Z", rows.Z)):
        stored = at[name].reshape(len(own), -1)
        gram, must = stored @ stored.T, own @ own.T
        if not np.abs(gram - must).max() <= SAME * np.abs(must).max():
            yield name, "its rows do not have the inner products of those of the model"
            return
    if trained:
        return
    W = at["trained_W"]
    logits = _logits(at, W)
    if not np.abs(logits - rows.logits[0])[at["mask"]].max() <= SEEN * np.abs(rows.logits[0]).max():
        yield "trained_W", "does not give the logits of the head"
        return
    a = np.zeros_like(logits)
    a[at["mask"]] = _coefficients(_gram(at), logits[at["mask"]])
    seen = np.einsum("nt,ntd,ne->de", a, at["X"], at["Z"])
    if not np.linalg.norm(W - seen) <= SEEN * np.linalg.norm(W):
        yield "trained_W", "is not in the span of tokens and queries"


def with_scores(rows: HeadRows, at: Mapping[str, Any]) -> Instance:
    """Return the stored rows with what a head is trained on: labels +1, and vectors v_i.

    v_i is the smallest with v_i^T (x_it - x_iu) = gamma_it - gamma_iu, t and u admissible. Without
    scores by the loss, gamma is 1 for the token that the head attends to most and 0 for the others.
    """
    v = np.zeros_like(at["Z"])
    selected = np.where(rows.mask, rows.logits[0], -np.inf).argmax(1)
    gamma = np.eye(rows.mask.shape[1])[selected] if rows.gamma is None else rows.gamma
    for i, (x, mask, one) in enumerate(zip(at["X"], rows.mask, gamma, strict=True)):
        first = mask.argmax()
        D, apart = (V[mask] - V[first] for V in (x, one))
        v[i] = np.linalg.lstsq(D, apart, rcond=RANK)[0]
    return Instance(at["X"], at["Z"], np.ones(len(v)), at["mask"], {"v": v})


def other_heads(
    rows: HeadRows, at: Mapping[str, Any], solutions: Mapping[str, Array]
) -> dict[str, float]:
    """Return the mean correlation of the other heads of the layer with each solution; NaN: none.

    A head is W = sum_k a_k x_k z_k^T; with Gen-SVM less its projection on the differences within
    the attended tokens. Inner products are those of coefficients a by the Gram matrix.
    """
    if len(rows.logits) == 1:
        return dict.fromkeys(solutions, math.nan)
    gram = _gram(at)
    a = _coefficients(gram, rows.logits[1:, at["mask"]].T)  # (N, H - 1)
    C = _within(at["attended"], at["mask"]) if "attended" in at else np.zeros((0, len(gram)))
    if len(C):
        a = a - C.T @ _coefficients(C @ gram @ C.T, C @ gram @ a)
    size = np.sqrt((a * (gram @ a)).sum(0))
    found = {}
    for name, W_mm in solutions.items():
        inner = _logits(at, W_mm)[at["mask"]] @ a
        found[name] = float(np.mean(inner / (size * np.linalg.norm(W_mm))))
    return found


def _logits(at: Mapping[str, Any], W: Array) -> Array:
    return np.asarray(np.einsum("ntd,de,ne->nt", at["X"], W, at["Z"], optimize=True))


def _gram(at: Mapping[str, Any]) -> Array:
    """Return the inner products of the matrices x_it z_i^T of all admissible tokens, (N, N)."""
    sample = np.nonzero(at["mask"])[0]
    X, Z = at["X"][at["mask"]], at["Z"][sample]
    return np.asarray((X @ X.T) * (Z @ Z.T))


def _coefficients(gram: Array, values: Array) -> Array:
    """Return the least a with gram a = values, (N,) or (N, H)."""
    return np.asarray(np.linalg.lstsq(gram, values, rcond=1e-12)[0])


def _within(attended: NDArray[np.bool_], mask: NDArray[np.bool_]) -> Array:
    """Return the differences of attended tokens of a sample to the first one, (M, N), +1 and -1."""
    number = np.cumsum(mask).reshape(mask.shape) - 1
    rows = []
    for numbers in (number[i][attended[i]] for i in range(len(mask))):
        for one in numbers[1:]:
            rows.append(np.zeros(int(mask.sum())))
            rows[-1][one], rows[-1][numbers[0]] = 1.0, -1.0
    return np.array(rows).reshape(len(rows), int(mask.sum()))
