"""The difficult instances, what a solver's answer to one is worth, and what solvers share.

`nasty.npz` has the arrays; `card.json` says what they are, and how each family was drawn.
"""

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Problem = tuple[Array, Array, Mask]
FOLDER = Path(__file__).parents[1] / "datasets"
ARRAYS, CARD = FOLDER / "nasty.npz", FOLDER / "card.json"

EPS = np.finfo(float).eps
LIMITS = {"kappa <= 1e3": 1e3, "kappa <= 1e6": 1e6, "kappa <= 1e12": 1e12, "beyond": math.inf}
CLASSES = ("infeasible", *LIMITS)
WORDS = ("right", "silent error", "no answer", "not judged")


@dataclass(frozen=True)
class Difficult:
    """An instance and its truth; token 0 of each sample is to be separated from the others.

    Attributes
    ----------
    X, Z, mask : arrays
        Tokens (n, T, d), queries (n, d), admissible tokens (n, T).
    family : str
        What makes it difficult.
    norm, nuclear : float
        The least Frobenius norm; the least nuclear norm, inf where it is not known. NaN if no W
        exists.
    kappa : float
        Its conditioning, norm max_k ||d_k|| ||z_k||; NaN if no W exists.
    """

    X: Array
    Z: Array
    mask: Mask
    family: str
    norm: float
    nuclear: float
    kappa: float

    @property
    def conditioning(self) -> str:
        """The class of its conditioning, one of CLASSES."""
        return next((name for name, most in LIMITS.items() if self.kappa <= most), "infeasible")


def load() -> Iterator[Difficult]:
    """Yield the instances of the data set."""
    with np.load(ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    families = list(json.loads(CARD.read_text())["families"])

    def split(name: str, axes: list[int]) -> list[NDArray[Any]]:
        """Return the array of each instance, of some of the axes n, T, d."""
        shapes = arrays["shape"][:, axes]
        parts = np.split(arrays[name], shapes.prod(axis=1).cumsum()[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    X, Z, mask = split("X", [0, 1, 2]), split("Z", [0, 2]), split("mask", [0, 1])
    names = (families[k] for k in arrays["family"])
    numbers = (arrays[name].tolist() for name in ("norm", "nuclear", "kappa"))
    yield from map(Difficult, X, Z, mask, names, *numbers)


def word(stated: float | None, truth: float, kappa: float) -> str:
    """Compare a stated norm (None: not solved) with the truth (NaN: infeasible; inf: unknown)."""
    if stated is None:
        return "right" if math.isnan(truth) else "no answer"
    if truth == math.inf:
        return "not judged"
    tolerance = max(1e-6, 64 * EPS * kappa)  # nothing is within it of NaN
    return "right" if abs(stated - truth) <= tolerance * truth else "silent error"


def rows(X: Array, Z: Array, mask: Mask) -> Array:
    """Return the constraints G w >= 1 on the entries of W, (N, d^2)."""
    i, t = np.nonzero(mask[:, 1:])
    D = X[i, 0] - X[i, t + 1]
    return (D[:, :, None] * Z[i][:, None, :]).reshape(len(D), X.shape[2] ** 2)


class OneByOne:
    """A solver of one instance after the other; an error is a missing answer.

    `solve(X, Z, mask)` returns W (d, d), or None where it states no solution; `norms` are those
    that it minimises, `self.norm` is that of the present run.
    """

    norms: Sequence[str] = ("frobenius",)

    def skip(self, norm: str, problems: Sequence[Problem]) -> tuple[bool, str | None]:
        return norm not in self.norms, f"its norms are {', '.join(self.norms)}"

    def set_objective(self, norm: str, problems: Sequence[Problem]) -> None:
        self.norm, self.problems = norm, problems

    def run(self, _: Any) -> None:
        self.W = [self._answer(*problem) for problem in self.problems]

    def get_result(self) -> dict[str, Any]:
        return {"W": self.W}

    def _answer(self, *problem: Any) -> Array | None:
        with warnings.catch_warnings(action="ignore"):
            try:
                W = self.solve(*problem)
            except Exception:
                return None
        return None if W is None or not np.isfinite(W).all() else W
