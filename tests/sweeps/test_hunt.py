"""A hunt finds a planted counterexample, makes it as small as it goes, and ends without one."""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial

import numpy as np
import pytest

from attnsvm import record
from attnsvm.sweeps.claims import FAILS, HOLDS, Runs
from attnsvm.sweeps.claims._conditions import OVERPARAMETERISED
from attnsvm.sweeps.verdicts import case as simpler
from attnsvm.sweeps.verdicts import main
from attnsvm.sweeps.verdicts.case import Case
from attnsvm.sweeps.verdicts.hunt import cells_of, hunt, shrunk
from attnsvm.verify import command as proof
from tests.sweeps.test_claims import made

DRAWN = Runs.of(
    "drawn", "selection=optimal data.n=1,3 data.T=2,3 data.d=1,2 svm.norms=[frobenius] trials=6"
)  # fmt: skip
TRAINED = Runs.of(
    "trained", "data.n=2 data.T=3 data.d=2 optimizer.steps=20 optimizer.record_every=10 "
    "svm.norms=[frobenius] trials=6"
)  # fmt: skip


QUICK = [("status == 'ok'", HOLDS), ("status == 'unsaturated'", FAILS), (True, "open")]


def recorded(folder):
    """Return the only record in a folder."""
    (run,) = folder.glob("*/run.json")
    return record.read(run.parent)[0]


def case(n=2, T=3, d=3, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=shape) for shape in ((n, T, d), (n, d), (d,), (d, d))]
    X, Z, v, W = drawn
    return Case({"X": X, "Z": Z, "Y": np.array([1.0, -1.0] * n)[:n], "v": v, "W0": W})


def logits(one):
    return np.einsum("ntd,de,ne->nt", *(one.arrays[name] for name in ("X", "W0", "Z")))


# --- a claim with a counterexample, and its twin without one --------------------------------------


@pytest.mark.full
def test_a_planted_counterexample_is_found_shrunk_recorded_and_proved(tmp_path, capsys):
    """That the SVM is always feasible fails at n=2, T=2, d=1, which is as small as it goes."""
    told = []
    assert hunt(made(hypotheses={}, runs=(DRAWN,)), 1000, tmp_path, told.append)
    folder = tmp_path / "hunt" / "one"
    assert proof.main([str(folder)]) == 0, capsys.readouterr().out
    found = recorded(folder)
    assert found.trials["frobenius_status"].tolist() == ["infeasible"]
    X, Z = found.solutions["X"][0], found.solutions["Z"][0]
    assert X.shape == (2, 2, 1)
    assert set(np.concatenate([X.ravel(), Z.ravel()])) <= {-1.0, 0.0, 1.0}
    archive = folder.with_suffix(".zip")
    assert told[-1] == f"proved by attnsvm-verify {archive}"
    assert archive.stat().st_size < 8000
    assert proof.main([str(archive)]) == 0, capsys.readouterr().out
    assert (folder / "instance.npz").stat().st_size < 2000
    (run,) = folder.glob("*/run.json")
    assert sum(one.stat().st_size for one in run.parent.iterdir() if one.is_file()) < 16_000
    command = next(line for line in told if line.startswith("recorded by attnsvm"))
    assert f"data.path={folder / 'instance.npz'}" in shlex.split(command)


def test_the_initial_weights_of_a_counterexample_become_zero(tmp_path, capsys):
    """That 20 steps saturate attention fails from every start, so from W = 0 with n=1, T=2, d=1."""
    told = []
    assert hunt(made(prediction=QUICK, hypotheses={}, runs=(TRAINED,)), 100, tmp_path, told.append)
    folder = tmp_path / "hunt" / "one"
    assert proof.main([str(folder)]) == 0, capsys.readouterr().out
    assert recorded(folder).trials["status"].tolist() == ["unsaturated"]
    assert "  W0 = [[0]]" in told
    assert not (folder / "start.npz").exists()


def test_without_a_counterexample_it_ends_after_so_many_instances(tmp_path):
    """The twin: with d >= max(T - 1, n) it is always feasible (Theorem 1)."""
    big = OVERPARAMETERISED | {"d >= 2": "d >= 2"}
    told = []
    assert not hunt(made(hypotheses=big, runs=(DRAWN,)), 250, tmp_path, told.append)
    line = told[-1]
    assert told == [line]
    assert line.startswith("one: no counterexample; 250 instances drawn: hypotheses not met on ")
    assert line.endswith("undecided on 0, fails on 0")
    assert not (tmp_path / "hunt").exists()


@pytest.mark.full
def test_the_command_hunts_and_its_exit_code_says_whether_one_was_found(
    tmp_path, capsys, monkeypatch
):
    claims = [made(hypotheses={}, runs=(DRAWN,))]
    monkeypatch.setattr("attnsvm.sweeps.verdicts.command.all_claims", lambda: claims)
    monkeypatch.setattr("attnsvm.sweeps.verdicts.hunt._record", lambda *_: None)
    words = ["--directory", str(tmp_path)]
    assert main(["hunt", "one", "trials=1000", *words]) == 0
    assert "numbers are multiples of 1/1" in capsys.readouterr().out
    assert main(["hunt", "one", "trials=1", *words]) == 1


def test_a_claim_that_cannot_be_hunted_is_refused_with_those_that_can(capsys, monkeypatch):
    layers = made(runs=(Runs.of("l", "model=transformer"),))
    others = [dataclasses.replace(layers, name="layers"), made()]
    monkeypatch.setattr("attnsvm.sweeps.verdicts.command.all_claims", lambda: others)
    assert main(["hunt", "layers"]) == 2
    told = capsys.readouterr().err
    assert "l: only instances of model=cross_attention are shrunk; must be one of one" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["one", "two"], "must be one of"),
        ([], "must be hunt NAME"),
        (["one", "trials=0"], "trials=0: must be a whole number >= 1"),
    ],
)
def test_a_hunt_that_cannot_be_followed_is_refused(words, told, capsys, monkeypatch):
    monkeypatch.setattr("attnsvm.sweeps.verdicts.command.all_claims", lambda: [made()])
    assert main(["hunt", *words]) == 2
    assert told in capsys.readouterr().err


# --- what is drawn --------------------------------------------------------------------------------


def test_cells_are_those_of_the_runs_without_the_data():
    cells = list(cells_of(Runs.of("a", "data.n=2,3 data.d=4 loss=logistic,exponential trials=5")))
    assert cells == [(["loss=logistic"], (3, 8, 4)), (["loss=exponential"], (3, 8, 4))]
    words = "model=self_attention,cross_attention hypotheses=[assumption_d] seed=1"
    ((words, largest),) = cells_of(Runs.of("a", f"data={{n:3,T:3}},{{n:6,T:4}} {words}"))
    assert words == ["model=cross_attention", "hypotheses=[assumption_d]"]
    assert largest == (6, 4, 10)


@pytest.mark.parametrize(
    "words",
    ["sweep=sequence", "model=sequence data.n=2", "data=prompt data.n=2", "optimizer=gd,adam"],
)
def test_runs_whose_instances_cannot_be_shrunk_are_refused(words):
    with pytest.raises(ValueError, match="a: "):
        list(cells_of(Runs.of("a", words)))


def test_a_named_sweep_has_the_cells_of_its_grid_unless_another_is_given():
    cells = list(cells_of(Runs.of("a", "sweep=optimizer_geometry trials=3")))
    assert len(cells) == 8
    first = ["optimizer={norm:frobenius,lr:1.0}", "sweep=optimizer_geometry"]
    assert cells[0] == (first, (6, 8, 10))
    narrower = "sweep=optimizer_geometry optimizer={norm:max} data.d=3,4"
    assert list(cells_of(Runs.of("a", narrower))) == [
        (["optimizer={norm:max}", "sweep=optimizer_geometry"], (6, 8, 4))
    ]


# --- simpler cases --------------------------------------------------------------------------------


def test_a_coordinate_that_is_not_used_can_be_left_out_in_some_basis():
    """Logits and scores of an instance in a plane are those in two coordinates of the plane."""
    one = case(d=2)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    into = turn[:, :2]
    X, Z, v, W = (one.arrays[name] for name in ("X", "Z", "v", "W0"))
    raised = one.replaced(X=X @ into.T, Z=Z @ into.T, v=into @ v, W0=into @ W @ into.T)
    lowered = raised.mapped(partial(simpler._without_coordinate, turn.T, 2))
    assert lowered.size == (2, 3, 2)
    np.testing.assert_allclose(logits(lowered), logits(one), atol=1e-12)
    scores = lowered.arrays["X"] @ lowered.arrays["v"]
    np.testing.assert_allclose(scores, X @ v, atol=1e-12)


def test_shrinking_ends_at_the_least_case_that_fails():
    """A rule without runs: it fails where the first sample's first token is not zero."""

    def failing(cases):
        found = [one for one in cases if np.abs(one.arrays["X"][0, 0]).max() >= 0.5]
        return min(found, key=lambda one: sum(abs(x) for *_, x in one.numbers()), default=None)

    told = []
    least = shrunk(case(), failing, np.random.default_rng(0), told.append)
    assert least.size == (1, 2, 1)
    assert [(name, at) for name, at, _ in least.numbers()] == [("X", (0, 0, 0))]
    assert least.denominator() <= 2
    assert told[-1] == "  shrunk to n=1, T=2, d=1"


def test_numbers_are_told_as_fractions():
    X, Z = np.array([[[0.5, -1.0]]]), np.array([[0.0, 2.25]])
    one = Case({"X": X, "Z": Z, "Y": np.ones(1), "v": np.ones(2)})
    assert one.words() == ["X = [[[1/2, -1]]]", "Z = [[0, 9/4]]", "Y = [1]", "v = [1, 1]"]
    assert one.denominator() == 4
