"""What the console shows with `hydra/job_logging=quiet hydra/hydra_logging=quiet`."""

from __future__ import annotations

import logging

outcome = logging.getLogger("attnsvm.outcome")
"""Says how a command ended: the instances of a single run by status, the report of a sweep."""


class Quiet(logging.Filter):
    """Lets warnings, errors and outcomes pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is shown."""
        return record.levelno >= logging.WARNING or record.name == outcome.name
