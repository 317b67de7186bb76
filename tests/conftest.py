"""Tidies up after the tests of a process: workers of pytest-xdist end without atexit."""

from __future__ import annotations

import sys


def pytest_sessionfinish() -> None:
    """Remove the tiny models."""
    if "tests.pretrained.tiny" in sys.modules:
        sys.modules["tests.pretrained.tiny"].remove()
