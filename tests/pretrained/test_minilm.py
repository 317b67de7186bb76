"""The real model, `make test-pretrained`: the embeddings of its own library, and its heads."""

import json
from pathlib import Path

import pytest
import torch

from attnsvm.data import Pretrained
from attnsvm.data.pretrained import forward, load
from attnsvm.head import Linear
from attnsvm.model import CrossAttention

pytestmark = pytest.mark.pretrained

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "minilm.json").read_text())


def test_tokens_and_embeddings_are_those_of_the_published_library():
    """Mean of the last rows, of unit norm. The library masks with float32 numbers: 4e-9 apart."""
    model = load("minilm")
    for sentence, tokens, expected in zip(
        *(REFERENCE[name] for name in ("sentences", "tokens", "embeddings")), strict=True
    ):
        found = model.encoded([sentence], len(tokens))
        assert found.tolist() == [tokens]
        mean = forward(model, found)[1][0].mean(0)
        embedding = mean / mean.norm()
        torch.testing.assert_close(
            embedding[:32], torch.tensor(expected).double(), rtol=0, atol=1e-8
        )


def test_every_layer_has_instances_whose_weights_have_the_attention_of_the_head():
    source = Pretrained("minilm", None, 5, 11, 6, 8, True, "none", "attended")
    batch = source.sample(Linear(), CrossAttention(), 2, 3)
    assert batch.X.shape == (2, 6, 8, 42)
    assert batch.weights.shape == (2, 12, 42, 42)
