"""The names of norms, as in `svm.norms` and `optimizer.norm`."""

from __future__ import annotations

import math
import re
from typing import Any

from attnsvm.config.names import did_you_mean
from attnsvm.config.words import MEANINGS

NAMED = {
    "frobenius": ("l", 2.0), "nuclear": ("schatten", 1.0), "spectral": ("schatten", math.inf),
    "l1": ("l", 1.0), "max": ("l", math.inf),
}  # fmt: skip
"""Family and exponent p of the norms that have a name of their own."""

OTHER_NAMES = MEANINGS["norm"]
"""Names of norms elsewhere -> ours, for suggestions."""

POWERS = "with 1 < p <= 100, p != 2 (frobenius), as in l1.75"


class NormName:
    """The allowed names of a norm: those of `NAMED`, l<p> of the entries and schatten<p>."""

    def holds(self, value: Any) -> bool:
        """Whether `value` is the name of a norm."""
        return isinstance(value, str) and family_of(value) is not None

    def meant(self, value: Any) -> str:
        """Return `did you mean NORM? ` for another name of a norm, or one similar to `value`."""
        return did_you_mean(OTHER_NAMES.get(str(value).lower(), str(value)), NAMED)

    def __str__(self) -> str:
        return f"{' | '.join(NAMED)} | l<p> | schatten<p> {POWERS}"


def family_of(name: str) -> tuple[str, float] | None:
    """Return the family, l (of the entries) or schatten, and p; None if there is no such norm."""
    if name in NAMED:
        return NAMED[name]
    found = re.fullmatch(r"(l|schatten)(\d{1,3}(?:\.\d{1,6})?)", name, re.ASCII)
    if found is None or not 1 < (p := float(found[2])) <= 100 or p == 2:
        return None
    return (found[1], p) if name == f"{found[1]}{p:g}" else None  # one name for each
