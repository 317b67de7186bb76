import dataclasses

import pytest
import torch

from attnsvm.data import sample
from attnsvm.selection import optimal_tokens, select_tokens
from attnsvm.training import train


@pytest.fixture(scope="module")
def batch():
    return sample("sphere", n=2, T=3, d=4, trials=4, seed=1)


@pytest.fixture(scope="module")
def path(batch):
    return train(batch, steps=3)


def attention(path, s):
    """Return `path` with this attention (B, n, T) at its end."""
    return dataclasses.replace(path, log_softmax=torch.tensor(s, dtype=torch.float64).log())


def test_attention_is_read_by_thresholds(batch, path):
    single = batch.take(slice(1))
    rows = [[1 - 1e-4 - 1e-7, 1e-4, 1e-7], [0.7, 0.299, 1e-3]]
    selection = select_tokens(single, attention(path, [rows]))
    assert selection.selected.tolist() == [[0, 0]]
    assert selection.attended.tolist() == [[[True, False, False], [True, True, True]]]
    assert selection.ambiguous.tolist() == [True]
    assert selection.max_masked.item() == pytest.approx(1e-4)
    assert selection.saturated.tolist() == [False]
    assert not selection.tie.item()
    clear = select_tokens(single, attention(path, [[[1 - 1e-7, 1e-7, 0.0], [1e-9, 1.0, 1e-300]]]))
    assert clear.selected.tolist() == [[0, 1]]
    with pytest.raises(TypeError, match="path: Tensor; must be the Trajectory that train returns"):
        select_tokens(single, path.W)
    assert not clear.ambiguous.item()
    assert clear.saturated.item()


def test_tied_attention_is_reported(batch, path):
    even = [[[1 / 3] * 3, [0.8, 0.1, 0.1]]]
    assert select_tokens(batch.take(slice(1)), attention(path, even)).tie.item()
    assert select_tokens(batch, train(batch, steps=0, init="zero")).tie.all()
    assert not select_tokens(batch, path).tie.any()
    single = sample("sphere", n=2, T=1, d=3, trials=2)
    selection = select_tokens(single, train(single, steps=5))
    assert not (selection.tie | ~selection.saturated).any()


def test_tied_scores_are_reported(batch):
    X = batch.X.clone()
    X[2, 1] = X[2, 1, :1]
    optimal, tie = optimal_tokens(dataclasses.replace(batch, X=X))
    assert tie.tolist() == [False, False, True, False]
    assert optimal.equal(
        optimal_tokens(batch)[0].index_put((torch.tensor(2), torch.tensor(1)), torch.tensor(0))
    )
