"""Write the data set from the generator and the exact truths of the tests."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.nasty import ARRAYS, CARD
from tests.svm.nasty import FAMILIES, TRUTHS, instances


def main() -> None:
    """Write the arrays, and what the card counts of them."""
    truths = {(row[0], row[1]): row[3:] for row in json.loads(TRUTHS.read_text())}
    families = list(FAMILIES)
    found = list(instances())
    number = lambda x: np.nan if x is None else x  # noqa: E731
    norms, kappas = zip(*(truths[one.family, one.index] for one in found), strict=True)
    np.savez_compressed(
        ARRAYS,
        shape=np.array([one.X.shape for one in found]),
        X=np.concatenate([one.X.ravel() for one in found]),
        Z=np.concatenate([one.Z.ravel() for one in found]),
        mask=np.concatenate([one.mask.ravel() for one in found]),
        family=np.array([families.index(one.family) for one in found]),
        norm=np.array([number(x) for x in norms], float),
        kappa=np.array([number(x) for x in kappas], float),
    )
    card = json.loads(CARD.read_text()) | {
        "instances": len(found),
        "infeasible": sum(x is None for x in norms),
        "families": families,
    }
    CARD.write_text(json.dumps(card, indent=2) + "\n")


if __name__ == "__main__":
    main()
