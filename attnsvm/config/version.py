"""The version of the code that computed a record."""

__version__ = "0.1.0"
