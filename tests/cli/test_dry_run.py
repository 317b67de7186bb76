"""A dry run lists, counts and estimates; it draws, trains and compiles nothing."""

import logging

import pytest

from attnsvm import experiment
from attnsvm.cli import dry_run
from attnsvm.config import RunConfig
from tests.config.test_config import composed

ESTIMATED = {
    "data.n=6 data.T=8 data.d=10 svm=published": "1 of them pending\nabout",
    "sweep=atlas": "about {time} in one process, once kernels are compiled\n"
    "besides: probe=[constrained,margin_gap], whose cost was not measured",
    "model=transformer": "no estimate for 1 runs: the cost of model=transformer was not measured",
    "data=file data.path=x.npz": "the cost of data=file was not measured",
    "device=cuda": "about",
}
"""What is typed, and what is printed; time is the estimate."""


def plan_of(config: RunConfig, folder, caplog) -> str:
    """Return what a dry run of one cell says after its list."""
    with caplog.at_level(logging.INFO):
        dry_run.log_plan(folder, {"cell": ["seed=1"]}, {"cell": config})
    return "\n".join(caplog.messages[1:])


@pytest.mark.parametrize("words", ESTIMATED)
def test_what_was_not_measured_is_named_and_nothing_is_run(words, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(experiment, "parts", None)
    config = composed(*words.split())
    text, expected = plan_of(config, tmp_path, caplog), ESTIMATED[words]
    time = dry_run.duration(dry_run.estimated_s(config)) if "{time}" in expected else ""
    assert expected.format(time=time) in text


def test_an_estimate_grows_with_instances_steps_and_sizes():
    base = "data.n=6", "data.T=8", "data.d=10", "trials=10", "optimizer.steps=100"
    base_s = dry_run.estimated_s(composed(*base))
    for more in ("trials=20", "optimizer.steps=100000", "data.d=40"):
        assert dry_run.estimated_s(composed(*base, more)) > base_s


def test_an_estimate_knows_the_published_method(tmp_path, caplog):
    """Measured: n=7, T=9, d=64 takes 25 s an instance, and the certified SVMs 10 ms."""
    base = ("sweep=rank_vs_d", "data.n=7", "data.T=9", "data.d=64", "trials=30")
    published, without = (composed(*base, f"svm.published={word}") for word in ("true", "false"))
    assert 300 < dry_run.estimated_s(published) < 3000
    assert dry_run.estimated_s(without) < 10
    assert dry_run.published_s(published) > 0.99 * dry_run.estimated_s(published)
    assert "for the published method: svm.published=false" in plan_of(published, tmp_path, caplog)
    caplog.clear()
    assert "published" not in plan_of(without, tmp_path, caplog)
