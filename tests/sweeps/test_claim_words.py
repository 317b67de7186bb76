"""Each outcome of a claim follows from given columns and curves, beside each threshold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.sweeps.claims import Evidence, all_claims
from attnsvm.sweeps.claims import arrays as measures
from attnsvm.sweeps.loaded import LoadedSweep

CLAIMS = {claim.name: claim for claim in all_claims()}
WORDS, EDGES = (
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
    usual = {"run": "one", "seed": range(count), "status": "ok"}
    usual |= {"data.n": 3, "data.T": 3, "data.d": 4}
    trials = pd.DataFrame({**usual, **SOLVED, **columns})
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": quantity, "value": value}
        for quantity, rows in curves.items()
        for seed, row in enumerate(rows)
        for step, value in zip(steps, row, strict=True)
    ]
    names = ["run", "seed", "step", "quantity", "value"]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history, columns=names))
    rows = Evidence(LoadedSweep("", Path("claims"), *frames), CLAIMS[name].columns)
    for measure in measures.MEASURES:
        rows.names[measure] = lambda *parts, of=measure: trials[
            of if of in columns else f"{of}({', '.join(map(repr, parts))})"
        ]
    return rows


CASES = [
    *((name, case) for part in (WORDS, EDGES) for name, case in part["predictions"].items()),
    *((name, WORDS["predictions"][same]) for name, same in WORDS["same"].items()),
    *((n, case) for part in (WORDS, EDGES) for case in part["several"] for n in case["claims"]),
    *((case["claim"], case) for part in (WORDS, EDGES) for case in part["hypotheses"]),
]


def outcome(name, words=(), met=(), claim="", claims=(), hypothesis="", **case):
    """Return the words of the prediction of a claim, or whether a hypothesis is met."""
    if not hypothesis:
        return evidence(name, **case).words(CLAIMS[name].prediction).tolist()
    (whole,) = (known for known in CLAIMS[name].hypotheses if hypothesis in known)
    truths = CLAIMS[name].met(whole, evidence(name, **case))
    return truths.astype(object).where(truths.notna(), None).tolist()


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_prediction_or_a_hypothesis_is_true_or_false_or_open(name, case):
    assert outcome(name, **case) == case.get("words", case.get("met"))


def test_only_one_claim_on_layers_allows_gradients_of_unseen_positions():
    without = set(CLAIMS["layers"].hypotheses) - set(CLAIMS["layers_unseen"].hypotheses)
    assert without == {"positions that are not seen have no part in the gradient"}


@pytest.mark.parametrize("case", WORDS["arrays"], ids=lambda case: case["measure"])
def test_a_number_of_the_arrays_of_an_instance(case):
    arrays = {name: np.array(values) for name, values in case["arrays"].items()}
    numbers = getattr(measures, case["measure"])(arrays, *case.get("of", ()))
    np.testing.assert_allclose(numbers, case["found"], rtol=1e-7, atol=1e-12)


def test_changes_of_a_curve_since_its_start_and_since_half_way():
    curves = {"W_norm": [[5.0, 9.0, 1.0, 3.0], [5.0, 3.0, 6.0, 6.0], [5.0, 9.0, 1.0, NAN]]}
    curves_of = evidence("mixture", curves, (0, 3000, 5000, 10000))
    np.testing.assert_array_equal(curves_of.swing("W_norm"), [2.0, 0.0, NAN])
    np.testing.assert_array_equal(curves_of.change("W_norm"), [4.0, 2.0, NAN])
