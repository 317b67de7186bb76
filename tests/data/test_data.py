"""The sources of instances: published draws bit for bit, files, texts and images."""

import re

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data import Sphere, Text, sample
from attnsvm.data.digits import labelled_patches
from attnsvm.model import CrossAttention
from attnsvm.selection import optimal_tokens
from attnsvm.theory.token_graph import priority_graphs
from attnsvm.training import train
from tests.kkt import assert_near
from tests.quick import quick, refusals
from tests.svm.instances import batch_of

pytestmark = pytest.mark.processors


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def unit(generator, *shape):
    rows = normal(generator, *shape)
    return (rows / rows.norm(dim=-1, keepdim=True)).double()


def signs(generator, *shape):
    return (2.0 * (normal(generator, *shape) > 0) - 1.0).double()


SIZE = {"n": 2, "T": 3, "d": 4}
ONES = torch.ones(2, dtype=torch.float64)
SHIFT = torch.tensor([-1.0, 0.0])


def near_tokens(generator):
    X = 0.5 * normal(generator, 2, 5, 2) + SHIFT
    X[:, 0] = torch.tensor([[1.0, 0.5], [1.0, -0.5]])
    return X.double()


def sphere(g):
    return {"v": unit(g, 4), "Y": signs(g, 2), "X": unit(g, 2, 3, 4), "Z": unit(g, 2, 4)}


DRAWS = {
    "data=sphere seed=7": sphere,
    "data=sphere seed=8 head=relu": lambda g: {
        "V": unit(g, 16).view(4, 4),
        "X": unit(g, 2, 3, 4),
        "Y": signs(g, 2),
        "Z": unit(g, 2, 4),
    },
    # labels of a sequence come after all other draws
    "data=sphere seed=0 model=sequence": lambda g: sphere(g) | {"Y": signs(g, 2, 3).flatten()},
    "data=prompt seed=8": lambda g: {
        "v": unit(g, 4),
        "X": unit(g, 2, 3, 4),
        "Z": unit(g, 1, 4).expand(2, 4),
        "Y": ONES,
    },
    "data=orthonormal seed=0 T=4": lambda g: {
        "v": unit(g, 4),
        "X": torch.linalg.svd(normal(g, 2, 4, 4))[0].double(),
        "Z": unit(g, 2, 4),
        "Y": ONES,
    },
    "data=paths_far seed=1": lambda g: {
        "v": unit(g, 2),
        "X": (0.3 * normal(g, 2, 3, 2) + torch.stack([SHIFT, -SHIFT])[:, None]).double(),
        "Z": unit(g, 2, 2),
    },
    "data=paths_near seed=3": lambda g: {"v": unit(g, 2), "X": near_tokens(g), "Z": unit(g, 2, 2)},
}


@pytest.mark.parametrize("typed", DRAWS)
def test_instances_are_the_published_draws_in_their_order(typed):
    options = OmegaConf.from_dotlist(typed.split())
    size = {} if "paths" in options.data else SIZE
    batch = sample(**size | {"trials": 1, **options})
    for name, value in DRAWS[typed](Generator().manual_seed(options.seed)).items():
        array = batch.head_parameters[name] if name in "vV" else getattr(batch, name)
        assert array[0].equal(value) or (name in "XZ" and options.get("model")), name


@pytest.mark.parametrize("d", [4, 30])
def test_instances_in_their_span_have_the_same_inner_products(d):
    size = {"n": 2, "T": 3, "d": d, "trials": 3}
    wide, inside = (sample(name, **size) for name in ("sphere", "sphere_in_span"))
    assert inside.X.shape == (3, 2, 3, min(d, 8))
    grams = []
    for batch in (wide, inside):
        V = torch.cat([batch.X.flatten(1, 2), batch.Z], 1)
        scores = V @ batch.head_parameters["v"][..., None]
        grams.append(torch.cat([V @ V.mT, scores], 2))
    assert_near(*grams, atol=1e-14)
    assert inside.Y.equal(wide.Y)
    diagonal = inside.X.flatten(1, 2).diagonal(dim1=1, dim2=2)
    assert (diagonal > 0).all()


def test_a_planted_token_has_the_score_and_resembles_the_query():
    size = {"n": 200, "T": 3, "d": 5, "trials": 2, "score_gap": 0.6, "signal": 2.0, "seed": 4}
    batch = sample("planted", **size)
    gamma, (best, _) = batch.scores(), optimal_tokens(batch)
    others = torch.ones_like(gamma, dtype=torch.bool).scatter(2, best[..., None], False)
    assert (gamma[~others] == 0.6).all()
    assert (gamma[others] == 0).all()
    torch.testing.assert_close(batch.X.norm(dim=-1), torch.ones(2, 200, 3).double())
    cosine = (batch.X @ batch.Z[..., None])[..., 0] / (1 - batch.X[..., 0] ** 2).sqrt()
    relevant = cosine[~others].reshape(2, 200)
    assert (relevant >= 0.75**0.5 - 1e-7).all()  # 2 z + g, |g| = 1, is within 30 degrees of z
    assert abs(cosine[others].mean()) < 0.05
    counts = torch.bincount(best.flatten(), minlength=3)
    assert (counts > 100).all()


SHARES = {
    ("w", 8): (0.444, 0.069, 0.179),
    ("kq", 8): (0.636, 0.040, 0.181),
    ("w", 32): (0.420, 0.070, 0.178),
}
"""Of new samples at their relevant token without a signal: Y (W z)_1 > 0, < 0; left out."""


@pytest.mark.parametrize("case", quick(*SHARES))
def test_what_exceeds_chance_without_a_signal_is_the_relevant_tokens_part_along_the_head(case):
    """As sweep=generalisation trains; only the relevant token has a first entry, 0.5 Y."""
    rule, n = case
    options = {"signal": 0.0, "n": n, "T": 5, "d": 10, "held_out": 200, "trials": 50}
    batch = sample("planted", **options)
    W = train(batch, rule, init="small", growth=0.05, steps=2000).W
    held_out, moved = batch.held_out, batch.held_out.Z @ W.mT
    along, relevant = held_out.Y * moved[..., 0], held_out.scores().argmax(-1)
    attended, without = (
        (X @ V[..., None])[..., 0].argmax(-1) == relevant
        for X, V in ((held_out.X, moved), (held_out.X[..., 1:], moved[..., 1:]))
    )
    hits = attended[along > 0], attended[along < 0], without
    shares = [hit.double().mean().item() for hit in hits]
    assert shares == pytest.approx(SHARES[case], abs=1e-3)


def test_held_out_samples_change_nothing_and_follow_the_others():
    size = {"n": 3, "T": 4, "d": 5, "trials": 2}
    alone, more = sample("planted", **size), sample("planted", **size, held_out=7)
    whole = sample("planted", **size | {"n": 10})
    for name in ("X", "Z", "Y", "mask"):
        part, rest = getattr(more, name), getattr(more.held_out, name)
        assert part.equal(getattr(alone, name))
        assert torch.cat([part, rest], 1).equal(getattr(whole, name))
    assert more.take(slice(1, 2)).held_out.X.equal(more.held_out.X[1:])


@pytest.mark.parametrize(("T", "d"), [(3, 3), (3, 5), (1, 4)])
def test_orthonormal_tokens(T, d):
    X = batch_of(2, T, d, 3, data="orthonormal").X
    assert_near(X @ X.mT, torch.eye(T).double().expand(3, 2, T, T), atol=1e-6)


def test_windows_of_a_text_have_their_next_word(tmp_path):
    """After rain comes the sun, or the moon; hail is a rare word."""
    (tmp_path / "text").write_text("Sun, moon; rain! Sun -- moon. 'Sun': hail, rain, moon; moon's.")
    size = {"n": 4, "T": 3, "K": 3, "d": 3, "text": str(tmp_path / "text")}
    source = Text(**size, embeddings="orthonormal", output="inverse")
    assert (source.known, source.windows) == (["moon", "sun", "rain"], 5)
    windows = {" ".join(source.known[k][0] for k in ids) for ids in source.usable.tolist()}
    assert windows == {"s m r s", "m r s m", "r s m s", "m s r m"}
    batch = sample("text", **size, trials=3)
    for graph in priority_graphs(batch):
        assert graph.sizes == {"components": (2 + 3 + 3) / 3, "largest": 2, "edges": 8 / 3}
        assert sorted(graph.inside.sum(1).tolist()) == [1, 1, 2, 2]
    for seed, X in enumerate(batch.X):
        words = np.array(source.words(seed)).ravel()
        same = (words[:, None] == words).tolist()
        assert (X.flatten(0, 1) @ X.flatten(0, 1).mT > 0.5).tolist() == same
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"text: .*codec can't.*must be a text file, UTF-8"):
        sample("text", **size)


@pytest.mark.parametrize(("typed", "told"), refusals("data"))
def test_bad_options_are_named(typed, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        sample(**OmegaConf.from_dotlist(typed.split()))


def test_objects_are_taken_as_they_are():
    """A source and a model of one's own beside a named head."""
    own = sample(Sphere(n=2, T=3, d=4), model=CrossAttention(), trials=5)
    assert own.X.equal(batch_of(2, 3, 4, 5).X)
    with pytest.raises(ConfigError, match=r"^d: .*must be .*data \| head \| model"):
        sample(Sphere(n=2, T=3, d=4), d=4)


def test_tokens_of_digits_are_patches_queries_their_means_and_a_head_separates_them():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    chosen = (digits.target == 3) | (digits.target == 8)
    patches, labels = labelled_patches(3, 8, 4, 2)
    windows = np.lib.stride_tricks.sliding_window_view(digits.images[chosen] / 16, (4, 4), (1, 2))
    np.testing.assert_array_equal(patches, windows[:, ::2, ::2].reshape(-1, 9, 16))
    np.testing.assert_array_equal(labels, np.where(digits.target[chosen] == 3, 1, -1))
    batch, same = (sample("digits", n=50, trials=k, seed=7 - k) for k in (3, 2))
    assert batch.X[1:].equal(same.X)
    assert batch.Z.equal(batch.X.mean(2))
    v = batch.head_parameters["v"][..., None]
    torch.testing.assert_close(v.norm(dim=1), torch.ones(3, 1).double())
    score = (batch.Z @ v)[..., 0]
    assert score[batch.Y > 0].mean() > score[batch.Y < 0].mean()
