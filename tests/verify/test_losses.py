"""The verifier's own secants of the losses, with their error bounds, against many digits."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf

from attnsvm.verify.heads import HeadAndLoss
from tests.chords import DIGITS, EXACT, LENGTHS, MARGINS


@pytest.mark.parametrize("name", EXACT)
def test_secants_are_within_their_error_bounds(name):
    """Also where u and delta are known to an error, and where no float64 holds the value."""
    exact = EXACT[name]
    loss = {"_target_": f"attnsvm.loss.{name}", "target": 0.25}
    found = HeadAndLoss({"head": {"_target_": "attnsvm.head.Linear"}, "loss": loss})
    u, delta = (x.ravel() for x in np.meshgrid(MARGINS, [0.0, *LENGTHS, *(-x for x in LENGTHS)]))
    for error in (0.0, 1e-6):
        for sign in (1.0, -1.0):
            bounds = np.full(len(u), error), np.full(len(u), error)
            a, c, apart = found.excess_slope(u, bounds[0], delta, bounds[1])
            assert np.isfinite([a, c, apart]).all()
            with mp.workdps(DIGITS):
                for k in range(len(u)):
                    at = mpf(u[k]) + mpf(sign * error)
                    by = mpf(delta[k]) + mpf(sign * error)
                    by = by or mpf(10) ** -600
                    expected = (exact(at - by) - exact(at)) / by
                    missed = mpf(a[k]) * mp.exp(mpf(c[k])) - expected
                    allowed = mpf(apart[k]) * mp.exp(mpf(c[k])) + abs(expected) * mpf(10) ** -50
                    assert abs(missed) <= allowed, (u[k], delta[k])
    if name in ("Logistic", "Exponential"):  # the bounds say something
        a, _, apart = found.excess_slope(u, 0 * u, delta, 0 * u)
        assert (apart <= 1e-9 * a).all()
