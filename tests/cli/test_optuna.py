"""Hydra's Optuna sweeper, the real package: `make test-tracking` installs it."""

import pytest
from omegaconf import OmegaConf

from attnsvm.sweeps.aggregate import load
from tests.cli.test_objective import RUN, two_files
from tests.command import LATEST, ran
from tests.faults import run_states, written
from tests.quick import refusals

OPTUNA = "hydra_plugins.hydra_optuna_sweeper"


pytestmark = pytest.mark.full
pytest.importorskip(OPTUNA, reason="needs Optuna (make test-tracking)")

SEARCH = ("-m", "hydra/sweeper=optuna", *RUN[:-1], "hydra.sweeper.n_trials=4")
TPE = ("hydra/sweeper/sampler=tpe", "hydra.sweeper.sampler.seed=1", "optimizer.lr=interval(0.01,1)")


def test_tpe_finds_the_least_of_the_runs_on_disk_and_resumes():
    search = [*SEARCH, *TPE, "objective=median(one_minus_corr_frobenius)"]
    ran(*search)
    assert run_states(LATEST) == ["done"] * 4
    best = OmegaConf.load(LATEST / "optimization_results.yaml")
    trials = load(LATEST).trials.query("status == 'ok'")
    values = trials.groupby("optimizer.lr")["one_minus_corr_frobenius"].median()
    assert best.best_value == values.min()
    assert values[best.best_params["optimizer.lr"]] == best.best_value
    assert (LATEST / "report.html").exists()
    before = written(LATEST)
    ran(*search, "hydra.sweeper.n_trials=5")  # four on record, one more
    assert before.items() <= written(LATEST).items()
    assert len(run_states(LATEST)) == 5


def test_a_failed_run_is_on_record_stops_no_search_and_is_never_the_best():
    two_files()
    search = ["-m", "hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "data=file"]
    search += ["hydra.sweeper.sampler.seed=0", "hydra.sweeper.n_trials=6", "data.path=b.npz,a.npz"]
    done = ran(*search, "optimizer.steps=9", "objective=share(status=ok)", code=1)
    assert "2 runs: 1 done, 1 failed" in done.stderr
    assert run_states(LATEST) == ["done", "failed"]
    best = OmegaConf.load(LATEST / "optimization_results.yaml")
    assert best.best_params["data.path"] == "a.npz"


@pytest.mark.parametrize("sampler", ["tpe", "grid", "grid with a failing run"])
def test_a_search_that_ends_without_a_number_ends_with_its_report(sampler):
    """Optuna's sweeper itself ends with an error then."""
    two_files()
    fails = sampler == "grid with a failing run"
    words = ["-m", "hydra/sweeper=optuna", f"hydra/sweeper/sampler={sampler.partition(' ')[0]}"]
    words += ["data=file", f"data.path=choice({'a.npz,b.npz' if fails else 'a.npz'})"]
    words += ["hydra.sweeper.n_jobs=2", "hydra.sweeper.n_trials=2", "optimizer.steps=0"]
    done = ran(*words, "objective=mean(risk)", code=1 if fails else 2)
    assert ("2 runs: 1 done, 1 failed" in done.stderr) == fails
    assert "Traceback" not in done.stderr
    assert (LATEST / "report.html").exists()


@pytest.mark.parametrize(("words", "message"), refusals("optuna"))
def test_a_search_that_cannot_be_is_refused_before_any_work(words, message, tmp_path):
    done = ran(*SEARCH, *TPE, *words.split(), code=2)
    assert message in done.stderr
    assert not (tmp_path / "multirun").exists()
