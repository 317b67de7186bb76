"""Write the data set again: the generator of the tests, and its truths in rational arithmetic."""

import json

import numpy as np

from benchmarks.nasty import ARRAYS, CARD
from tests.svm.nasty import FAMILIES, instances, truth


def main() -> None:
    """Write the arrays, and what the card counts of them; it takes ten seconds and python-flint."""
    families, found = list(FAMILIES), list(instances())
    norms, kappas = np.array([truth(one) for one in found]).T
    np.savez_compressed(
        ARRAYS,
        shape=np.array([one.X.shape for one in found]),
        **{name: np.concatenate([getattr(one, name).ravel() for one in found])
           for name in ("X", "Z", "mask")},
        family=np.array([families.index(one.family) for one in found]),
        norm=norms,
        kappa=[float(f"{kappa:.3e}") for kappa in kappas],
    )  # fmt: skip
    counts = {"instances": len(found), "infeasible": int(np.isnan(norms).sum())}
    card = json.loads(CARD.read_text()) | counts | {"families": families}
    CARD.write_text(json.dumps(card, indent=2) + "\n")


if __name__ == "__main__":
    main()
