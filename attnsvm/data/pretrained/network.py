"""Forward passes: a few lines for each architecture, from token numbers to all attention layers."""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, normalize

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.files import Folder
from attnsvm.data.pretrained.layer import AttentionLayer, per_head
from attnsvm.linalg import one_thread

Network = Callable[[Folder, Tensor], Generator[AttentionLayer, Tensor | None, Tensor]]
"""Yields the attention layers, each before what follows it is computed; returns the last rows.

What is sent to it for a layer replaces the attention there, (N, H, T, T).
"""


def forward(folder: Folder, tokens: Tensor) -> tuple[list[AttentionLayer], Tensor]:
    """Return the attention layers of a model on some sequences, and its last rows.

    Parameters
    ----------
    folder : Folder
        A model of type bert or gpt2.
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
        If the model is of another type, lacks a tensor, or is too small for the tokens.
    """
    layers: list[AttentionLayer] = []
    with torch.no_grad(), one_thread():
        return layers, _last_rows(folder, tokens, layers.append)


def _last_rows(
    folder: Folder, tokens: Tensor, sent: Callable[[AttentionLayer], Tensor | None]
) -> Tensor:
    """Return the last rows of a forward pass; what `sent` returns is sent for each layer."""
    passing, value = _network(folder)(folder, tokens), None
    while True:
        try:
            layer = passing.send(value)
        except StopIteration as end:
            rows: Tensor = end.value
            return rows
        value = sent(layer)


def token_scores(folder: Folder, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return by how much more attention to a token lowers the loss, at every layer and head.

    The score of token t for the query q of sequence i is

        gamma_ihqt = -dl_i / ds_ihqt = -(dl_i / do_ihq)^T V_h x_it,

    s the attention of head h, o = sum_t s_t V_h x_t its output, and l_i the loss of the sequence:
    for GPT-2 that of its next tokens, for BERT that of a sentence embedding (`LOSSES`).

    Parameters
    ----------
    folder : Folder
        A model of type bert or gpt2.
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
    attention: list[Tensor] = []

    def of_layer(layer: AttentionLayer) -> Tensor:
        s = layer.log_attention().exp()
        attention.append(s if attention else s.requires_grad_())
        return attention[-1]

    with one_thread(), torch.enable_grad():
        rows = _last_rows(folder, tokens, of_layer)
        losses = LOSSES[str(folder.config["model_type"])](folder, rows, targets)
        return -torch.stack(torch.autograd.grad(losses.sum(), attention))


def _next_token_losses(folder: Folder, rows: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log p(next token) of each sequence, (N,); embeddings are the output's."""
    table = folder.tensor("wte.weight", folder.size("vocab_size"), rows.shape[-1])
    log_p = (rows @ table.mT).log_softmax(-1)
    return -log_p.gather(2, targets[..., None]).mean((1, 2))


def _embedding_losses(folder: Folder, rows: Tensor, targets: Tensor) -> Tensor:
    """Return -log p(next sentence) of each sentence, (N,), among the next ones of all.

    p = softmax_j(SCALE cos(e_i, e'_j)), with the mean of the last rows as embedding: the kind of
    loss by which sentence embedders are trained. Embeddings e' of next sentences are constants.
    """
    with torch.no_grad():
        following = forward(folder, targets)[1].mean(1)
    e, others = (normalize(V, dim=-1) for V in (rows.mean(1), following))
    return -(SCALE * e @ others.mT).log_softmax(-1).diagonal()


def layer_of(folder: Folder, tokens: Tensor, at_layer: int) -> AttentionLayer:
    """Return one of the layers of `forward`; nothing behind it is computed.

    Raises
    ------
    ConfigError
        As `forward` does, or there is no such layer.
    """
    count = -1
    with torch.no_grad(), one_thread():
        for count, layer in enumerate(_network(folder)(folder, tokens)):
            if count == at_layer:
                return layer
    raise ConfigError(f"data.at_layer={at_layer}: must be >= 0 and < {count + 1}")


def _network(folder: Folder) -> Network:
    kind = folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in NETWORKS:
        must = " | ".join(NETWORKS)
        raise ConfigError(f"data.transformer={folder.path}: model_type={kind!r}: must be {must}")
    return NETWORKS[kind]


def causal(folder: Folder) -> bool:
    """Return whether a token attends to itself and earlier ones only."""
    return folder.config.get("model_type") == "gpt2"


def bert(folder: Folder, tokens: Tensor) -> Generator[AttentionLayer, Tensor | None, Tensor]:
    """Yield the layers of BERT: layer norms after attention and after the MLP."""
    d, heads = folder.size("hidden_size"), folder.size("num_attention_heads")
    width, eps = folder.size("intermediate_size"), folder.small("layer_norm_eps", 1e-12)
    folder.require("hidden_act", "gelu", ("gelu",))
    folder.require("position_embedding_type", "absolute", ("absolute",))
    folder.require("is_decoder", False, (False,))
    _check_heads(folder, d, heads)

    def linear(name: str, rows: Tensor, out: int) -> Tensor:
        weight = folder.tensor(f"{name}.weight", out, rows.shape[-1])
        return rows @ weight.mT + folder.tensor(f"{name}.bias", out)

    def norm(name: str, rows: Tensor) -> Tensor:
        scale, shift = (folder.tensor(f"{name}.{part}", d) for part in ("weight", "bias"))
        return layer_norm(rows, (d,), scale, shift, eps)

    def head_maps(name: str) -> Tensor:
        weight, bias = folder.tensor(f"{name}.weight", d, d), folder.tensor(f"{name}.bias", d)
        return per_head(weight, bias, heads)

    kinds = folder.size("type_vocab_size") if "type_vocab_size" in folder.config else 2
    types = folder.tensor("embeddings.token_type_embeddings.weight", kinds, d)
    rows = _embedded(folder, tokens, "embeddings.word_embeddings", "vocab_size") + types[0]
    rows = rows + _positions(folder, tokens, "embeddings.position_embeddings",
                             "max_position_embeddings")  # fmt: skip
    rows = norm("embeddings.LayerNorm", rows)
    for at in range(folder.size("num_hidden_layers")):
        block = f"encoder.layer.{at}"
        part = f"{block}.attention.self"
        mask = torch.ones(len(tokens), *rows.shape[1:2] * 2, dtype=torch.bool)
        K, Q = head_maps(f"{part}.key"), head_maps(f"{part}.query")
        layer = AttentionLayer(rows, rows, K, Q, mask)
        sent = yield layer
        mixed = _attended(layer, sent, linear(f"{part}.value", rows, d))
        mixed = linear(f"{block}.attention.output.dense", mixed, d)
        rows = norm(f"{block}.attention.output.LayerNorm", rows + mixed)
        hidden = gelu(linear(f"{block}.intermediate.dense", rows, width))
        rows = norm(f"{block}.output.LayerNorm", rows + linear(f"{block}.output.dense", hidden, d))
    return rows


def gpt2(folder: Folder, tokens: Tensor) -> Generator[AttentionLayer, Tensor | None, Tensor]:
    """Yield the layers of GPT-2: causal, layer norms before attention and before the MLP."""
    d, heads = folder.size("n_embd"), folder.size("n_head")
    width = 4 * d if folder.config.get("n_inner") is None else folder.size("n_inner")
    eps = folder.small("layer_norm_epsilon", 1e-5)
    folder.require("activation_function", "gelu_new", ("gelu_new",))
    folder.require("scale_attn_weights", True, (True,))
    folder.require("scale_attn_by_inverse_layer_idx", False, (False,))
    folder.require("add_cross_attention", False, (False,))
    _check_heads(folder, d, heads)

    def linear(name: str, rows: Tensor, out: int) -> Tensor:  # stored as (in, out)
        weight = folder.tensor(f"{name}.weight", rows.shape[-1], out)
        return rows @ weight + folder.tensor(f"{name}.bias", out)

    def norm(name: str, rows: Tensor) -> Tensor:
        scale, shift = (folder.tensor(f"{name}.{part}", d) for part in ("weight", "bias"))
        return layer_norm(rows, (d,), scale, shift, eps)

    rows = _embedded(folder, tokens, "wte", "vocab_size")
    rows = rows + _positions(folder, tokens, "wpe", "n_positions")
    N, T = tokens.shape
    mask = torch.ones(T, T, dtype=torch.bool).tril().expand(N, T, T)
    for at in range(folder.size("n_layer")):
        block = f"h.{at}"
        seen = norm(f"{block}.ln_1", rows)
        weight = folder.tensor(f"{block}.attn.c_attn.weight", d, 3 * d).mT
        bias = folder.tensor(f"{block}.attn.c_attn.bias", 3 * d)
        Q, K = (
            per_head(weight[first : first + d], bias[first : first + d], heads) for first in (0, d)
        )
        layer = AttentionLayer(seen, seen, K, Q, mask)
        sent = yield layer
        mixed = _attended(layer, sent, seen @ weight[2 * d :].mT + bias[2 * d :])
        rows = rows + linear(f"{block}.attn.c_proj", mixed, d)
        hidden = linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", rows), width)
        rows = rows + linear(f"{block}.mlp.c_proj", gelu(hidden, approximate="tanh"), d)
    return norm("ln_f", rows)


NETWORKS: dict[str, Network] = {"bert": bert, "gpt2": gpt2}
"""Architectures by `model_type` of config.json."""

LOSSES = {"bert": _embedding_losses, "gpt2": _next_token_losses}
"""Loss of each sequence, of (folder, last rows, targets)."""

SCALE = 20.0
"""Of the cosines of sentence embeddings: a common choice."""


def _attended(layer: AttentionLayer, sent: Tensor | None, values: Tensor) -> Tensor:
    """Return the heads' means of their values, by their attention or that sent, (N, S, H m)."""
    N, T, _ = values.shape
    by_head = values.reshape(N, T, layer.heads, -1).transpose(1, 2)
    means = (layer.log_attention().exp() if sent is None else sent) @ by_head
    return means.transpose(1, 2).flatten(2)


def _embedded(folder: Folder, tokens: Tensor, name: str, field: str) -> Tensor:
    """Return the rows of an embedding, (N, T, d)."""
    table = folder.tensor(f"{name}.weight", folder.size(field), _width(folder))
    if tokens.max() >= len(table) or tokens.min() < 0:
        must = f"must be >= 0 and < {field}={len(table)}"
        raise ConfigError(f"data.transformer={folder.path}: token {int(tokens.max())}: {must}")
    return table[tokens]


def _positions(folder: Folder, tokens: Tensor, name: str, field: str) -> Tensor:
    """Return the embeddings of the positions, (T, d)."""
    T, most = tokens.shape[1], folder.size(field)
    if most < T:
        raise ConfigError(f"data.T={T}: must be <= {field}={most} of {folder.path}")
    return folder.tensor(f"{name}.weight", most, _width(folder))[:T]


def _width(folder: Folder) -> int:
    return folder.size("hidden_size" if "hidden_size" in folder.config else "n_embd")


def _check_heads(folder: Folder, d: int, heads: int) -> None:
    if d % heads:
        raise ConfigError(
            f"data.transformer={folder.path}: {heads} heads: must divide the width {d}"
        )
