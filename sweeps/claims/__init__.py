"""The claims of the papers: the hypotheses, the runs and the prediction of each.

A module of this package has the claims of a paper or of a part of it. Hypotheses and prediction are
expressions in the columns on record, or functions of the evidence, so a verdict can be derived
again from the records alone. Runs are in `runs.yaml`, conditions and rules that several claims
share in `_conditions`.
"""

from __future__ import annotations

import importlib
import pkgutil

from ._claim import FAILS, HOLDS, READINGS, STATED, Claim, Evidence, Runs

__all__ = ["FAILS", "HOLDS", "READINGS", "STATED", "Claim", "Evidence", "Runs", "all_claims"]


def all_claims() -> list[Claim]:
    """Return every claim that a module of this package defines, by paper and name."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name[0] != "_"]
    values = [value for module in modules for value in vars(module).values()]
    found = [value for value in values if isinstance(value, Claim)]
    return sorted(found, key=lambda claim: (claim.paper, claim.name))
