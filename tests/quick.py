"""Which cases of a table are run by `make test`; `make test-all` runs all."""

from typing import Any

import pytest


def quick(first: Any, *others: Any) -> list[Any]:
    """Return values of which all but the first are marked `full`."""
    return [first, *(pytest.param(x, marks=pytest.mark.full) for x in others)]


def quick_rows(first: tuple[Any, ...], *others: tuple[Any, ...]) -> list[Any]:
    """Return rows of values, one for each name, of which all but the first are marked `full`."""
    return [first, *(pytest.param(*row, marks=pytest.mark.full) for row in others)]
