"""A dry run lists, counts and estimates; it draws, trains and compiles nothing."""

import logging

import pytest

from attnsvm import experiment
from attnsvm.cli import dry_run
from attnsvm.config import RunConfig
from tests.config.test_config import composed
from tests.quick import beside

ESTIMATED = beside(__file__)


def told(config: RunConfig, folder, caplog) -> str:
    """Return what a dry run of one cell says after its list."""
    with caplog.at_level(logging.INFO):
        dry_run.log_plan(folder, {"one": ["seed=1"]}, {"one": config})
    return "\n".join(caplog.messages[1:])


@pytest.mark.parametrize("words", ESTIMATED)
def test_what_was_not_measured_is_named_and_nothing_is_run(words, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(experiment, "parts", None)
    config = composed(*words.split())
    found, expected = told(config, tmp_path, caplog), ESTIMATED[words]
    time = dry_run.duration(dry_run.estimated_s(config)) if "{time}" in expected else ""
    assert expected.format(time=time) in found


def test_an_estimate_grows_with_instances_steps_and_sizes():
    base = "data.n=6", "data.T=8", "data.d=10", "trials=10", "optimizer.steps=100"
    one = dry_run.estimated_s(composed(*base))
    for more in ("trials=20", "optimizer.steps=100000", "data.d=40"):
        assert dry_run.estimated_s(composed(*base, more)) > one


def test_an_estimate_knows_the_published_method(tmp_path, caplog):
    """Measured: n=7, T=9, d=64 takes 25 s an instance, and the certified SVMs 10 ms."""
    base = ("sweep=rank_vs_d", "data.n=7", "data.T=9", "data.d=64", "trials=30")
    published, without = (composed(*base, f"svm.published={word}") for word in ("true", "false"))
    assert 300 < dry_run.estimated_s(published) < 3000
    assert dry_run.estimated_s(without) < 10
    assert dry_run.published_s(published) > 0.99 * dry_run.estimated_s(published)
    assert "for the published method: svm.published=false" in told(published, tmp_path, caplog)
    caplog.clear()
    assert "published" not in told(without, tmp_path, caplog)
