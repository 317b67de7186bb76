"""Tokens that are not random: patches of the handwritten digits that come with scikit-learn."""

import functools
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor
from torch.nn.functional import unfold

from attnsvm.config import ConfigError
from attnsvm.config.data import DigitsConfig
from attnsvm.data.base import Drawn, Seeded
from attnsvm.head import Head


@dataclass(eq=False)
class Digits(Seeded):
    """Samples are images of two digits, tokens their patches, labels +1 and -1 by digit.

    The query of a sample is its mean patch. With a linear head, v is the difference of the two
    digits' mean patches over the whole set, of unit norm; other heads are drawn. The n images of an
    instance are drawn without replacement from all images of both digits.

    With the edge of a `patch` and the `stride` between patches in pixels, these are
    T = ((8 - patch) // stride + 1)^2 tokens of dimension d = patch^2, pixel values from 0 to 1.
    """

    T: int = field(init=False)
    d: int = field(init=False)
    positive: int = DigitsConfig.positive
    negative: int = DigitsConfig.negative
    patch: int = DigitsConfig.patch
    stride: int = DigitsConfig.stride

    def __post_init__(self) -> None:
        if self.positive == self.negative:
            must = "must be different from data.positive"
            raise ConfigError(f"data.negative={self.negative}: {must}")
        patches = labelled_patches(self.positive, self.negative, self.patch, self.stride)
        self.patches, self.signs = patches
        self.T, self.d = self.patches.shape[1:]
        if self.n > len(self.signs):
            must = f"must be <= {len(self.signs)}, the number of images"
            raise ConfigError(f"data.n={self.n}: {must}")

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw the head, then n images."""
        parameters = head.draw(generator, self.d)
        if set(parameters) == {"v"}:
            means = [self.patches[self.signs == sign].mean((0, 1)) for sign in (1.0, -1.0)]
            parameters = {"v": (means[0] - means[1]) / (means[0] - means[1]).norm()}
        chosen = torch.randperm(len(self.signs), generator=generator)[: self.n]
        X = self.patches[chosen]
        return Drawn(X, X.mean(-2), self.signs[chosen], parameters)

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Raise ConfigError: only images have labels, not single patches."""
        raise ConfigError(
            "model=sequence: must be cross_attention | self_attention with data=digits, which has "
            "one label per image, not per patch"
        )


@functools.lru_cache(maxsize=8)
def labelled_patches(
    positive: int, negative: int, patch: int, stride: int
) -> tuple[Tensor, Tensor]:
    """Return the patches (N, T, d) and labels (N,) of all images of two digits, float64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        must = "scikit-learn must be installed: pip install scikit-learn"
        raise ConfigError(f"data=digits: {must}") from error
    digits = load_digits()
    images, kinds = torch.from_numpy(digits.images) / 16.0, torch.from_numpy(digits.target)
    chosen = (kinds == positive) | (kinds == negative)
    patches = unfold(images[chosen][:, None], kernel_size=patch, stride=stride).mT.contiguous()
    return patches, torch.where(kinds[chosen] == positive, 1.0, -1.0).double()
