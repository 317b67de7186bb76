"""Write the data set again: the generator of the tests, and its truths in rational arithmetic."""

import json
import math

import numpy as np

import attnsvm
from attnsvm.verify import verify
from benchmarks.nasty.benchmark_utils import ARRAYS, CARD
from tests.svm.instances import stored_svms
from tests.svm.nasty import FAMILIES, Instance, instances, truth


def main() -> None:
    """Write the arrays, and what the card counts of them; it takes a minute and python-flint."""
    families, found = list(FAMILIES), list(instances())
    norms, kappas = np.array([truth(one) for one in found]).T
    np.savez_compressed(
        ARRAYS,
        shape=np.array([one.X.shape for one in found]),
        **{name: np.concatenate([getattr(one, name).ravel() for one in found])
           for name in ("X", "Z", "mask")},
        family=np.array([families.index(one.family) for one in found]),
        norm=norms,
        nuclear=[nuclear_norm(one, norm) for one, norm in zip(found, norms, strict=True)],
        kappa=[float(f"{kappa:.3e}") for kappa in kappas],
    )  # fmt: skip
    counts = {"instances": len(found), "infeasible": int(np.isnan(norms).sum())}
    card = json.loads(CARD.read_text()) | counts | {"families": families}
    CARD.write_text(json.dumps(card, indent=2) + "\n")


def nuclear_norm(one: Instance, norm: float) -> float:
    """Return the least nuclear norm where the arithmetic of `attnsvm-verify` proves ours.

    NaN if no W exists, inf where it is not known.
    """
    if math.isnan(norm):
        return math.nan
    X, Z, mask = one.X[None], one.Z[None], one.mask[None]
    selected = np.zeros((1, len(one.X)), dtype=np.int64)
    solution = attnsvm.solve_svm(X, Z, selected, norm="nuclear", mask=mask)
    (stored,) = stored_svms(solution, X, Z, selected, mask)
    decided = stored.status in ("solved", "unconstrained") and verify(stored).proved
    return stored.objective if decided else math.inf


if __name__ == "__main__":
    main()
