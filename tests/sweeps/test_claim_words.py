"""Each outcome of a claim follows from given columns and curves, beside each threshold."""

import ast
import dataclasses
import itertools
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.claims import OTHERWISE, Evidence, all_claims
from attnsvm.sweeps.claims import arrays as measures
from attnsvm.sweeps.claims.claim import _used

CLAIMS = {claim.name: claim for claim in all_claims()}
GIVEN, EDGES = (
    OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name(f"claim_{part}.yaml")))
    for part in ("words", "edges")
)
NAN = np.nan
SOLVED = {"training": "saturated", "tie": False, "frobenius_status": "solved"}


def evidence(name, curves=(), steps=(0, 5000, 10000), **columns):
    """Return evidence for a claim: columns, curves at `steps`, a row of them each.

    A function of arrays, such as at_runner_up, is given by its values, also those of its arguments.
    """
    curves = dict(curves)
    count = len(next(iter({**columns, **curves}.values())))
    usual = {"run": "one", "seed": range(count), "status": "ok", "n": 3, "T": 3, "d": 4}
    trials = pd.DataFrame({**usual, **SOLVED, **columns})
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": quantity, "value": value}
        for quantity, rows in curves.items()
        for seed, row in enumerate(rows)
        for step, value in zip(steps, row, strict=True)
    ]
    names = ["run", "seed", "step", "quantity", "value"]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history, columns=names))
    found = Evidence(SweepFrames("", Path("claims"), *frames), CLAIMS[name].columns)
    for measure in measures.MEASURES:
        found.names[measure] = lambda *given, of=measure: trials[
            of if of in columns else f"{of}({', '.join(map(repr, given))})"
        ]
    return found


CASES = [
    *((name, given) for part in (GIVEN, EDGES) for name, given in part["predictions"].items()),
    *((name, GIVEN["predictions"][same]) for name, same in GIVEN["same"].items()),
    *((n, given) for part in (GIVEN, EDGES) for given in part["several"] for n in given["claims"]),
    *((given["claim"], given) for part in (GIVEN, EDGES) for given in part["hypotheses"]),
]


def said(name, words=(), met=(), claim="", claims=(), hypothesis="", **given):
    """Return the words of the prediction of a claim, or whether a hypothesis is met."""
    if not hypothesis:
        return evidence(name, **given).words(CLAIMS[name].prediction).tolist()
    (said,) = (said for said in CLAIMS[name].hypotheses if hypothesis in said)
    found = CLAIMS[name].met(said, evidence(name, **given))
    return found.astype(object).where(found.notna(), None).tolist()


@pytest.mark.parametrize(("name", "given"), CASES)
def test_a_prediction_or_a_hypothesis_is_true_or_false_or_open(name, given):
    assert said(name, **given) == given.get("words", given.get("met"))


OPPOSITE = {ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.And: ast.Or}
OPPOSITE |= {two: one for one, two in OPPOSITE.items()}
MIRRORED = {ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.Gt: ast.Lt}


def changes(node):
    """Return the other values of a comparison, a connective, a word or a number."""
    if isinstance(node, ast.Compare):
        return [{"ops": [turned[kind]()]} for turned in (OPPOSITE, MIRRORED)
                if (kind := type(node.ops[0])) in turned]  # fmt: skip
    if isinstance(node, ast.BoolOp):
        fewer = itertools.combinations(node.values, len(node.values) - 1)
        return [{"op": OPPOSITE[type(node.op)]()}, *({"values": [*one]} for one in fewer)]
    value = getattr(node, "value", None)
    if isinstance(value, str):
        return [{"value": "another"}]
    if type(value) not in (int, float):
        return []
    whole = isinstance(value, int) and 0 < value < 10
    moved = (value + 1, value - 1) if whole else (2 * value or 1e-3, value / 2 or -1e-3)
    return [{"value": one} for one in moved]


def mutants(condition):
    """Yield a condition with one comparison turned, one part left out or one value moved."""
    for k, place in enumerate(ast.walk(ast.parse(condition, mode="eval"))):
        for change in changes(place):
            tree = ast.parse(condition, mode="eval")
            vars([*ast.walk(tree)][k]).update(change)
            yield ast.unparse(tree)


def conditions(claim):
    """Return the conditions and the columns of a claim that decide its instances."""
    rule = {*itertools.chain(*claim.hypotheses.values()), *(one for _, one in claim.prediction)}
    return {*rule, *_used(" ".join(rule), claim.columns).values()} - {OTHERWISE}


def changed(claim, old, new):
    """Return a claim that has the condition `new` where it has `old`."""

    def other(condition):
        return new if condition == old else condition

    return dataclasses.replace(
        claim,
        hypotheses={word: (*map(other, pair),) for word, pair in claim.hypotheses.items()},
        prediction=[(word, other(one)) for word, one in claim.prediction],
        columns={name: other(one) for name, one in claim.columns.items()},
    )


def notices(name, given):
    """Return whether something else is said of a case than what is written."""
    try:
        return said(name, **given) != given.get("words", given.get("met"))
    except (LookupError, NameError, ValueError):  # a step or column that is not there
        return True


@pytest.mark.full
def test_every_change_of_a_rule_is_noticed(monkeypatch):
    uses = defaultdict(list)
    for name, given in CASES:
        for condition in conditions(CLAIMS[name]):
            uses[condition].append((name, given))
    every = {one for claim in CLAIMS.values() for one in conditions(claim)}
    survivors = {one for one in every - set(uses) if any(mutants(one))}
    for condition, cases in uses.items():
        for mutant in mutants(condition):
            with monkeypatch.context() as patch:
                for name in {name for name, _ in cases}:
                    patch.setitem(CLAIMS, name, changed(CLAIMS[name], condition, mutant))
                if not any(notices(*case) for case in cases):
                    survivors.add(mutant)
    assert survivors == set(EDGES["equivalent"])


def test_only_one_claim_on_layers_allows_gradients_of_unseen_positions():
    without = set(CLAIMS["layers"].hypotheses) - set(CLAIMS["layers_unseen"].hypotheses)
    assert without == {"positions that are not seen have no part in the gradient"}


@pytest.mark.parametrize("given", GIVEN["arrays"], ids=lambda given: given["measure"])
def test_a_number_of_the_arrays_of_an_instance(given):
    arrays = {name: np.array(values) for name, values in given["arrays"].items()}
    found = getattr(measures, given["measure"])(arrays, *given.get("of", ()))
    np.testing.assert_allclose(found, given["found"], rtol=1e-7, atol=1e-12)


def test_changes_of_a_curve_since_its_start_and_since_half_way():
    curves = {"W_norm": [[5.0, 9.0, 1.0, 3.0], [5.0, 3.0, 6.0, 6.0], [5.0, 9.0, 1.0, NAN]]}
    found = evidence("mixture", curves, (0, 3000, 5000, 10000))
    np.testing.assert_array_equal(found.swing("W_norm"), [2.0, 0.0, NAN])
    np.testing.assert_array_equal(found.change("W_norm"), [4.0, 2.0, NAN])
