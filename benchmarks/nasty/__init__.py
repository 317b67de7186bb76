"""The difficult instances as a data set: `python -m benchmarks.nasty` writes it again.

`nasty.npz` holds the arrays, `card.json` says what they are.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FOLDER = Path(__file__).parent
ARRAYS, CARD = FOLDER / "nasty.npz", FOLDER / "card.json"


@dataclass(frozen=True)
class Difficult:
    """An instance and its truth; token 0 of each sample is to be separated from the others.

    Attributes
    ----------
    X, Z, mask : arrays
        Tokens (n, T, d), queries (n, d), admissible tokens (n, T).
    family : str
        What makes it difficult.
    norm : float
        The least Frobenius norm, NaN if no W exists.
    kappa : float
        Its conditioning, norm max_k ||d_k|| ||z_k||; NaN if no W exists.
    """

    X: Array
    Z: Array
    mask: NDArray[np.bool_]
    family: str
    norm: float
    kappa: float


def load() -> Iterator[Difficult]:
    """Yield the instances of the data set."""
    with np.load(ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    families = json.loads(CARD.read_text())["families"]

    def split(name: str, axes: list[int]) -> list[NDArray[Any]]:
        """Return the array of each instance, of some of the axes n, T, d."""
        shapes = arrays["shape"][:, axes]
        parts = np.split(arrays[name], shapes.prod(axis=1).cumsum()[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    X, Z, mask = split("X", [0, 1, 2]), split("Z", [0, 2]), split("mask", [0, 1])
    names, numbers = (families[k] for k in arrays["family"]), (arrays["norm"], arrays["kappa"])
    yield from map(Difficult, X, Z, mask, names, *(x.tolist() for x in numbers))
