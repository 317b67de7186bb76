"""Stored arrays of made-up runs."""

from __future__ import annotations

import numpy as np
import pytest

from attnsvm.sweeps.figures import _numbers


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of runs by name, which figures read instead of files."""
    found: dict[str, dict[str, np.ndarray]] = {}
    monkeypatch.setattr(_numbers, "read_solutions", lambda folder: found[str(folder)])
    return found
