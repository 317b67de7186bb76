"""Each outcome of a claim follows from given columns and curves, beside each threshold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.claims import Evidence, all_claims
from attnsvm.sweeps.claims import arrays as measures

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
