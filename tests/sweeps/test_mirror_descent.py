"""Mirror descent against the l_p SVMs: divergences from stored weights, whose tokens, the page."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsvm.sweeps.figures import mirror_descent
from attnsvm.sweeps.figures.mirror_descent import directional_bregman_divergence
from tests.sweeps import synthetic
from tests.sweeps.synthetic import drawn, only

B, D, STEPS = 5, 3, (0, 10, 20)
POWERS = {"l1.75": 1.75, "frobenius": 2.0, "l3": 3.0}
RECORDED = {"one_minus_corr_l1.75": 1, "one_minus_corr_frobenius": 1, "margin_gap_nuclear": 2}
"""Quantities of the history, and their sizes."""


def sweep(gradients, stored):
    """Return runs with p = 1.75 and 3, whose weights go to their own SVM; instance 4 is not ok."""
    rng = np.random.default_rng(0)
    cells = {
        f"p{p}{gradient}": {"optimizer.gradient": gradient, "optimizer.p": p}
        for p in (1.75, 3.0)
        for gradient in gradients
    }
    for run, cell in cells.items():
        arrays = {f"{norm}_W": rng.standard_normal((B, D, D)) for norm in POWERS}
        own = arrays[f"l{cell['optimizer.p']:g}_W"]
        path = np.stack([own + 0.1 * k * rng.standard_normal(own.shape) for k in (2, 1, 0)], 1)
        steps = np.tile(np.array(STEPS, float), (B, 1))
        stored[run] = arrays | {"snapshots": path, "steps": steps, "seeds": np.arange(B)}

    def history(row):
        for step in STEPS:
            for quantity, size in RECORDED.items():
                yield step, quantity, 1e-3 * (1 + row["seed"]) * size

    return synthetic.sweep(
        "mirror_descent",
        cells,
        lambda cell, k: {"status": "ok" if k < B - 1 else "undecided"},
        history,
        trials=B,
    )


def at_end(table, p, svm, quantity):
    return only(table, **{"optimizer.p": p}, svm=svm, quantity=quantity, step=STEPS[-1])


def test_numbers_are_those_of_the_certified_instances_with_p_and_tokens_of_training(stored):
    """Only runs with p = 1.75 and 3 are there: nothing is known of the tokens of p = 2."""
    table = mirror_descent.tables(sweep(("log_domain",), stored))["mirror_descent"]
    for p, run in ((1.75, "p1.75log_domain"), (3.0, "p3.0log_domain")):
        for norm, power in POWERS.items():
            svm, W = stored[run][f"{norm}_W"], stored[run]["snapshots"][:, -1]
            row = at_end(table, p, norm, "bregman")
            expected = directional_bregman_divergence(svm, W, p)[:-1]
            assert row["used"] == B - 1
            assert row["mean"] == pytest.approx(expected.mean(), abs=1e-15)
            assert (row["mean"] < 1e-14) == (power == p)
            assert row["low"] <= row["mean"] <= row["high"]
    first, other = stored["p1.75log_domain"], stored["p3.0log_domain"]
    row = at_end(table, 1.75, "l3", mirror_descent.OTHER)
    expected = directional_bregman_divergence(other["l3_W"], first["snapshots"][:, -1], 1.75)
    assert row["mean"] == pytest.approx(expected[:-1].mean())
    assert at_end(table, 1.75, "l1.75", mirror_descent.OTHER)["mean"] < 1e-14  # its own run
    others = table[table["quantity"] == mirror_descent.OTHER]
    assert set(others["svm"]) == {"l1.75", "l3"}
    for name, size in RECORDED.items():
        quantity, _, svm = name.rpartition("_")
        assert at_end(table, 3.0, svm, quantity)["mean"] == pytest.approx(2.5e-3 * size)


def test_an_instance_that_only_one_run_certifies_is_not_compared_with_the_other(stored):
    frames = sweep(("log_domain",), stored)
    lost = (frames.rows["run"] == "p3.0log_domain") & (frames.rows["seed"] == 0)
    frames.rows.loc[lost, "status"] = "infeasible"
    table = mirror_descent.tables(frames)["mirror_descent"]
    row = at_end(table, 1.75, "l3", mirror_descent.OTHER)
    assert (row["used"], row["excluded"]) == (B - 2, 1)
    assert at_end(table, 1.75, "l3", "bregman")["used"] == B - 1


def test_the_page_tells_arithmetic_and_tokens_apart_and_counts(stored):
    _, drawings, words = drawn(sweep(("direct", "log_domain"), stored))
    ends = ("", "_published", "_correlation", "_gap")
    assert [d.name for d in drawings] == [f"mirror_descent{end}" for end in ends]
    for end, text in zip(ends, words, strict=True):
        published = end == "_published"
        assert ("tokens of the other run" in text) == published
        arithmetic = f", {'published arithmetic' if published else 'exact'}."
        for word in ("$p=1.75$", "$p=3$", arithmetic, "16 ok, 4 undecided", "a remark"):
            assert word in text


EXPONENTS = (1.1, 1.75, 2.0, 3.0, 7.5)


def matrices(seed, *shape):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape), rng.standard_normal(shape)


def _size(M, p):
    return sum(abs(mpmath.mpf(x)) ** p for x in M.ravel()) ** (1 / p)


@pytest.mark.parametrize("p", EXPONENTS)
def test_it_is_the_definition_in_50_digits(p):
    W, V = matrices(0, 4, 4)
    with mpmath.workdps(50):
        exponent, total = mpmath.mpf(p), mpmath.mpf(0)
        units = ([mpmath.mpf(x) / _size(M, exponent) for x in M.ravel()] for M in (W, V))
        for w, v in zip(*units, strict=True):
            slope = mpmath.sign(v) * abs(v) ** (exponent - 1)
            total += (abs(w) ** exponent - abs(v) ** exponent) / exponent - slope * (w - v)
    assert float(total) == pytest.approx(directional_bregman_divergence(W, V, p), rel=1e-13)


@given(st.sampled_from(EXPONENTS), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_it_is_of_directions_zero_at_the_same_one_and_two_at_the_opposite_one(p, seed, scale):
    W, V = matrices(seed, 3, 3)
    value = directional_bregman_divergence(W, V, p)
    assert 0 < value <= 2
    assert directional_bregman_divergence(scale * W, V / scale, p) == pytest.approx(value, rel=1e-9)
    assert directional_bregman_divergence(scale * V, V, p) < 1e-14
    assert directional_bregman_divergence(-V, V, p) == pytest.approx(2.0)


@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_a_matrix_without_a_direction_has_none_and_the_others_keep_theirs(entry):
    W, V = matrices(4, 3, 2, 2)
    known = directional_bregman_divergence(W, V, 3.0)
    W[0], W[1, 0, 0] = 0.0, entry
    divergence = directional_bregman_divergence(W, V, 3.0)
    assert np.isnan(divergence[:2]).all()
    assert divergence[2] == known[2]
    far = directional_bregman_divergence(1e200 * V, 1e-200 * V[::-1], 3.0)  # no overflow
    np.testing.assert_allclose(far, directional_bregman_divergence(V, V[::-1], 3.0), atol=1e-15)
