"""What batches and results have in common: how they are shown, and indexed by instance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from html import escape
from numbers import Integral
from typing import Any


class Summarized(ABC):
    """A batch or result that is shown by a line, in a notebook by a small table, not by arrays."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what is worth knowing at a glance, by name."""

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value}" for name, value in self.summary().items())
        return f"{type(self).__name__}({listed})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self.summary().items()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


def counted(values: Iterable[Any]) -> str:
    """Return how often each value occurs: "97 solved, 3 infeasible"."""
    return ", ".join(f"{n} {value}" for value, n in Counter(map(str, values)).most_common())


def one_instance(index: Any, B: int) -> Any:
    """Return an index that keeps the axis B: an integer as a slice of length one.

    Raises
    ------
    IndexError
        If the integer is not an instance; so a batch can be iterated over.
    TypeError
        If it is no index of instances, such as a tuple, which would index other axes too.
    """
    if isinstance(index, slice) or (hasattr(index, "dtype") and index.shape):  # array or tensor
        return index
    if not isinstance(index, Integral):
        raise TypeError(f"instances {index!r}: must be an integer, a slice or a tensor")
    k = int(index)
    if not -B <= k < B:
        raise IndexError(f"instance {k}: must be >= {-B} and < {B}")
    return slice(k % B, k % B + 1)
