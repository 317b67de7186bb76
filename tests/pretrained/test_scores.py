"""The scores of tokens by the loss of a model: `data.scores=loss`."""

from functools import partial

import pytest
import torch

pytest.importorskip("tokenizers")  # of transformers, which is slow to import

from attnsvm.data.pretrained import heads_of
from attnsvm.data.pretrained.source import load, token_scores
from tests.pretrained.tiny import HEADS, LAYERS, D, drawn, source, tiny

KINDS = pytest.mark.parametrize("kind", ["bert", "gpt2"])
N, T = 4, 5


def sentences():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 90, (2, N, T), generator=generator)


def losses_by_definition(kind, rows, targets):
    """Cross-entropies of torch, of next tokens or of cosines with the next sentences."""
    model = load(str(tiny(kind)))
    if kind == "gpt2":
        logits = rows @ model.network.get_parameter("wte.weight").mT
        each = torch.nn.functional.cross_entropy(logits.mT, targets, reduction="none")
        return each.mean(1)
    following = model.network(targets).last_hidden_state.mean(1)
    cosines = torch.cosine_similarity(rows.mean(1)[:, None], following[None], dim=-1)
    return torch.nn.functional.cross_entropy(20 * cosines, torch.arange(N), reduction="none")


PARTS = {
    "bert": ("encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.output.dense"),
    "gpt2": ("h.{}.attn.c_attn", "h.{}.attn.c_proj"),
}
"""Maps of a layer to its values, and from the outputs of its heads."""


def losses_with(kind, tokens, targets, at_layer, head, query, token, step):
    """The losses with `step` more attention of a head at a query to a token: o + step V x."""
    model = load(str(tiny(kind)))
    value, out = (model.network.get_submodule(name.format(at_layer)) for name in PARTS[kind])
    rows, m = [*heads_of(model.network, tokens).values()][at_layer].X, D // HEADS
    own = slice(head * m, (head + 1) * m)
    V = value(rows)[..., -D:][:, token, own]

    def more(_, inputs):
        moved = inputs[0].clone()
        moved[:, query, own] += step * V
        return (moved,)

    handle = out.register_forward_pre_hook(more)
    rows = model.network(tokens).last_hidden_state
    handle.remove()
    return losses_by_definition(kind, rows, targets)


@KINDS
@pytest.mark.parametrize("at_layer", range(LAYERS))
def test_scores_are_derivatives_of_the_loss_in_the_attention(kind, at_layer):
    tokens, targets = sentences()
    gamma = token_scores(load(str(tiny(kind))), tokens, targets)[at_layer]
    assert gamma.shape == (N, HEADS, T, T)
    for place in ((0, 2, 1), (1, 4, 4), (2, 1, 0)):
        losses = partial(losses_with, kind, tokens, targets, at_layer, *place)
        slope = torch.autograd.functional.jacobian(losses, torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(-slope, gamma[:, *place], rtol=1e-9, atol=1e-12)


@KINDS
def test_an_instance_has_the_scores_of_its_sentences(kind):
    """Up to a constant for each sample, at the query that is drawn."""
    options = {"kind": kind, "scores": "loss"}
    batch, data = drawn(2, 7, **options), source(**options)
    model, sentences = data.read()
    for b, seed in enumerate((7, 8)):
        chosen, query = data.drawn(model, len(sentences), seed)
        following = sentences[(chosen + 1) % len(sentences)]
        targets = sentences[chosen, 1:] if kind == "gpt2" else following
        gamma = token_scores(model, sentences[chosen, :4], targets)[1, torch.arange(3), 1, query]
        for apart, mask in zip(batch.scores()[b] - gamma, batch.mask[b], strict=True):
            assert apart[mask].tolist() == pytest.approx([float(apart[mask][0])] * sum(mask))


def test_scores_of_tokens_that_controls_move_are_finite_where_they_are_defined():
    for control in ("queries", "tokens"):
        for kind, by in (("gpt2", "attended"), ("bert", "loss")):
            batch = drawn(kind=kind, control=control, scores=by)
            assert batch.scores().isfinite().equal(batch.mask)
