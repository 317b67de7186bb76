"""Exponents by decade: known power laws are found with their range, and others are none."""

import numpy as np
import pytest

from attnsvm.sweeps.figures import rates
from tests.sweeps import synthetic
from tests.sweeps.synthetic import only

STEPS = [0, *(m * 10**e for e in range(5) for m in (1, 2, 5)), 10**5]


def tables_of(error, norm, log_excess=None):
    """Return the tables of instances that have these numbers at every step, but a factor."""
    rng = np.random.default_rng(0)

    def history(row):
        scale = np.exp(rng.normal())
        for step in STEPS:
            t = max(step, 1)
            yield step, "one_minus_corr_frobenius", scale * error(t)
            yield step, "margin_gap_frobenius", np.sqrt(scale * error(t))
            yield step, "W_norm", scale * norm(t)
            if log_excess:
                yield step, "excess_risk_log", np.log(scale) + log_excess(t)

    def instance(cell, seed):
        return {"frobenius_status": "solved", "status": "diverged" if seed == 11 else "ok"}

    return rates.tables(synthetic.sweep("rates", {"a": {"optimizer": "gd"}}, instance, history))


def law(tables, quantity="one_minus_corr_frobenius", against="step"):
    return only(tables["rates"], quantity=quantity, against=against)


@pytest.mark.parametrize("exponent", [-2.0, -0.75, -0.1])
def test_a_power_law_holds_over_all_decades(exponent):
    tables = tables_of(lambda t: 0.3 * t**exponent, lambda t: 0.1 * t)
    row = law(tables)
    assert row[["decades", "of", "used"]].tolist() == [5, 5, 11]  # without the diverged one
    assert row[["exponent", "low", "high"]].tolist() == pytest.approx([exponent] * 3, abs=1e-12)
    gap = law(tables, "margin_gap_frobenius", "W_norm")
    assert gap["exponent"] == pytest.approx(exponent / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("error", "norm", "against", "decades"),
    [
        (lambda t: 1 / (1 + np.log(t)) ** 2, lambda t: 1 + np.log(t), "step", 0),
        (lambda t: 1 / (1 + np.log(t)) ** 2, lambda t: 1 + np.log(t), "W_norm", 5),
        (lambda t: 1 / (1 + (t / 100) ** 2), lambda t: t, "step", 2),  # from 1000 to 100 000
        (lambda t: t ** (-1 - 0.03 * np.log10(t) / 2), lambda t: t, "step", 0),  # it changes
    ],
    ids=["logarithm", "of the norm", "late", "changing"],
)
def test_other_laws_are_told_with_their_decades_or_are_none(error, norm, against, decades):
    row = law(tables_of(error, norm), against=against)
    assert row["decades"] == decades
    expected, error = -2 if decades else np.nan, 1e-3 if decades == 2 else 1e-12
    assert row["exponent"] == pytest.approx(expected, abs=error, nan_ok=True)


def test_decades_without_a_logarithm_have_no_exponent_and_count_nobody():
    tables = tables_of(lambda t: 1 / t if t < 200 else 0.0, lambda t: t)
    rows = tables["rates_by_decade"].query(
        "quantity == 'one_minus_corr_frobenius' and against == 'step'"
    )
    used = rows.set_index("decade")[["used", "excluded"]].T.to_dict("list")
    assert used == {0: [11, 0], 1: [11, 0], 2: [0, 11]}  # of three or more numbers; one in 100-1000


def test_a_loss_that_falls_like_a_power_is_found():
    tables = tables_of(lambda t: 1 / t, lambda t: 1 + np.log(t), lambda t: -1.5 * np.log(t))
    row = law(tables, "excess_risk")
    assert row["decades"] == 5
    assert row["exponent"] == pytest.approx(-1.5, abs=1e-12)
    assert law(tables, "minus_log_excess_risk")["decades"] == 0


def test_an_exponential_loss_is_no_power_law_though_it_underflows():
    """L - L* = exp(-3 ||W|| + const), down to e^-300000: a power of the norm is its exponent."""
    tables = tables_of(lambda t: 1 / t, lambda t: t, lambda t: -3.0 * t)
    for against in ("step", "W_norm"):
        assert law(tables, "excess_risk", against)["decades"] == 0
        row = law(tables, "minus_log_excess_risk", against)
        assert row["exponent"] == pytest.approx(1, abs=1e-4)
        assert row["decades"] >= 2
    curve = tables["rates_curves"].query("quantity == 'excess_risk'").set_index("step")
    assert curve.loc[10**5, "median"] == 0  # its logarithm is not lost
