"""Sweeps beside the named ones: a sample here, two hundred with `make test-faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.fuzz import combination, faults

pytestmark = pytest.mark.full

ONCE_BROKEN = [
    "sweep=convergence_types data.d=6 trials=2 optimizer.steps=30",
    "sweep=local_convergence data.n=2,4 trials=2 optimizer.steps=30",
    "sweep=trajectories data=sphere data.n=2 data.T=3 data.d=2 trials=2 optimizer.steps=30",
    "-m selection=optimal data.T=1 trials=2",
    "sweep=trajectories optimizer=polyak data=paths_far trials=2 optimizer.steps=30",
]
SAMPLE = (0, 50, 100, 150)
MOST_REFUSED = 20
"""Most sweeps in a row that may be refused: about half of them are."""


@pytest.mark.parametrize("command", ONCE_BROKEN)
def test_what_ended_in_a_traceback_or_a_warning_is_drawn(command: str, tmp_path: Path):
    assert faults(command.split(), tmp_path / "sweep") == []


@pytest.mark.parametrize("first", SAMPLE)
def test_a_sweep_beside_the_named_ones_is_drawn_and_proved(first: int, tmp_path: Path):
    found = None
    for number in range(first, first + MOST_REFUSED):
        found = faults(combination(number), tmp_path / str(number))
        if found is not None:
            break
    assert found == []


@pytest.mark.faults
@pytest.mark.parametrize("number", range(200))
def test_two_hundred_sweeps_beside_the_named_ones(number: int, tmp_path: Path):
    assert faults(combination(number), tmp_path / "sweep") in ([], None)
