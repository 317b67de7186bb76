"""The difficult instances as a data set: `python -m benchmarks.nasty` writes it again.

`nasty.npz` holds the arrays, `card.json` says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    at_X = at_Z = at_mask = 0
    for k, (n, T, d) in enumerate(arrays["shape"].tolist()):
        yield Difficult(
            arrays["X"][at_X : at_X + n * T * d].reshape(n, T, d),
            arrays["Z"][at_Z : at_Z + n * d].reshape(n, d),
            arrays["mask"][at_mask : at_mask + n * T].reshape(n, T),
            families[arrays["family"][k]],
            float(arrays["norm"][k]),
            float(arrays["kappa"][k]),
        )
        at_X, at_Z, at_mask = at_X + n * T * d, at_Z + n * d, at_mask + n * T
