"""The versions of the code that computed a record, and of the record."""

__version__ = "0.1.0"

FORMAT = 1
"""Version of the form of records: within one, fields of the config and columns are only added."""

NUMBERS = 1
"""Version of the numbers of records: raised by hand where a run has other numbers than before.

A record with another one is stale. Those made before numbers had a version count as 0.
"""
