"""Write the data set from the generator and the exact truths of the tests."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.nasty import ARRAYS, CARD
from tests.svm.nasty import FAMILIES, TRUTHS, instances

ABOUT = {
    "name": "nasty",
    "version": 1,
    "license": "MIT",
    "problem": "min ||W||_F  s.t.  (x_i0 - x_it)^T W z_i >= 1 for all i, t >= 1 with mask[i, t]",
    "origin": "dyadic numbers drawn without transcendental functions, tests/svm/nasty.py",
    "truth": "Lawson and Hanson's method in rational arithmetic, rounded to 64-bit floats",
    "arrays": {
        "shape": "(N, 3) n, T, d of each instance",
        "X": "tokens of all instances, one after the other, each n T d numbers",
        "Z": "queries, each n d numbers",
        "mask": "admissible tokens, each n T",
        "family": "(N,) index into families",
        "norm": "(N,) least Frobenius norm; NaN: no W exists",
        "kappa": "(N,) norm max_k ||x_i0 - x_it|| ||z_i||, four digits; NaN: no W exists",
    },
}


def main() -> None:
    """Write arrays and card."""
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
    card = ABOUT | {
        "instances": len(found),
        "infeasible": sum(x is None for x in norms),
        "families": families,
    }
    CARD.write_text(json.dumps(card, indent=2) + "\n")


if __name__ == "__main__":
    main()
