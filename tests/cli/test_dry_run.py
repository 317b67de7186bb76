"""A dry run lists, counts and estimates; it draws, trains and compiles nothing."""

import logging

import pytest

from attnsvm import experiment
from attnsvm.cli import dry_run
from tests.config.test_config import composed

ESTIMATED = {
    "data.n=6 data.T=8 data.d=10 svm=published": "1 of them pending\nabout",
    "sweep=atlas": "besides: probe=[constrained,margin_gap], whose cost was not measured",
    "model=transformer": "no estimate for 1 runs: the cost of model=transformer was not measured",
    "data=file data.path=x.npz": "the cost of data=file was not measured",
}
"""What is typed, and what is printed."""


def plan_of(config, folder, caplog):
    """Return what a dry run of one cell says after its list."""
    with caplog.at_level(logging.INFO):
        dry_run.log_plan(folder, {"cell": ["seed=1"]}, {"cell": config})
    return "\n".join(caplog.messages[1:])


@pytest.mark.parametrize("words", ESTIMATED)
def test_what_was_not_measured_is_named_and_nothing_is_run(words, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(experiment, "parts", None)
    assert ESTIMATED[words] in plan_of(composed(*words.split()), tmp_path, caplog)


def estimated_s(*words):
    return sum(dry_run.seconds(composed(*words)).values())


def test_an_estimate_knows_the_published_method(tmp_path, caplog):
    """Measured: n=7, T=9, d=64 takes 25 s an instance, and the certified SVMs 10 ms."""
    base = ("sweep=rank_vs_d", "data.n=7", "data.T=9", "data.d=64", "trials=30")
    assert 300 < estimated_s(*base, "svm.published=true") < 3000
    assert estimated_s(*base, "svm.published=false") < 10
    published = composed(*base, "svm.published=true")
    assert "for the published method: svm.published=false" in plan_of(published, tmp_path, caplog)
