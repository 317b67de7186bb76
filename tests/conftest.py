"""Hangups end programs as usual; workers of pytest-xdist, which end without atexit, tidy up."""

import signal
import sys

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # else programs that tests start under nohup ignore it


def pytest_sessionfinish() -> None:
    """Remove the tiny models."""
    if "tests.pretrained.tiny" in sys.modules:
        sys.modules["tests.pretrained.tiny"].remove()
