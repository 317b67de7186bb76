"""The versions of the code that computed a record, and of the record."""

from collections.abc import Mapping

__version__ = "1.0.0"

FORMAT = 1
"""Version of the form of records: within one, fields of the config and columns are only added."""

NUMBERS = 1
"""Version of the numbers of records: raised by hand where a run has other numbers than before.

A record with another one is stale. Those made before numbers had a version count as 0.
"""

CHANGED: Mapping[int, tuple[str, ...]] = {1: ("_kappa",)}
"""Version of the numbers -> the ends of the names of the columns that mean something else since."""
