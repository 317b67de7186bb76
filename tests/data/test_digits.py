from __future__ import annotations

import pytest
import torch

from attnsvm import ConfigError, sample
from attnsvm.data.digits import labelled_patches

sklearn_datasets = pytest.importorskip("sklearn.datasets")


def test_tokens_are_the_patches_of_the_images():
    digits = sklearn_datasets.load_digits()
    chosen = (digits.target == 3) | (digits.target == 8)
    images, kinds = digits.images[chosen] / 16, digits.target[chosen]
    patches, signs = labelled_patches(3, 8, 4, 2)
    assert patches.shape == (chosen.sum(), 9, 16)
    for k in (0, 17, 100):
        rows = [images[k][i : i + 4, j : j + 4].ravel() for i in (0, 2, 4) for j in (0, 2, 4)]
        torch.testing.assert_close(patches[k], torch.stack([torch.from_numpy(r) for r in rows]))
        assert signs[k] == (1 if kinds[k] == 3 else -1)


def test_instances_are_seeded_and_have_mean_patches_as_queries():
    one, same = sample("digits", n=5, trials=3, seed=4), sample("digits", n=5, trials=2, seed=5)
    assert one.X.shape == (3, 5, 9, 16)
    assert torch.equal(one.X[1:], same.X)
    assert not torch.equal(one.X[0], one.X[1])
    torch.testing.assert_close(one.Z, one.X.mean(2))
    torch.testing.assert_close(one.head_parameters["v"].norm(dim=-1), torch.ones(3).double())
    assert {-1.0, 1.0} == set(one.Y.flatten().tolist())


def test_the_head_separates_the_mean_patches_of_the_digits():
    batch = sample("digits", n=50, trials=1)
    score = (batch.X[0].mean(1) @ batch.head_parameters["v"][0]) * batch.Y[0]
    difference = score[batch.Y[0] > 0].mean() + score[batch.Y[0] < 0].mean()
    assert difference > 0


@pytest.mark.parametrize(
    "wrong", [{"positive": 10}, {"negative": 3}, {"patch": 9}, {"stride": 0}, {"n": 10**4}]
)
def test_what_does_not_exist_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"data\."):
        sample("digits", trials=1, **wrong)


def test_patches_have_no_label_of_their_own():
    with pytest.raises(ConfigError, match="one label per image"):
        sample("digits", model="sequence", trials=1)
