"""`data=file` with token ids and their next tokens."""

import numpy as np
import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.data import sample
from attnsvm.head import RowScores, Vocabulary
from attnsvm.problem import ProblemBatch
from tests.quick import beside

K = 5
EMBEDDINGS = np.random.default_rng(0).normal(size=(K, 7))
IDS = {"ids": np.array([[0, 1, 4], [4, 2, 2]]), "next": np.array([1, 2])}


def of_ids(tmp_path, head="linear", **changed):
    np.savez(tmp_path / "ids.npz", **{**IDS, **changed})
    return sample("file", head=head, path=str(tmp_path / "ids.npz"), seed=8)


@pytest.mark.parametrize("head", [RowScores(), Vocabulary()])
def test_token_ids_are_the_arrays_of_their_embeddings(tmp_path, head):
    """The query is the last admissible token, and ids of the others may be anything."""
    ids, mask = IDS["ids"].copy(), np.array([[1, 1, 1], [1, 1, 0]])
    ids[1, 2] = -1
    inverse, y = np.linalg.pinv(EMBEDDINGS).T, IDS["next"]
    given = "vocabulary" if isinstance(head, Vocabulary) else "linear"
    for C, more in ((inverse, {}), (EMBEDDINGS, {"C": EMBEDDINGS})):
        one = of_ids(tmp_path, given, ids=ids, mask=mask, E=EMBEDDINGS, **more)
        X = torch.from_numpy(EMBEDDINGS[[[0, 1, 4], [4, 2, 0]]])[None]
        C, Z = torch.tensor(C), torch.from_numpy(EMBEDDINGS[[4, 2]])[None]
        Y, admissible = torch.ones(1, 2).double(), torch.from_numpy(mask).bool()[None]
        parameters = head.of_labels(C, torch.from_numpy(y)[None])
        must = ProblemBatch(X, Z, Y, admissible, head, parameters, torch.tensor([8]))
        assert type(one.head) is type(head)
        for name in ("X", "Z", "Y", "mask", "seeds"):
            assert getattr(one, name).equal(getattr(must, name)), name
        torch.testing.assert_close(one.scores(), must.scores(), rtol=1e-13, atol=1e-15)
    two = of_ids(
        tmp_path, ids=np.stack([ids] * 2), next=np.stack([y] * 2), mask=np.stack([mask] * 2)
    )
    assert two.X[1].equal(torch.from_numpy(np.eye(K)[[[0, 1, 4], [4, 2, 0]]]))  # without E


@pytest.mark.parametrize(("changed", "message"), beside(__file__))
def test_bad_token_ids_are_named(tmp_path, changed, message):
    with pytest.raises(ConfigError, match=message):
        of_ids(tmp_path, **changed)
