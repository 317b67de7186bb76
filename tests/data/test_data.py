"""The sources of instances: published draws bit for bit, files, texts and images."""

import os
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
from tests.quick import quick

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
    torch.testing.assert_close(*grams, rtol=0, atol=1e-14)
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
    for model in ("cross_attention", "sequence"):
        batch = sample("orthonormal", n=2, T=T, d=d, trials=3, model=model)
        gram = batch.X @ batch.X.mT
        torch.testing.assert_close(gram, torch.eye(T).double().expand_as(gram), atol=1e-6, rtol=0)
        assert batch.Y.eq(1).all()


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


REFUSED = {
    "data=spere": r"data=spere: did you mean sphere? must be sphere | orthonormal",
    "N=3": "N: did you mean n? must be T | d | n |",
    "lam=0.1": "lam: must be T | d | n |",
    "seed=-1": "seed=-1: must be a whole number >= 0",
    "trials=0": "trials=0: must be a whole number >= 1",
    "data=sphere_in_span head=mlp": "head=mlp: must be linear, joint or quadratic",
    "data=planted d=2": "data.d=2: must be >= 3",
    "data=planted head=mlp": "head=mlp: must be linear, joint or quadratic",
    "data=token_graph model=sequence": "cross_attention, with data=token_graph",
    "data=text n=1336": "n=1336: must be <= 1335, the windows of 8 words",
    "data=text n=1 K=1400 d=1400": "K=1400: must be <= 1379, the different",
    "data=text text=/dev/zero": "must be a file; must be a text file, UTF-8",
    "data=text text=/nowhere/text": "must be a text file, UTF-8",
    "data=classes points=rademacher margin=0 bias=true": "bias=True: must be false with points=",
    "data=classes model=sequence": "cross_attention or linear, with data=classes",
    "data=classes points=rademacher": "data.margin=0.5: must be 0 with points=rademacher",
    "data=sphere model=linear": "model=linear: data must be classes | contexts, or file with X",
    "data=contexts support=7": "data.support=7: must be <= K=6",
    "data=contexts contexts=30": "data.contexts=30: must be <= n=24",
    "data=digits negative=3": "data.negative=3: must be different",
    "data=digits n=10000": "data.n=10000: must be <= 357",
    "data=digits model=sequence": "one label per image",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_bad_options_are_named(typed):
    with pytest.raises(ConfigError, match=re.escape(REFUSED[typed])):
        sample(**OmegaConf.from_dotlist(typed.split()))


MASK = np.ones((5, 2, 3))
ARRAYS = {name: getattr(sample(n=2, T=3, d=4, trials=5, seed=2), name).numpy() for name in "XZY"}


@pytest.fixture
def of_file(tmp_path):
    """Return the instances of a file with `ARRAYS`, of which some are changed; not if None."""

    def of_file(changed=(), **options):
        arrays = (ARRAYS | dict(changed)).items()
        np.savez(tmp_path / "X.npz", **{name: V for name, V in arrays if V is not None})
        return sample("file", path=str(tmp_path / "X.npz"), **options)

    return of_file


def test_file_holds_the_instances(of_file):
    mask, v = np.ones((5, 2, 3), dtype=bool), np.ones((5, 4))
    mask[0, 0, 1] = False
    batch = of_file({"mask": mask, "v": v}, trials=3, seed=8)
    for name, array in (ARRAYS | {"mask": mask}).items():
        np.testing.assert_array_equal(getattr(batch, name), array[:3])
    np.testing.assert_array_equal(batch.head_parameters["v"], v[:3])
    assert batch.seeds.tolist() == [8, 9, 10]


def test_file_parameters_of_one_instance_are_drawn_and_one_matrix_is_for_all(of_file):
    batch = of_file({name: value[0] for name, value in ARRAYS.items()}, seed=8)
    drawn = sample(**SIZE, seed=8, trials=1)
    assert batch.X.shape == (1, 2, 3, 4)
    assert batch.head_parameters["v"].equal(drawn.head_parameters["v"])
    V = np.eye(4) / 2
    batch = of_file({"V": V}, head="relu")
    np.testing.assert_array_equal(batch.head_parameters["V"], np.broadcast_to(V, (5, 4, 4)))


def test_file_needs_no_queries_when_tokens_ask_nor_labels_of_each_position(of_file):
    repeated = of_file(model="sequence")
    np.testing.assert_array_equal(repeated.Y, np.repeat(ARRAYS["Y"], 3, axis=1))
    each = np.where(np.arange(30).reshape(5, 2, 3) % 2, 1.0, -1.0)
    labelled = of_file({"Y": each}, model="sequence")
    np.testing.assert_array_equal(labelled.Y, each.reshape(5, 6))
    asked = of_file({"Z": None}, model="self_attention").Z
    np.testing.assert_array_equal(asked, ARRAYS["X"][:, :, 0])


NO_FILES = {
    "Z: missing; must be in the file, which has X, Y": {"Z": None},
    "X: missing; must be in the file, which has Y, Z": {"X": None},
    "X: shape (5, 2); must be (B, n, T, d)": {"X": np.ones((5, 2))},
    "X: shape (5, 2, 0, 4); must be": {"X": np.ones((5, 2, 0, 4))},
    "X: nan at index": {"X": np.full((5, 2, 3, 4), np.nan)},
    "X: can't convert np.ndarray of type numpy.str_": {"X": np.full((5, 2, 3, 4), "one")},
    "not a readable .npz": {"X": np.full((5, 2, 3, 4), None)},
    "Z: shape (5, 1, 4); must be (5, 2, 4)": {"Z": np.ones((5, 1, 4))},
    "Y: label 0.0; must be -1 or": {"Y": np.zeros((5, 2))},
    "unknown array Mask; must be X | Z | Y | mask | v | V": {"Mask": MASK},
    "mask: every sample must have": {"mask": 0 * MASK},
    "mask: has a value other than 0 and 1": {"mask": 2 * MASK},
}


@pytest.mark.parametrize("message", NO_FILES)
def test_bad_files_are_named(of_file, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        of_file(NO_FILES[message])


def test_missing_and_broken_files_are_named(tmp_path):
    (tmp_path / "broken").write_bytes(b"not a zip")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nowhere", "no such file; must be an .npz"),
        ("broken", r"not a readable .npz \(.*; must be one with X, Z, Y"),
        ("pipe", "not a regular file; must be an .npz"),
    ):
        with pytest.raises(ConfigError, match=f"data.path=.*{name}: {message}"):
            sample("file", path=str(tmp_path / name))


def test_objects_are_taken_as_they_are():
    """A source and a model of one's own beside a named head."""
    own = sample(Sphere(n=2, T=3, d=4), model=CrossAttention(), trials=5)
    assert own.X.equal(sample("sphere", n=2, T=3, d=4, trials=5).X)
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
