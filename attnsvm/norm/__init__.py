"""The norms whose attention SVM is solved: a file for each family, with all that is known of it.

`base` says what a norm is, `entrywise` and `schatten` are the l_p norms of entries and of singular
values, `hybrid` those of two blocks. `cone` is the interior-point method of all norms: `linear`
(l1, max), `power` (1 < p < inf), `nuclear` and `spectral` are its cones, `rows` the constraints.
"""

from attnsvm.config import ConfigError
from attnsvm.config.norm import NormName, families_of
from attnsvm.norm.base import Norm
from attnsvm.norm.entrywise import Entrywise
from attnsvm.norm.hybrid import Hybrid
from attnsvm.norm.schatten import Schatten


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
    families = families_of(name) if isinstance(name, str) else None
    if families is None:
        typed = name if isinstance(name, str) else repr(name)
        raise ConfigError(f"norm={typed}: {NormName().meant(name)}must be {NormName()}")
    first, *second = ((Entrywise if family == "l" else Schatten)(p) for family, p in families)
    return Hybrid(first, second[0]) if second else first
