"""Forward passes of a pretrained model: its attention layers, and scores of tokens by a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.files import PretrainedModel
from attnsvm.data.pretrained.hooks import caught
from attnsvm.data.pretrained.layer import AttentionLayer
from attnsvm.linalg import one_thread

SCALE = 20.0
"""Of the cosines of sentence embeddings: a common choice."""


def forward(model: PretrainedModel, tokens: Tensor) -> tuple[list[AttentionLayer], Tensor]:
    """Return the attention layers of a model on some sequences, and its last rows.

    Parameters
    ----------
    model : PretrainedModel
        The model.
    tokens : Tensor
        Numbers of the tokens, shape (N, T), int64.

    Returns
    -------
    list of AttentionLayer
        With the rows that each of them sees; those of GPT-2 after the layer norm.
    Tensor
        The last rows, shape (N, T, d), float64.

    Raises
    ------
    ConfigError
        If the model is too small for the tokens.
    """
    with torch.no_grad(), one_thread(), caught(model.network, model.causal) as layers:
        rows: Tensor = _run(model, tokens).last_hidden_state
    return list(layers.values()), rows


def token_scores(model: PretrainedModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return by how much more attention to a token lowers the loss, at every layer and head.

    The score of token t for the query q of sequence i is

        gamma_ihqt = -dl_i / ds_ihqt = -(dl_i / do_ihq)^T V_h x_it,

    s the attention of head h, o = sum_t s_t V_h x_t its output, and l_i the loss of the sequence:
    for GPT-2 that of its next tokens, for BERT that of a sentence embedding.

    Parameters
    ----------
    model : PretrainedModel
        The model.
    tokens : Tensor
        Numbers of the tokens, shape (N, T), int64.
    targets : Tensor
        Those to be predicted, shape (N, T): the next token of each one, or the next sentence.

    Returns
    -------
    Tensor
        Shape (L, N, H, T, T), float64, in nats.

    Raises
    ------
    ConfigError
        As `forward` does.
    """
    of_kind = _next_token_losses if model.causal else _embedding_losses
    with one_thread(), torch.enable_grad():
        found = _run(model, tokens, output_attentions=True)
        losses = of_kind(model, found.last_hidden_state, targets)
        return -torch.stack(torch.autograd.grad(losses.sum(), found.attentions))


def _next_token_losses(model: PretrainedModel, rows: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log p(next token) of each sequence, (N,); embeddings are the output's."""
    log_p = (rows @ model.network.get_parameter("wte.weight").mT).log_softmax(-1)
    return -log_p.gather(2, targets[..., None]).mean((1, 2))


def _embedding_losses(model: PretrainedModel, rows: Tensor, targets: Tensor) -> Tensor:
    """Return -log p(next sentence) of each sentence, (N,), among the next ones of all.

    p = softmax_j(SCALE cos(e_i, e'_j)), with the mean of the last rows as embedding: the kind of
    loss by which sentence embedders are trained. Embeddings e' of next sentences are constants.
    """
    following = forward(model, targets)[1].mean(1)
    e, others = (normalize(V, dim=-1) for V in (rows.mean(1), following))
    return -(SCALE * e @ others.mT).log_softmax(-1).diagonal()


def _run(model: PretrainedModel, tokens: Tensor, **options: Any) -> Any:
    """Return what the network returns for some tokens (N, T)."""
    config: Any = model.network.config
    T, positions, words = tokens.shape[1], config.max_position_embeddings, config.vocab_size
    if positions < T:
        raise ConfigError(f"data.T={T}: must be <= {positions}, the positions of {model.path}")
    if tokens.max() >= words or tokens.min() < 0:
        must = f"must be >= 0 and < vocab_size={words}"
        raise ConfigError(f"data.transformer={model.path}: token {int(tokens.max())}: {must}")
    if model.causal:
        options["use_cache"] = False
    else:
        options["token_type_ids"] = torch.zeros_like(tokens)
    return model.network(tokens, position_ids=torch.arange(T)[None], **options)
