"""`objective=...`: the number that a job returns is the statistic of its record on disk."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.cli.objective import Objective
from attnsvm.config import ConfigError
from attnsvm.sweeps.aggregate import load
from tests.command import LATEST, QUIET, SMALL, ran, with_callback
from tests.quick import refusals

TRIALS = pd.DataFrame(
    {
        "status": ["ok", "ok", "unsaturated", "ok", "ok"],
        "risk": [1.0, 4.0, 1000.0, 2.0, math.nan],
        "tie": [True, False, True, False, False],
    }
)


@pytest.mark.parametrize(
    ("text", "number", "counted"),
    [
        ("mean(risk)", 7 / 3, "over 3 of 5 instances"),
        ("median(risk)", 2.0, "over 3 of 5 instances"),
        ("mean(tie)", 0.25, "over 4 of 5 instances"),
        ("share(status=ok)", 0.8, "over 5 of 5 instances"),
    ],
)
def test_the_number_is_that_of_the_instances_that_count(text, number, counted):
    assert Objective.of(text).value(TRIALS) == (pytest.approx(number, rel=1e-15), counted)
    assert Objective.of(text).value(TRIALS[:0])[0] is None  # undefined
    assert Objective.of("mean(risk)").value(TRIALS.assign(risk=math.inf))[0] is None


@pytest.mark.parametrize(("text", "message"), refusals("objective"))
def test_what_does_not_exist_is_refused_with_what_is_allowed(text, message):
    with pytest.raises(ConfigError) as error:
        Objective.of(text)
    assert str(error.value).startswith(f"objective={text}: ")
    assert message in str(error.value)


def returned(*arguments):
    """Return what the jobs of a command returned, by seed."""
    file = Path("returned")
    file.unlink(missing_ok=True)
    line = 'json.dumps([config.seed, job_return.return_value]) + "\\n"'
    mine = with_callback("import json", f'open("returned", "a").write({line})')
    ran(*arguments, mine, path=Path())
    return dict(map(json.loads, file.read_text().splitlines()))


RUN = (*SMALL[:4], "optimizer.steps=300", "optimizer.lr=0.5")


@pytest.mark.full
def test_a_job_returns_the_statistic_of_its_record():
    grid = ["-m", *RUN, "seed=0,10", "hydra/sweeper=basic"]
    numbers = returned(*grid, "objective=median(one_minus_corr_frobenius)")
    trials = load(LATEST).rows.query("status == 'ok'")
    medians = trials.groupby(trials["seed"] // 10 * 10)["one_minus_corr_frobenius"].median()
    assert numbers == medians.to_dict()
    assert set(numbers) == {0, 10}


@pytest.mark.full
def test_a_column_of_a_probe_may_be_asked_for_where_the_run_has_it():
    asked = "objective=median(rank_effective)"
    run = ran(*RUN, "probe=[rank]", asked)
    assert "objective median(rank_effective) = " in run.stdout
    for mode in ([], ["-m"], ["-m", "hydra/sweeper=basic"]):
        without = ran(*mode, *RUN, "seed=5", asked, code=2)
        assert "rank_effective: in median(COLUMN) must be seed |" in without.stderr


@pytest.mark.full
def test_a_run_without_an_accepted_instance_returns_none_and_says_why():
    few = [*RUN[:4], "optimizer.steps=1", "objective=mean(risk)"]
    assert returned(*few) == {0: None}
    done = ran(*few, *QUIET)  # from the record, without a second run
    assert "mean(risk) is undefined (over 0 of 3 instances: 3 unsaturated)" in done.stdout


def two_files():
    """Write a.npz, which can be run, and b.npz, which cannot: it has no labels."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(3, 2, 3, 4)), rng.normal(size=(3, 2, 4))
    np.savez("a.npz", X=X, Z=Z, Y=np.ones((3, 2)))
    np.savez("b.npz", X=X, Z=Z)
