"""A hunt finds a planted counterexample, makes it as small as it goes, and ends without one."""

import shlex

import numpy as np
import pytest

from attnsvm.record.folder import read_record
from attnsvm.sweeps.claims import FAILS, HOLDS, OTHERWISE, Runs
from attnsvm.sweeps.verdicts import main
from attnsvm.sweeps.verdicts.case import Case
from attnsvm.sweeps.verdicts.hunt import cells_of, shrunk
from attnsvm.verify import command as proof
from tests.quick import beside
from tests.sweeps.test_claims import made

DRAWN = Runs.of(
    "drawn", "selection=optimal data.n=1,3 data.T=2,3 data.d=1,2 svm.norms=[frobenius] trials=6"
)  # fmt: skip
TRAINED = Runs.of(
    "trained", "data.n=2 data.T=3 data.d=2 optimizer.steps=20 optimizer.record_every=10 "
    "svm.norms=[frobenius] trials=6"
)  # fmt: skip
CASES = beside(__file__)
QUICK = [(HOLDS, "status == 'ok'"), (FAILS, "status == 'unsaturated'"), ("open", OTHERWISE)]


@pytest.fixture
def hunted(monkeypatch, capsys, tmp_path):
    """Return a function that hunts a claim by the command: its exit code and lines."""

    def hunted(*words, claims):
        monkeypatch.setattr("attnsvm.sweeps.verdicts.command.all_claims", lambda: claims)
        code = main(["hunt", *words, "--directory", str(tmp_path)])
        out, err = capsys.readouterr()
        return code, [line for line in (out + err).splitlines() if not line.endswith("so far")]

    return hunted


def proved(path, capsys):
    assert proof.main([str(path)]) == 0, capsys.readouterr().out


@pytest.mark.full
def test_a_planted_counterexample_is_found_shrunk_recorded_and_proved(hunted, tmp_path, capsys):
    """That the SVM is always feasible fails at n=2, T=2, d=1, which is as small as it goes."""
    claim = made(hypotheses={}, runs=(DRAWN,))
    code, told = hunted("one", "trials=1000", claims=[claim])
    assert code == 0
    assert "numbers are multiples of 1/1:" in told
    folder = tmp_path / "hunt" / "one"
    archive = folder.with_suffix(".zip")
    assert told[-1] == f"proved by attnsvm-verify {archive}"
    assert archive.stat().st_size < 16_000
    proved(folder, capsys)
    proved(archive, capsys)
    (run,) = folder.glob("*/run.json")
    found = read_record(run.parent)[0]
    assert found.trials["frobenius_status"].tolist() == ["infeasible"]
    X, Z = found.solutions["X"][0], found.solutions["Z"][0]
    assert X.shape == (2, 2, 1)
    assert set(np.concatenate([X.ravel(), Z.ravel()])) <= {-1.0, 0.0, 1.0}
    command = next(line for line in told if line.startswith("recorded by attnsvm"))
    assert f"data.path={folder / 'instance.npz'}" in shlex.split(command)


@pytest.mark.full
def test_the_initial_weights_of_a_counterexample_become_zero(hunted, tmp_path, capsys):
    """That 20 steps saturate attention fails from every start, so from W = 0 with n=1, T=2, d=1."""
    claim = made(prediction=QUICK, hypotheses={}, runs=(TRAINED,))
    code, told = hunted("one", "trials=100", claims=[claim])
    assert code == 0
    assert "  W0 = [[0]]" in told
    folder = tmp_path / "hunt" / "one"
    proved(folder, capsys)
    (run,) = folder.glob("*/run.json")
    assert read_record(run.parent)[0].trials["status"].tolist() == ["unsaturated"]
    assert not (folder / "start.npz").exists()


def test_without_a_counterexample_it_ends_after_so_many_instances(hunted, tmp_path):
    """The twin: with d >= max(T - 1, n) it is always feasible (Theorem 1)."""
    big = {"d >= max(T - 1, n)": ("d >= T - 1 and d >= n and d >= 2", OTHERWISE)}
    code, (line, *_) = hunted("one", "trials=250", claims=[made(hypotheses=big, runs=(DRAWN,))])
    assert code == 1
    assert line.startswith("one: no counterexample; 250 instances drawn: hypotheses not met on ")
    assert line.endswith("undecided on 0, fails on 0")
    assert not (tmp_path / "hunt").exists()


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("d >= 9 and d > n", "data.d, data.n"),
        ("init == 'small' and not d < 9", "optimizer.init=small, data.d"),
        ("d >= 9 and not (init == 'small')", "data.d, optimizer.init"),
    ],
)
def test_hypotheses_that_no_instance_meets_are_named_with_the_option_that_would(
    condition, options, hunted
):
    never = {"big": (condition, OTHERWISE), "by steps": ("init == 'zero'", OTHERWISE)}
    code, (line, remedy) = hunted("one", "trials=9", claims=[made(hypotheses=never, runs=(DRAWN,))])
    assert code == 1
    assert "9 instances drawn: hypotheses not met on 9, " in line
    assert remedy == f"  not met most often, on 9: big ({condition}; set by {options})"


@pytest.mark.parametrize(("words", "told"), CASES["refused"])
def test_a_hunt_that_cannot_be_followed_is_refused(words, told, hunted):
    claims = [made(name="layers", runs=(Runs.of("l", "model=transformer"),)), made()]
    code, (line,) = hunted(*words, claims=claims)
    assert code == 2
    assert told in line


@pytest.mark.parametrize(("words", "count", "first", "largest"), CASES["cells"])
def test_cells_are_those_of_the_runs_without_the_data(words, count, first, largest):
    cells = list(cells_of(Runs.of("a", words)))
    assert len(cells) == count
    assert cells[0] == (first, tuple(largest))


@pytest.mark.parametrize("words", CASES["not shrunk"])
def test_runs_whose_instances_cannot_be_shrunk_are_refused(words):
    with pytest.raises(ValueError, match="a: "):
        list(cells_of(Runs.of("a", words)))


def test_shrinking_ends_at_the_least_case_that_fails():
    """A rule without runs: it fails where the first sample's first token is not zero."""

    def failing(cases):
        found = [one for one in cases if np.abs(one.arrays["X"][0, 0]).max() >= 0.5]
        return min(found, key=lambda one: one.weight, default=None)

    rng, told = np.random.default_rng(0), []
    shapes = {"X": (2, 3, 3), "Z": (2, 3), "v": 3, "W0": (3, 3)}
    drawn = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    least = shrunk(Case(drawn | {"Y": np.array([1.0, -1.0])}), failing, rng, told.append)
    assert least.size == (1, 2, 1)
    assert [(name, at) for name, at, _ in least.numbers()] == [("X", (0, 0, 0))]
    assert least.denominator() <= 2
    assert told[-1] == "  shrunk to n=1, T=2, d=1"
