"""How many answers are right, silently wrong or missing, and how far W is from the least norm."""

from collections import Counter

import numpy as np
from benchmark_utils import WORDS, rows, word
from benchopt import BaseObjective

ORDERS = {"frobenius": "fro", "nuclear": "nuc"}


class Objective(BaseObjective):
    """Least norm of a matrix whose margins are at least one, on instances of known least norm."""

    name = "Least norm that separates"
    min_benchopt_version = "1.10"
    sampling_strategy = "run_once"
    parameters = {"norm": ["frobenius", "nuclear"]}

    def set_data(self, instances):
        self.instances = instances

    def get_objective(self):
        problems = [(known.X, known.Z, known.mask) for known in self.instances]
        return {"norm": self.norm, "problems": problems}

    def evaluate_result(self, W):
        """Return the counts, the share of silent errors, and the median certified gap.

        The gap of a W is norm(W) / (least margin) / (least norm) - 1, inf if it does not separate.
        """
        words, gaps = Counter(), []
        for known, stated in zip(self.instances, W, strict=True):
            truth = known.norm if self.norm == "frobenius" else known.nuclear
            norm = None if stated is None else float(np.linalg.norm(stated, ORDERS[self.norm]))
            words[word(norm, truth, known.kappa)] += 1
            if norm is not None and 0 < truth < np.inf:
                mu = (rows(known.X, known.Z, known.mask) @ np.ravel(stated)).min()
                gaps.append(norm / mu / truth - 1 if mu > 0 else np.inf)
        share, gap = words["silent error"] / len(W), np.median(gaps) if gaps else np.nan
        return {"value": share, **{name: words[name] for name in WORDS}, "gap": float(gap)}

    def get_one_result(self):
        return {"W": [None] * len(self.instances)}
