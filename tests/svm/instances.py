"""Seeded instances for the SVM tests."""

import numpy as np
import pytest
import torch

from attnsvm import optimal_tokens, sample
from attnsvm.svm.tolerances import RANK_TOLERANCE
from attnsvm.verify import StoredSvm
from tests.quick import quick

NORMS = ["frobenius", "nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten1.5", "schatten3"]
every_norm = pytest.mark.parametrize("name", quick(*NORMS))
both_norms = pytest.mark.parametrize("name", NORMS[:2])


def batch_of(n, T, d, trials=1, **options):
    """Return a batch of published instances, `sphere` unless the options have other data."""
    return sample(n=n, T=T, d=d, trials=trials, **options)


def spheres(n, T, d, seeds):
    """Return X (B, n, T, d), Z (B, n, d) and optimal tokens (B, n) of published instances."""
    batch = batch_of(n, T, d, len(seeds), seed=seeds.start)
    return batch.X, batch.Z, optimal_tokens(batch)[0]


def gaussian(n, T, d, B, seed):
    """Return a batch of Gaussian tokens with token 0 selected."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(B, n, T, d, generator=generator, dtype=torch.float64)
    Z = torch.randn(B, n, d, generator=generator, dtype=torch.float64)
    return X, Z, torch.zeros(B, n, dtype=torch.int64)


def stored_svms(solution, X, Z, selected, mask=None, rank_tolerance=RANK_TOLERANCE, **right_sides):
    """Yield each instance of a batched NumPy solution of Att-SVM with its input, as it is stored.

    The right-hand sides are `margins`, or `offsets` and `ratio`, with a batch axis.
    """
    proof = solution.certificate
    names = ("objective", "lower_bound", "duality_gap", "min_margin", "rank")
    arrays = {name: getattr(solution, name).tolist() for name in names} | right_sides
    mask = np.ones(X.shape[:3], dtype=bool) if mask is None else mask
    arrays |= {"X": X, "Z": Z, "mask": mask, "selected": np.asarray(selected), "W": solution.W}
    arrays |= {"multipliers": proof.multipliers, "ray": proof.ray}
    for b, status in enumerate(solution.status):
        item = {name: values[b] for name, values in arrays.items()}
        yield StoredSvm(
            **item, norm=solution.norm, status=str(status), rank_tolerance=rank_tolerance
        )
