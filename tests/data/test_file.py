"""`data=file`: tokens, ids of tokens with the next ones, points with classes."""

import os
import re

import numpy as np
import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.experiment import run
from attnsvm.experiment.results import OK, marked
from attnsvm.head import RowScores, Vocabulary
from attnsvm.loss import Log
from tests.config.test_config import composed
from tests.kkt import assert_near
from tests.svm.instances import batch_of
from tests.theory.test_token_graph import separated

TOKENS = {name: getattr(batch_of(2, 3, 4, 5, seed=2), name).numpy() for name in "XZY"}
IDS = {"ids": np.array([[0, 1, 4], [4, 2, 2]]), "next": np.array([1, 2])}
POINTS = {"X": np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]]) - 0.5, "y": np.array([0, 0, 1, 1])}
K = 5
EMBEDDINGS = np.random.default_rng(0).normal(size=(K, 7))
MASK = np.ones((5, 2, 3))


@pytest.fixture
def of_file(tmp_path):
    """Return the instances of a file, of whose arrays some are changed; those of None are not."""

    def of_file(arrays, changed=(), **options):
        path, arrays = str(tmp_path / "file.npz"), arrays | dict(changed)
        np.savez(path, **{name: V for name, V in arrays.items() if V is not None})
        return sample("file", path=path, **options)

    return of_file


def test_file_holds_the_instances(of_file):
    mask, v = MASK > 0, np.ones((5, 4))
    mask[0, 0, 1] = False
    batch = of_file(TOKENS, {"mask": mask, "v": v}, trials=3, seed=8)
    for name, array in (TOKENS | {"mask": mask}).items():
        np.testing.assert_array_equal(getattr(batch, name), array[:3])
    np.testing.assert_array_equal(batch.head_parameters["v"], v[:3])
    assert batch.seeds.tolist() == [8, 9, 10]


def test_parameters_of_one_instance_are_drawn_and_one_matrix_is_for_all(of_file):
    batch = of_file({name: value[0] for name, value in TOKENS.items()}, seed=8)
    drawn = batch_of(2, 3, 4, 1, seed=8)
    assert batch.X.shape == (1, 2, 3, 4)
    assert batch.head_parameters["v"].equal(drawn.head_parameters["v"])
    V = np.eye(4) / 2
    batch = of_file(TOKENS, {"V": V}, head="relu")
    np.testing.assert_array_equal(batch.head_parameters["V"], np.broadcast_to(V, (5, 4, 4)))


def test_tokens_that_ask_need_no_queries_and_each_position_may_have_a_label(of_file):
    repeated = of_file(TOKENS, model="sequence")
    np.testing.assert_array_equal(repeated.Y, np.repeat(TOKENS["Y"], 3, axis=1))
    each = np.where(np.arange(30).reshape(5, 2, 3) % 2, 1.0, -1.0)
    labelled = of_file(TOKENS, {"Y": each}, model="sequence")
    np.testing.assert_array_equal(labelled.Y, each.reshape(5, 6))
    asked = of_file(TOKENS, {"Z": None}, model="self_attention").Z
    np.testing.assert_array_equal(asked, TOKENS["X"][:, :, 0])


@pytest.mark.parametrize("option", ["linear", "vocabulary"])
@pytest.mark.parametrize("C", [np.linalg.pinv(EMBEDDINGS).T, EMBEDDINGS])
def test_token_ids_are_the_arrays_of_their_embeddings(of_file, option, C):
    """The query is the last admissible token, and ids of the others may be anything."""
    mask, ids = np.array([[1, 1, 1], [1, 1, 0]], bool), [[0, 1, 4], [4, 2, -1]]
    changed = {"ids": ids, "mask": mask, "E": EMBEDDINGS, "C": C if C is EMBEDDINGS else None}
    batch = of_file(IDS, changed, head=option, seed=8)
    np.testing.assert_array_equal(batch.X[0], EMBEDDINGS[[[0, 1, 4], [4, 2, 0]]])
    np.testing.assert_array_equal(batch.Z[0], EMBEDDINGS[[4, 2]])
    assert (batch.Y.tolist(), batch.seeds.tolist()) == ([[1.0, 1.0]], [8])
    head = {"linear": RowScores(), "vocabulary": Vocabulary()}[option]
    rows = head.of_labels(torch.tensor(C), torch.from_numpy(IDS["next"])[None])
    assert_near(batch.head_parameters, rows, rtol=1e-13, atol=1e-15)
    assert (type(batch.head), batch.mask[0].tolist()) == (type(head), mask.tolist())


def test_several_instances_of_ids_have_the_standard_basis_without_embeddings(of_file):
    several = {name: np.stack([part] * 2) for name, part in IDS.items()}
    np.testing.assert_array_equal(of_file(several).X, np.eye(K)[several["ids"]])


def test_points_that_nothing_separates_are_infeasible(of_file, tmp_path):
    batch = of_file(POINTS, model="linear")
    assert batch.scores().argmax(-1).tolist() == [[0, 0, 1, 1]]
    words = f"model=linear loss=cross_entropy data=file data.path={tmp_path}/file.npz trials=1"
    for selection, status in {"optimal": "infeasible", "top": "unsaturated"}.items():
        result = run(composed(words, f"selection={selection}", "optimizer.steps=20"))
        assert result.trials["status"].tolist() == [status]
    work = separated(of_file(POINTS, {"X": np.zeros((4, 2))}), Log())  # no W changes anything
    assert marked([OK], work.exclusions)[0][0] == "unconstrained"


WIDE = [[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 2, 3], [3, 2, 2]]
BAD = {
    "Z: missing; must be in the file, which has X, Y": {"Z": None},
    "X: missing; must be in the file, which has Y, Z": {"X": None},
    "X: shape (5, 2); must be (B, n, T, d)": {"X": np.ones((5, 2))},
    "X: shape (5, 2, 0, 4); must be": {"X": np.ones((5, 2, 0, 4))},
    "not a readable .npz": {"X": np.full((5, 2, 3, 4), None)},
    "Z: shape (5, 1, 4); must be (5, 2, 4)": {"Z": np.ones((5, 1, 4))},
    "unknown array Mask; must be X | Z | Y | mask | v | V": {"Mask": MASK},
    "mask: every sample must have": {"mask": 0 * MASK},
    "mask: has a value other than 0 and 1": {"mask": 2 * MASK},
}
BAD_IDS = {
    "next: label 0 of sequence 1 of instance 0; must be one of its ids [4, 2, 2": {"next": [1, 0]},
    "next: 2.5; must be whole": {"next": [1, 2.5]},
    "ids: -1; must be whole numbers >= 0 and < 1024": {"ids": [[0, 1, 4], [4, 2, -1]]},
    "ids: nan; must be whole": {"ids": [[0, 1, 4], [4, 2, np.nan]]},
    "ids: 1024; must be whole numbers >= 0 and < 1024": {"ids": [[0, 1, 4], [4, 2, 1024]]},
    "ids: 4; must be whole numbers >= 0 and < 4": {"E": np.eye(4)},
    "E: rows 1 and 3 are equal": {"E": np.eye(K)[[0, 1, 2, 1, 4]], "C": np.eye(K)},
    "mask: every sample must have": {"mask": [[1, 1, 1], [0, 0, 0]]},
    "E: nan at index": {"E": np.full((K, 7), np.nan)},
    "E: 5 rows of rank 3; must be linearly independent, or the file must have C": {"E": WIDE},
    "C: shape (5, 4); must be (5, 3)": {"E": WIDE, "C": np.ones((5, 4))},
}
BAD_POINTS = {
    "y: shape (3,); must be (4)": {"y": POINTS["y"][:3]},
    "y: -1; must be whole": {"y": POINTS["y"] - 1},
    "y: 1e+18; must be whole numbers >= 0 and < 1024": {"y": POINTS["y"] * 10**18},
}
CASES = [(TOKENS, BAD), (IDS, BAD_IDS), (POINTS, BAD_POINTS)]


@pytest.mark.parametrize(
    ("arrays", "message", "changed"),
    [(arrays, *row) for arrays, bad in CASES for row in bad.items()],
)
def test_bad_arrays_are_named(of_file, arrays, message, changed):
    with pytest.raises(ConfigError, match=re.escape(message)):
        of_file(arrays, changed)


def test_a_head_that_does_not_score_ids_and_files_that_are_none_are_named(of_file, tmp_path):
    with pytest.raises(ConfigError, match="head, model: must be linear"):
        of_file(IDS, head="quadratic")
    (tmp_path / "broken").write_bytes(b"not a zip")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nowhere", "no such file; must be an .npz"),
        ("broken", r"not a readable .npz \(.*; must be one with X, Z, Y"),
        ("pipe", "not a regular file; must be an .npz"),
    ):
        with pytest.raises(ConfigError, match=f"data.path=.*{name}: {message}"):
            sample("file", path=str(tmp_path / name))
