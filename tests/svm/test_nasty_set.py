"""The data set of difficult instances is what the generator draws, with the exact truths."""

import json
import math

import numpy as np
import pytest

from benchmarks.nasty import CARD, load
from benchmarks.solvers import methods
from benchmarks.svm_trust import class_of, counted, verdict
from tests.svm.nasty import TRUTHS, instances


@pytest.fixture(scope="module")
def difficult():
    return list(load())


def test_arrays_and_truths_are_those_of_the_tests(difficult):
    truths = {(row[0], row[1]): row[3:] for row in json.loads(TRUTHS.read_text())}
    for one, drawn in zip(difficult, instances(), strict=True):
        for name in ("X", "Z", "mask"):
            np.testing.assert_array_equal(getattr(one, name), getattr(drawn, name))
        assert one.family == drawn.family
        norm, kappa = truths[drawn.family, drawn.index]
        assert (one.norm, one.kappa) == (norm, kappa) or (norm is None and math.isnan(one.norm))


def test_the_card_counts_what_is_there(difficult):
    card = json.loads(CARD.read_text())
    assert card["instances"] == len(difficult) == 1258
    assert card["infeasible"] == sum(math.isnan(one.norm) for one in difficult) == 326
    assert set(card["families"]) == {one.family for one in difficult}


@pytest.mark.parametrize(
    ("stated", "truth", "kappa", "word"),
    [
        (2.0, 2.0, 10.0, "right"),
        (2.0 + 1e-5, 2.0, 10.0, "silent error"),
        (2.0 + 1e-5, 2.0, 1e12, "right"),
        (None, 2.0, 10.0, "no answer"),
        (None, math.nan, math.nan, "right"),
        (1.0, math.nan, math.nan, "silent error"),
        (1.0, None, 10.0, "not judged"),
        (None, None, 10.0, "no answer"),
    ],
)
def test_a_stated_norm_gets_its_word(stated, truth, kappa, word):
    assert verdict(stated, truth, kappa) == word


def test_ours_is_right_and_a_constant_is_not(difficult):
    few = difficult[::40]
    truths = [one.norm for one in few]
    ours = counted(methods("frobenius")["attnsvm"], few, truths)
    assert ours.total() == len(few)
    assert sum(count for (_, word), count in ours.items() if word == "silent error") == 0
    assert ours["infeasible", "right"] == sum(map(math.isnan, truths))
    assert ours["kappa <= 1e3", "no answer"] == 0
    guessed = counted(lambda X, Z, mask: 1.0, few, truths)
    assert guessed["infeasible", "silent error"] == sum(map(math.isnan, truths))
    assert class_of(1e3) == "kappa <= 1e3"
    assert class_of(1e13) == "beyond"
