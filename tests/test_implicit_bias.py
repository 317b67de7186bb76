"""Every optimizer goes to the maximum margin of its own norm, among all W that select its tokens.

The margin is compared with that of the certified SVM of least norm under the same constraints: the
gap is in [0, 1] once the tokens are separated.
"""

import pytest
import torch

from attnsvm import margin_gap
from attnsvm.linalg import one_minus_correlation
from attnsvm.selection import select_tokens
from attnsvm.svm import solve_svm
from attnsvm.training import train
from tests.svm.instances import batch_of

pytestmark = pytest.mark.full

LATE = 200
"""From this step on the tokens are selected in all instances, and gaps must fall."""


@pytest.fixture(scope="module")
def batch():
    return batch_of(3, 4, 5, 8)


GROWING = {"lr": 1.0, "growth": 0.01, "schedule": "geometric"}
CASES = [
    ("mirror_descent", "l1.75", {"p": 1.75, "steps": 5000, "growth": 0.0}, 0.003, 5e-5),
    ("mirror_descent", "l3", {"p": 3.0, "steps": 5000, "growth": 0.05}, 0.02, 2e-4),
    ("normalized_gd", "frobenius", {"steps": 2000}, 0.03, 1e-3),
    ("polyak", "frobenius", {"steps": 2000}, 0.002, 2e-6),
    *((name, "frobenius", GROWING, 0.1, 0.015) for name in ("gd", "momentum")),
    ("sign_gd", "max", {"steps": 5000}, 0.06, None),
    ("adam", "max", {"eps": 0.0, "lr": 0.01, "beta2": 0.9, "steps": 5000}, 0.06, None),
    *(
        ("steepest", norm, {"norm": norm, "lr": lr, "init": "zero", "steps": 5000}, 0.02, None)
        for norm, lr in {
            "frobenius": 1.0,
            "spectral": 1.0,
            "l1": 1.0,
            "max": 0.1,
            "nuclear": 0.3,
            "l3": 0.3,
        }.items()
    ),
]
"""Optimizer, norm, options, and bounds of the last margin gap and 1 - correlation.

The SVM of the maximum norm may have many solutions: there the margin is what converges.
"""
OTHERS = (), ("frobenius", "max", "l1")
"""Norms whose margins steepest descent does not reach."""


@pytest.mark.parametrize(("optimizer", "norm", "options", "gap", "apart"), CASES)
def test_direction_is_that_of_the_norm_and_of_no_other(batch, optimizer, norm, options, gap, apart):
    """arXiv 2410.14581 (mirror descent), 2402.05738 (normalised and Polyak steps), 2110.03891
    (momentum), 2406.10650 (Adam), 2502.04664 (steepest descent, linear models). Measured at the
    last step: two thirds of each bound or less.
    """
    path = train(batch, optimizer=optimizer, record="geometric", **options)
    path, batch = path.take(~path.diverged), batch.take(~path.diverged)
    assert len(path.W) >= 6
    selected, late = select_tokens(batch, path).selected, path.snapshots[:, path.steps >= LATE]
    gaps = {}
    for other in {norm, *OTHERS[optimizer == "steepest"]}:
        solution = solve_svm(batch.X, batch.Z, selected, norm=other)
        assert set(solution.status) == {"solved"}
        gaps[other] = torch.stack([margin_gap(W, solution) for W in late.unbind(1)], 1)
        if other == norm and apart is not None:
            apartness = one_minus_correlation(late, solution.W[:, None]).median(0).values
            assert (apartness.diff() < 0).all()
            assert apartness[-1] < apart
    medians = {other: values.median(0).values for other, values in gaps.items()}
    own = medians.pop(norm)
    assert (gaps[norm][:, -1] > -1e-6).all()  # no W has a larger margin than the SVM's
    assert (own.diff() < 0).all()
    assert own[-1] < gap
    assert all(values[-1] > 3 * own[-1] for values in medians.values())
