"""What another processor would give is accepted, and more is refused."""

import numpy as np
import pytest
import torch

from attnsvm.data import sample
from attnsvm.verify.rerun import DRAW, SIZE, Rerun, changed, compare, tolerance
from tests.config.test_config import composed
from tests.quick import quick
from tests.verify.kinds import BASE

AMPLIFIED = {
    "divisions by small numbers": "optimizer=adam optimizer.lr=0.03 optimizer.eps=0 "
    "optimizer.beta1=0.5 optimizer.beta2=0.5 optimizer.steps=500",
    "signs": "optimizer=sign_gd optimizer.steps=1000",
    "a network": "model=transformer data.n=2 data.d=4 optimizer.steps=300",
    "growing steps": "optimizer.growth=0.05 optimizer.steps=500",
}


class Case:
    """Two instances of a run that is run again, and their record."""

    def __init__(self, words: str) -> None:
        self.rerun = Rerun(composed(BASE, "trials=2", words))
        self.batch = self.rerun.instances(0, 2)
        self.layered = "transformer" in words

    def stated(self, change=lambda W: W, seed: int | None = None, size: float = SIZE):
        """Return their record: of changed inputs, and with other weights of the first instance."""
        whole = size > SIZE or self.layered
        batch = self.batch if seed is None else changed(self.batch, seed, size, whole)
        record = self.rerun.record_of(batch)
        name = "network_W" if self.layered else "trained_W"
        record.solutions[name] = record.solutions[name].copy()
        record.solutions[name][0] = change(record.solutions[name][0])
        return record

    def compare(self, stated, **options):
        return compare(self.rerun, self.batch, stated, free=lambda name: False, **options)


@pytest.mark.parametrize("name", quick(*AMPLIFIED))
def test_what_other_last_bits_give_is_accepted_and_more_is_refused(name):
    """Runs from other changes of the inputs than those that are measured, as another machine's."""
    case = Case(AMPLIFIED[name])
    assert not any(case.compare(case.stated(seed=10**6), elsewhere=True).values())
    outcome = case.compare(case.stated(lambda W: 1.5 * W, seed=10**6), elsewhere=True)
    reasons = outcome.pop(0)
    assert not any(outcome.values())
    assert any(reason.split()[0] in ("trained_W", "network_W") for reason in reasons)


@pytest.mark.parametrize("words", ["", "optimizer=gd", "optimizer=adam"])
def test_steps_that_do_not_amplify_rounding_leave_no_room(words):
    case = Case(f"optimizer.steps=500 {words}")
    assert case.compare(case.stated()) == {}
    ((reason,),) = case.compare(case.stated(lambda W: W * (1 + 1e-6))).values()
    assert reason.startswith("trained_W differs by")


def test_draws_of_other_vector_instructions_are_accepted_only_from_elsewhere():
    case = Case("")
    stated = case.stated(seed=10**6, size=DRAW / 20)
    assert case.compare(stated, elsewhere=True) == {}
    for reasons in case.compare(stated).values():
        assert {"X", "Z"} <= {reason.split()[0] for reason in reasons}
    assert case.compare(case.stated(seed=1, size=20 * DRAW), elsewhere=True)


STEPS = np.array([[0, 100, 150, 200, 300, 400]])


@pytest.mark.parametrize(
    ("part", "value", "others", "allowed"),
    [
        ("table", 1.0, (1.0, 1.0), 1e-9),
        ("table", 1.0, (1.25, 0.5), 0.5),
        ("table", np.inf, (np.inf,), 1e-12),
        ("table", np.nan, (np.nan,), 1e-12),
        ("arrays", 3, (3,), 0),
        ("arrays", 3, (2,), np.inf),
        ("arrays", 1.0, (np.nan,), np.inf),
        ("arrays", "solved", ("solved", "undecided"), np.inf),
        ("history", np.ones(6), (1.0 + np.arange(6),), [0, 2, 4, 4, 5, 5]),
    ],
)
def test_a_tolerance_is_the_largest_difference_or_none_where_rounding_decides(
    part, value, others, allowed
):
    """That of a curve is the one of half as many steps again."""
    first, *rest = (
        {(part, "x"): np.atleast_2d(cells), ("steps", "x"): STEPS} for cells in (value, *others)
    )
    assert tolerance((part, "x"), first, rest)[0] == pytest.approx(allowed, rel=1e-2, abs=1e-8)


def test_changed_inputs_keep_what_is_equal():
    batch = sample("token_graph", n=6, trials=2)
    other = changed(batch, 3, SIZE, tokens=False)
    assert torch.equal(batch.X, other.X)
    change = (other.Z / batch.Z - 1)[batch.Z != 0].abs()
    assert 0 < change.min() <= change.max() <= 1.2e-15
    equal, still = (torch.cdist(pair.Z, pair.Z) == 0 for pair in (batch, other))
    assert torch.equal(equal, still)
