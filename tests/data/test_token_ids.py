"""`data=file` with token ids and their next tokens."""

import numpy as np
import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.head import RowScores, Vocabulary

K = 5
EMBEDDINGS = np.random.default_rng(0).normal(size=(K, 7))
IDS = {"ids": np.array([[0, 1, 4], [4, 2, 2]]), "next": np.array([1, 2])}


def of_ids(tmp_path, head="linear", **changed):
    np.savez(tmp_path / "ids.npz", **{**IDS, **changed})
    return sample("file", head=head, path=str(tmp_path / "ids.npz"), seed=8)


@pytest.mark.parametrize("option", ["linear", "vocabulary"])
@pytest.mark.parametrize("C", [np.linalg.pinv(EMBEDDINGS).T, EMBEDDINGS])
def test_token_ids_are_the_arrays_of_their_embeddings(tmp_path, option, C):
    """The query is the last admissible token, and ids of the others may be anything."""
    mask, ids = np.array([[1, 1, 1], [1, 1, 0]], bool), [[0, 1, 4], [4, 2, -1]]
    more = {"C": C} if C is EMBEDDINGS else {}
    batch = of_ids(tmp_path, option, ids=ids, mask=mask, E=EMBEDDINGS, **more)
    np.testing.assert_array_equal(batch.X[0], EMBEDDINGS[[[0, 1, 4], [4, 2, 0]]])
    np.testing.assert_array_equal(batch.Z[0], EMBEDDINGS[[4, 2]])
    assert (batch.Y.tolist(), batch.seeds.tolist()) == ([[1.0, 1.0]], [8])
    head = {"linear": RowScores(), "vocabulary": Vocabulary()}[option]
    rows = head.of_labels(torch.tensor(C), torch.from_numpy(IDS["next"])[None])
    torch.testing.assert_close(batch.head_parameters, rows, rtol=1e-13, atol=1e-15)
    assert (type(batch.head), batch.mask[0].tolist()) == (type(head), mask.tolist())


def test_several_instances_of_ids_have_the_standard_basis_without_embeddings(tmp_path):
    batch = of_ids(tmp_path, **{name: np.stack([part] * 2) for name, part in IDS.items()})
    np.testing.assert_array_equal(batch.X, np.eye(K)[np.stack([IDS["ids"]] * 2)])


WIDE = [[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 2, 3], [3, 2, 2]]


BAD = {
    "next: label 0 of sequence 1 of instance 0; must be one of .*4, 2, 2": {"next": [1, 0]},
    "next: 2.5; must be whole": {"next": [1, 2.5]},
    "ids: -1; must be whole numbers >= 0 and < 1024": {"ids": [[0, 1, 4], [4, 2, -1]]},
    "ids: nan; must be whole": {"ids": [[0, 1, 4], [4, 2, np.nan]]},
    "ids: 1024; .*< 1024": {"ids": [[0, 1, 4], [4, 2, 1024]]},
    "ids: 4; must be whole numbers >= 0 and < 4": {"E": np.eye(4)},
    "E: rows 1 and 3 are equal; must be different": {
        "E": np.eye(K)[[0, 1, 2, 1, 4]],
        "C": np.eye(K),
    },
    "mask: every sample must have": {"mask": [[1, 1, 1], [0, 0, 0]]},
    "E: nan at index": {"E": np.full((K, 7), np.nan)},
    "E: 5 rows of rank 3; must be linearly independent, or the file must have C": {"E": WIDE},
    r"C: shape \(5, 4\); must be \(5, 3\)": {"E": WIDE, "C": np.ones((5, 4))},
    "head, model: must be linear .* with data=file with ids": {"head": "quadratic"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_token_ids_are_named(tmp_path, message):
    with pytest.raises(ConfigError, match=message):
        of_ids(tmp_path, **BAD[message])
