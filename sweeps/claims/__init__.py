"""One module per claim of a paper: its hypotheses, its runs and its prediction.

A module `sweeps/claims/NAME.py` has `CLAIM`, a `Claim`. Hypotheses and prediction are functions of
what is on record, so a verdict can be derived again from the records alone. Runs that several
claims share are in `_runs`, conditions and rules that they share in `_conditions`.
"""

from __future__ import annotations

import importlib
import pkgutil

from ._claim import FAILS, HOLDS, READINGS, STATED, Claim, Evidence, Runs

__all__ = ["FAILS", "HOLDS", "READINGS", "STATED", "Claim", "Evidence", "Runs", "all_claims"]


def all_claims() -> list[Claim]:
    """Return every claim, by paper and name of its module."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    found = [
        importlib.import_module(f"{__name__}.{name}").CLAIM
        for name in names
        if not name.startswith("_")
    ]
    return sorted(found, key=lambda claim: (claim.paper, claim.name))
