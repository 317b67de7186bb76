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
    families, difficult = list(FAMILIES), list(instances())
    norms, kappas = np.array([truth(instance) for instance in difficult]).T
    pairs = zip(difficult, norms, strict=True)
    arrays = {
        name: np.concatenate([getattr(instance, name).ravel() for instance in difficult])
        for name in ("X", "Z", "mask")
    }
    np.savez_compressed(
        ARRAYS,
        shape=np.array([instance.X.shape for instance in difficult]),
        **arrays,
        family=np.array([families.index(instance.family) for instance in difficult]),
        norm=norms,
        nuclear=[nuclear_norm(instance, norm) for instance, norm in pairs],
        kappa=[float(f"{kappa:.3e}") for kappa in kappas],
    )
    counts = {"instances": len(difficult), "infeasible": int(np.isnan(norms).sum())}
    card = json.loads(CARD.read_text()) | counts | {"families": families}
    CARD.write_text(json.dumps(card, indent=2) + "\n")


def nuclear_norm(instance: Instance, norm: float) -> float:
    """Return the least nuclear norm where the arithmetic of `attnsvm-verify` proves ours.

    NaN if no W exists, inf where it is not known.
    """
    if math.isnan(norm):
        return math.nan
    X, Z, mask = instance.X[None], instance.Z[None], instance.mask[None]
    selected = np.zeros((1, X.shape[1]), dtype=np.int64)
    solution = attnsvm.solve_svm(X, Z, selected, norm="nuclear", mask=mask)
    (stored,) = stored_svms(solution, X, Z, selected, mask)
    decided = stored.status in ("solved", "unconstrained") and verify(stored).proved
    return stored.objective if decided else math.inf


if __name__ == "__main__":
    main()
