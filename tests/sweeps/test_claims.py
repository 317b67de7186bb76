"""Verdicts follow from counts of recorded instances; what is committed is that of the claims."""

import contextlib
import inspect
import json
import shlex
import shutil

import numpy as np
import pytest

from attnsvm import experiment, sample
from attnsvm.sweeps import claims
from attnsvm.sweeps.aggregate import read_sweep
from attnsvm.sweeps.claims import FAILS, HOLDS, OTHERWISE, Claim, Evidence, Runs, arrays
from attnsvm.sweeps.claims.claim import sources
from attnsvm.sweeps.verdicts import main, verdict
from attnsvm.sweeps.verdicts.derive import COMMITTED, FILE, Entry, Verdict, latest, read, write
from attnsvm.sweeps.verdicts.page import cost_of, perform, rendered, runs_of
from tests.command import ran
from tests.config.test_config import composed
from tests.verify.kinds import ALL, written

COMMAND = "attnsvm.sweeps.verdicts.command"

CLAIMS = claims.all_claims()
TINY = Runs.of(
    "tiny", "data.n=2 data.T=3 data.d=1,4 optimizer.steps=20 optimizer.record_every=10 trials=6"
)
WRONG = Runs.of("wrong", "data.n=0")

FEASIBLE = (
    (HOLDS, "frobenius_status == 'solved'"),
    (FAILS, "frobenius_status == 'infeasible'"),
    ("open", OTHERWISE),
)


def tiny_claim(**changed):
    """Return a claim on TINY: the SVM is feasible, for d >= 2."""
    words = dict.fromkeys(("paper", "number", "title", "statement", "tolerance"), "some words")
    parts = {"name": "one", "reading": "stated", "prediction": FEASIBLE, "runs": (TINY,)}
    parts |= {"hypotheses": {"d >= 2": ("d >= 2", OTHERWISE)}}
    return Claim(**words | parts | changed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The records of TINY; WRONG has none, and its error is told."""
    directory = tmp_path_factory.mktemp("claims")
    errors = dict(perform([TINY, WRONG], directory, (), 2))
    assert errors[TINY] == ""
    assert "data.n=0" in errors[WRONG]
    return directory


def test_a_claim_that_is_true_holds_where_its_hypotheses_are_met(folder):
    outcome = verdict(tiny_claim(), folder)
    assert (outcome.drawn, outcome.holds, outcome.fails, outcome.undecided) == (12, 6, 0, {})
    assert outcome.hypotheses == {"d >= 2": {"yes": 6, "no": 6, "undecided": 0}}
    assert outcome.sentence == "holds on all 6 instances that meet the hypotheses"
    assert outcome.smallest is None


@pytest.mark.full
def test_without_its_hypothesis_it_fails_and_the_smallest_instance_is_kept(folder, tmp_path):
    claim = tiny_claim(hypotheses={})
    outcome = verdict(claim, folder)
    trials = read_sweep(folder / "tiny").rows
    failing = trials[trials["frobenius_status"] == "infeasible"]
    assert len(failing) > 0
    assert outcome.sentence == f"fails on {len(failing)} of 12"
    smallest = outcome.smallest
    assert [smallest[key] for key in "nTd"] == [2, 3, 1]
    assert smallest["seed"] == failing["seed"].min()
    words = shlex.split(smallest["command"])[1:]
    ran("-m", *words, "hydra.sweep.dir=tiny", cwd=tmp_path)
    alone = verdict(claim, tmp_path)
    assert (alone.drawn, alone.fails) == (1, 1)
    assert alone.smallest["seed"] == smallest["seed"]


LATE = [(HOLDS, "d == 4"), ("late", OTHERWISE)]
ONE_FAILS = [(FAILS, "d == 4 and seed == 1"), ("late", "d == 4 and seed == 2"), (HOLDS, "d > 0")]


@pytest.mark.parametrize(
    ("hypotheses", "prediction", "sentence"),
    [
        (
            {"never": ("d < 0", OTHERWISE), "unknown": ("d > 0", "d < 0")},
            FEASIBLE,
            "hypotheses never met among 12",
        ),
        ({}, LATE, "undecided; holds on 6 of 12, undecided on 6 (6 late)"),
        (
            {"unknown": ("d > 0", "d == 4")},
            FEASIBLE,
            "undecided; holds on all 6 instances that meet the hypotheses, "
            "hypotheses undecided on 6",
        ),
        # one counterexample outweighs everything else
        ({}, ONE_FAILS, "fails on 1 of 12, undecided on 1 (1 late)"),
    ],
)
def test_what_is_not_decided_is_counted_and_never_holds(folder, hypotheses, prediction, sentence):
    outcome = verdict(tiny_claim(hypotheses=hypotheses, prediction=prediction), folder)
    assert outcome.sentence == sentence
    assert outcome.kind in sentence


def test_instances_of_undecided_hypotheses_are_counted_apart():
    """Two hold, one fails, one is late: 4 meet the hypotheses, whatever the 5 others do."""
    unknown = {"late": 1, "hypotheses undecided": 3, "no record": 2}
    outcome = Verdict(drawn=10, holds=2, fails=1, undecided=unknown)
    apart = "undecided on 1 (1 late), hypotheses undecided on 3, no record on 2"
    assert (outcome.met, outcome.sentence) == (4, f"fails on 1 of 4, {apart}")
    outcome = Verdict(drawn=3, undecided={"hypotheses undecided": 3})
    assert (outcome.met, outcome.kind) == (0, "undecided")


def test_a_run_without_a_record_is_undecided_not_left_out(folder, tmp_path):
    assert verdict(tiny_claim(), tmp_path).undecided == {"no record": 1}
    copy = tmp_path / "tiny"
    shutil.copytree(folder / "tiny", copy)
    next(copy.glob("*_d4_*/run.json")).unlink()
    outcome = verdict(tiny_claim(), tmp_path)
    assert (outcome.drawn, outcome.kind, outcome.undecided) == (12, "undecided", {"no record": 6})


def test_arrays_and_curves_are_aligned_with_the_rows(folder):
    evidence = Evidence(
        read_sweep(folder / "tiny"), {"half": "at('W_norm', 0.5)", "later": "half + 1"}
    )
    seeds = evidence.from_arrays(lambda arrays: arrays["seeds"])
    assert (seeds == evidence.trials["seed"]).all()
    norms = evidence.from_arrays(lambda arrays: np.linalg.norm(arrays["frobenius_W"], axis=(1, 2)))
    solved = evidence.trials["frobenius_status"] == "solved"
    assert solved.any()
    expected = evidence.trials["frobenius_objective"][solved]
    assert np.allclose(norms[solved], expected, rtol=1e-12)
    norm = evidence.curve("W_norm")
    assert list(norm.columns) == [0, 10, 20]
    assert (norm[20] == evidence.trials["W_norm"]).all()
    assert evidence.truths("at('W_norm', 1) == W_norm and later == half + 1").all()
    assert (evidence.value("half") == norm[10]).all()


@pytest.mark.full
def test_verdicts_are_those_of_scaled_instances(tmp_path):
    """Of every claim of which a run has the columns, and whose hypotheses have no step size."""
    batch, rulings = sample("sphere", n=3, T=3, d=4, trials=6), []
    for size in (1.0, 1e-6, 1e6):
        path, v = tmp_path / f"{size}.npz", batch.head_parameters["v"] / size
        np.savez(path, X=size * batch.X, Z=batch.Z, Y=batch.Y, v=v)
        steps = "optimizer.init=zero", "optimizer.steps=1000", f"optimizer.lr={0.1 / size}"
        config = composed(ALL, "data=file", f"data.path={path}", *steps)
        written(tmp_path / str(size), config, experiment.run(config))
        frames, words_of = read_sweep(tmp_path / str(size)), {}
        for claim in CLAIMS:
            if claim.name in ("kq_constant_steps", "kq_small_steps"):  # of a size of steps
                continue
            evidence = Evidence(frames, claim.columns)
            with contextlib.suppress(LookupError, NameError, ValueError):
                words = evidence.words(claim.prediction).tolist()
                met = [claim.met(hypothesis, evidence) for hypothesis in claim.hypotheses]
                words_of[claim.name] = words, [str(truths.tolist()) for truths in met]
        rulings.append(words_of)
    assert len(rulings[0]) > 30
    assert rulings[1:] == rulings[:1] * 2


def test_the_command_runs_judges_and_lists(folder, tmp_path, capsys, monkeypatch):
    claim = tiny_claim()
    shutil.copytree(folder / "tiny", tmp_path / "tiny")
    monkeypatch.setattr(f"{COMMAND}.perform", lambda runs, *_: (pair for pair in [(runs[0], "")]))
    monkeypatch.setattr(f"{COMMAND}.all_claims", lambda: [claim])
    monkeypatch.setattr(f"{COMMAND}.cost_of", lambda *_: "about 3 s")
    listed, known = ([], "not tested yet"), ([], "holds on all 6")
    cost, run = (["one"], "about 3 s"), (["one", "--run"], "holds on all 6")
    for name, text in (listed, cost, run, known, cost, (["one"], "d >= 2: yes 6")):
        assert main([*name, "--directory", str(tmp_path)]) == 0
        assert text in capsys.readouterr().out
    assert json.loads((tmp_path / FILE).read_text())["claims"]["one"]["verdict"]["holds"] == 6
    page = (tmp_path / "report.html").read_text()
    assert "holds on all 6" in page
    assert "d &gt;= 2" in page


def test_a_name_that_is_none_and_other_runs_of_the_same_name_are_refused(capsys):
    assert main(["--run"]) == 2
    assert "--run: must be given the names of claims" in capsys.readouterr().err
    assert main(["svm_ranc"]) == 2
    assert "did you mean svm_rank? must be one of " in capsys.readouterr().err
    other = tiny_claim(name="two", runs=(Runs.of("tiny", "trials=1"),))
    with pytest.raises(ValueError, match="two: its runs tiny must have a name of their own"):
        runs_of([tiny_claim(), other])
    assert runs_of([tiny_claim(), tiny_claim(name="two")]) == [TINY]


@pytest.mark.full
def test_the_cost_of_runs_is_what_their_dry_run_says_or_why_it_cannot_run(tmp_path):
    sweep = Runs.of("tiny", "data.d=2,3 trials=2")
    assert "2 runs, 2 of them pending; about " in cost_of(sweep, tmp_path, ())
    assert "optimizer.stps: unknown field" in cost_of(sweep, tmp_path, ("optimizer.stps=3",))


def test_a_later_verdict_counts_and_a_changed_claim_is_told(tmp_path, monkeypatch):
    committed, claim = tmp_path / "committed.json", tiny_claim()
    monkeypatch.setattr("attnsvm.sweeps.verdicts.derive.COMMITTED", committed)
    old, new, newest = (
        Entry(Verdict(drawn=day, holds=day), f"2026-01-0{day}T00:00:00Z", claim.digest)
        for day in (1, 2, 3)
    )
    for path, entry in ((committed, old), (tmp_path / FILE, new), (committed, newest)):
        write(path, {"one": entry})
        assert latest(tmp_path) == {"one": entry}
    for shown, is_told in ((claim, False), (tiny_claim(statement="another"), True)):
        text = rendered("claims.txt", [shown], {"one": new})
        assert ("the claim has changed since" in text) == is_told


def test_every_claim_has_a_committed_verdict_of_what_it_says_now():
    entries = read(COMMITTED)
    assert sorted(entries) == sorted(claim.name for claim in CLAIMS)  # names are unique
    assert {run.name for run in runs_of(CLAIMS)} == {run.name for c in CLAIMS for run in c.runs}
    for claim in CLAIMS:
        entry = entries[claim.name]
        assert claim.reading in claims.READINGS
        assert entry.digest == claim.digest, f"attnsvm-claims {claim.name}, then --docs"
        assert set(entry.verdict.hypotheses) == set(claim.hypotheses)


USES = {"prediction": [(HOLDS, "near and largest_cosine() < 1")]}


@pytest.mark.parametrize(
    ("changed", "columns", "changes"),
    [
        ({"title": "other words"}, {"unused": "d"}, False),
        ({}, {"near": "far < 2"}, True),
        ({"statement": "x"}, {}, True),
        ({"tolerance": "x"}, {}, True),
        ({"hypotheses": {}}, {}, True),
        ({"runs": []}, {}, True),
        ({"prediction": [(HOLDS, "near and largest_cosine() < 2")]}, {}, True),
    ],
)
def test_a_digest_covers_the_rule_of_a_claim_and_not_its_name(changed, columns, changes):
    whole = USES | {"columns": {"near": "far < 1", "far": "d", "unused": "n"}}
    other = whole | changed | {"columns": whole["columns"] | columns}
    assert (tiny_claim(**other).digest != tiny_claim(**whole).digest) == changes


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("cosines.max(", "cosines.min(", True),
        ('"""Return the largest |cosine|', '"""A comment', False),
        ("def _head_margins(arrays", "def _head_margins(a, arrays", False),  # another function
    ],
)
def test_a_digest_covers_the_functions_that_a_rule_names(monkeypatch, old, new, changes):
    before, source = tiny_claim(**USES).digest, inspect.getsource
    assert old in source(arrays)
    monkeypatch.setattr(inspect, "getsource", lambda module: source(module).replace(old, new))
    sources.cache_clear()
    assert (tiny_claim(**USES).digest != before) == changes
    monkeypatch.undo()
    sources.cache_clear()
