"""A pretrained model of the library transformers: its network, tokenizer and loss."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnsvm.config import ConfigError
from attnsvm.config.sources import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.data.pretrained.hooks import heads_of
from attnsvm.linalg import own_settings

SCALE = 20.0
"""Of the cosines of sentence embeddings: a common choice."""


@dataclass(frozen=True, eq=False)
class Transformer:
    """A network of the library transformers, float64, with its tokenizer.

    `causal` says whether tokens attend to earlier ones only; `largest` has the largest values of T,
    at_layer and at_head.
    """

    network: Any
    tokenizer: Any
    causal: bool
    largest: Mapping[str, int]

    def sentences(self, text: str, T: int) -> Tensor:
        """Return the tokens of the different lines of at least T tokens, truncated, (N, T)."""
        lines = dict.fromkeys(line.strip() for line in text.splitlines())
        ids = self.tokenizer([*filter(None, lines)], truncation=True, max_length=T)["input_ids"]
        return torch.tensor([row for row in ids if len(row) == T], dtype=torch.int64).view(-1, T)


def load(model: str) -> Transformer:
    """Return the model of `data.transformer`, minilm or a folder; ConfigError if it is not one.

    Nothing is unpickled, no code of the folder runs, and nothing is loaded over a network.
    """
    folder = model_folder(model)
    if folder is None:
        must = "its package must be installed, see docs/pretrained.md; or the path of a folder"
        raise ConfigError(f"data.transformer={model}: {must}")
    try:
        files = [(folder / name).stat() for name in (CONFIG, TENSORS, TOKENIZER)]
        return _load(folder, tuple((file.st_mtime_ns, file.st_size) for file in files))
    except ImportError as error:
        must = f"{error.name} must be installed: pip install 'attnsvm[minilm]'"
        raise ConfigError(f"data.transformer={model}: {must}") from error
    except Exception as error:  # of files that are not what they should be, also from Rust
        reason = " ".join(str(error).split())[:500]
        must = f"must be minilm, or a folder with {CONFIG}, {TENSORS} and {TOKENIZER}"
        raise ConfigError(f"data.transformer={model}: {reason}; {must}") from error


@lru_cache(maxsize=2)
def _load(folder: Path, versions: tuple[tuple[int, ...], ...]) -> Transformer:
    from transformers import AutoModel, PreTrainedTokenizerFast

    with own_settings(), contextlib.redirect_stderr(io.StringIO()):  # a bar of progress
        network, report = AutoModel.from_pretrained(
            folder,
            dtype=torch.float64,
            attn_implementation="eager",
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    if missing := [name for name in report["missing_keys"] if not name.startswith("pooler")]:
        raise ValueError(f"{TENSORS} has no {missing[0]}")
    if not all(part.isfinite().all() for part in network.state_dict().values()):
        raise ValueError(f"{TENSORS} has NaN or Inf")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER))
    if len(tokenizer) > network.config.vocab_size:
        raise ValueError(f"{TOKENIZER} has more tokens than {network.config.vocab_size}")
    layers = [*heads_of(network.eval(), torch.zeros(1, 2, dtype=torch.int64)).values()]
    causal = not layers[0].mask[0, 0, 1]
    positions = network.config.max_position_embeddings
    largest = {"T": positions, "at_layer": len(layers) - 1, "at_head": len(layers[0].K) - 1}
    return Transformer(network, tokenizer, causal, largest)


def token_scores(source: Transformer, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return by how much more attention to a token lowers the loss, at every layer and head.

    The score of token t for the query q of sequence i is

        gamma_ihqt = -dl_i / ds_ihqt = -(dl_i / do_ihq)^T V_h x_it,

    s the attention of head h, o = sum_t s_t V_h x_t its output, and l_i the loss of the sequence.
    For a causal model it is the mean of -log p(next token), embeddings as output weights. For
    another one it is

        -log p(next sentence of i),     p = softmax_j(SCALE cos(e_i, e'_j)),

    among the next sentences of all, with the mean of the last rows as embedding: the kind of loss
    by which sentence embedders are trained. Embeddings e' of next sentences are constants.

    Tokens are (N, T), and targets (N, T) those to be predicted: the next token of each one, or the
    next sentence. Scores are (L, N, H, T, T), in nats.
    """
    with own_settings(), torch.enable_grad():
        output = source.network(tokens, output_attentions=True)
        rows = output.last_hidden_state
        if source.causal:
            embeddings = source.network.get_input_embeddings().weight
            log_p = (rows @ embeddings.mT).log_softmax(-1)
            losses = -log_p.gather(2, targets[..., None]).mean((1, 2))
        else:
            with torch.no_grad():
                others = source.network(targets).last_hidden_state
            e, e_next = (normalize(V.mean(1), dim=-1) for V in (rows, others))
            losses = -(SCALE * e @ e_next.mT).log_softmax(-1).diagonal()
        return -torch.stack(torch.autograd.grad(losses.sum(), output.attentions))
