import dataclasses

import pytest
import torch

from attnsvm.selection import select_tokens
from attnsvm.training import train
from tests.svm.instances import batch_of


@pytest.fixture(scope="module")
def batch():
    return batch_of(2, 3, 4, 4, seed=1)


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
    assert selection.ambiguous & ~selection.saturated & ~selection.tie
    assert selection.max_masked.item() == pytest.approx(1e-4)
    clear = select_tokens(single, attention(path, [[[1 - 1e-7, 1e-7, 0.0], [1e-9, 1.0, 1e-300]]]))
    assert clear.selected.tolist() == [[0, 1]]
    with pytest.raises(TypeError, match="path: Tensor; must be the Trajectory that train returns"):
        select_tokens(single, path.W)
    assert clear.saturated & ~clear.ambiguous


def test_tied_attention_is_reported(batch, path):
    even = [[[1 / 3] * 3, [0.8, 0.1, 0.1]]]
    assert select_tokens(batch.take(slice(1)), attention(path, even)).tie.item()
    assert select_tokens(batch, train(batch, steps=0, init="zero")).tie.all()
    assert not select_tokens(batch, path).tie.any()
    single = batch_of(2, 1, 3, 2)
    selection = select_tokens(single, train(single, steps=5))
    assert not (selection.tie | ~selection.saturated).any()
