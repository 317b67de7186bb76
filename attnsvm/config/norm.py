"""The names of norms, as in `svm.norms` and `optimizer.norm`."""

from __future__ import annotations

import math
import re
from typing import Any

from attnsvm.config.names import did_you_mean
from attnsvm.config.words import MEANINGS

NAMED = {
    "frobenius": ("l", 2.0),
    "nuclear": ("schatten", 1.0),
    "spectral": ("schatten", math.inf),
    "l1": ("l", 1.0),
    "max": ("l", math.inf),
}
"""Family and exponent p of the norms that have a name of their own."""

OF_FAMILIES = {family: name for name, family in NAMED.items()} | {("schatten", 2.0): "frobenius"}

OTHER_NAMES = MEANINGS["norm"]
"""Names of norms elsewhere -> ours, for suggestions."""

POWERS = "with 1 < p <= 100, p != 2 (frobenius), as in l1.75"


class NormName:
    """The allowed names of a norm: of `NAMED`, l<p> of the entries, schatten<p>, and A+B of two."""

    def holds(self, value: Any) -> bool:
        """Whether `value` is the name of a norm."""
        return isinstance(value, str) and families_of(value) is not None

    def meant(self, value: Any) -> str:
        """Return `did you mean NORM? ` for another name of a norm, or one similar to `value`."""
        return did_you_mean(OTHER_NAMES.get(str(value).lower(), str(value)), NAMED)

    def __str__(self) -> str:
        return f"{' | '.join(NAMED)} | l<p> | schatten<p> {POWERS}, or two of them, A+B"


Family = tuple[str, float]
"""The family of a norm, l (of the entries) or schatten, and p."""


def families_of(name: str) -> tuple[Family, ...] | None:
    """Return the family of a norm, or those of A and of B of A+B; None if there is no such norm."""
    families = [_family_of(part) for part in name.split("+")]
    known = tuple(family for family in families if family is not None)
    return known if len(known) == len(families) <= 2 else None


def name_of(family: str, p: float) -> str:
    """Return the name of a norm, in which p has all digits: `families_of` gives the same p back."""
    return OF_FAMILIES.get((family, p), f"{family}{float(p)!r}".removesuffix(".0"))


def _family_of(name: str) -> Family | None:
    if name in NAMED:
        return NAMED[name]
    match = re.fullmatch(r"(l|schatten)(\d{1,3}(?:\.\d+)?)", name, re.ASCII)
    if match is None or not 1 < (p := float(match[2])) <= 100:
        return None
    return (match[1], p) if name == name_of(match[1], p) else None  # one name for each
