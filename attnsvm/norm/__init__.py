"""The norms whose attention SVM is solved: a file for each, with all that is known of it.

Value, dual and steepest direction; proximal map; the cone and its step in the interior-point method
of `cone`; and the expression for CVXPY.
"""

from attnsvm.config import ConfigError
from attnsvm.config.norm import NormName, families_of
from attnsvm.norm.base import Norm, conjugate
from attnsvm.norm.entrywise import Entrywise
from attnsvm.norm.frobenius import Frobenius
from attnsvm.norm.hybrid import Hybrid
from attnsvm.norm.linear import L1, Max
from attnsvm.norm.nuclear import Nuclear
from attnsvm.norm.power import EntrywisePower, SchattenPower
from attnsvm.norm.schatten import Schatten
from attnsvm.norm.spectral import Spectral

NAMED = {norm.name: norm for norm in (Frobenius(), Nuclear(), Spectral(), Max(), L1())}
"""The norms that have a name of their own."""


def norm_of(name: str | Norm) -> Norm:
    """Return the norm itself, or the one of that name.

    Names are frobenius, nuclear, spectral, max, l1, l<p> and schatten<p>, p > 1, and A+B of two.

    Raises
    ------
    ConfigError
        If there is no norm of that name.
    """
    if isinstance(name, Norm):
        return name
    families = families_of(name)
    if families is None:
        raise ConfigError(f"norm={name}: {NormName().meant(name)}must be {NormName()}")
    first, *second = [
        NAMED[part] if part in NAMED else (EntrywisePower if family == "l" else SchattenPower)(p)
        for part, (family, p) in zip(name.split("+"), families, strict=True)
    ]
    return Hybrid(first, second[0]) if second else first
