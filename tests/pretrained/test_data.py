"""`data=pretrained` from the config to the record, on tiny random models."""

import re
from collections import Counter

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import attnsvm
from attnsvm import ConfigError, experiment, testing
from attnsvm.config.identity import signature
from attnsvm.verify.run import RunProof, prove

pytest.importorskip("tokenizers")  # of transformers, which is slow to import

from attnsvm.head import Linear, Relu
from attnsvm.model import CrossAttention, SelfAttention
from tests.config.test_config import composed
from tests.pretrained.tiny import drawn, source, tiny, write
from tests.quick import quick
from tests.verify.forging import Forgery, refusal
from tests.verify.kinds import written


@pytest.mark.parametrize("control", quick("none", "spectrum", "tokens"))
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_an_instance_depends_on_its_seed_only(kind, control):
    testing.check_data(source(kind, control=control))
    weights = drawn(3, kind=kind, control=control).weights
    assert weights[1].equal(drawn(1, 1, kind=kind, control=control).weights[0])


@pytest.mark.parametrize("sinks", [True, False])
def test_queries_have_a_choice_without_what_is_left_out(sinks):
    batch = drawn(8, kind="gpt2", sinks=sinks)
    assert (batch.mask.sum(-1) >= 2).all()
    assert not batch.mask[..., 1 - sinks :].all()
    assert (drawn(2, sinks=sinks).mask == torch.tensor([sinks, True, True, True])).all()


REFUSED = {
    "at_layer=2": "data.at_layer=2: must be <= 1",
    "at_head=3": "data.at_head=3: must be <= 2",
    "n=1000": "data.n=1000: must be <= 299",
    "T=17": "data.T=17: must be <= 16",
    "T=14": "data.T=14: must be less",
    "text=nowhere.txt": "must be a text file, UTF-8",
    "transformer=nowhere": "must be minilm, or a folder",
    "kind=gpt2 scores=loss control=queries": "control=queries: must be attended",
    "kind=gpt2 scores=loss control=tokens": "control=tokens: must be attended",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_what_is_not_there_is_refused(typed):
    """Also scores of tokens behind a causal query, and of more tokens than independent rows."""
    with pytest.raises(ConfigError, match=re.escape(REFUSED[typed])):
        drawn(**OmegaConf.from_dotlist(typed.split()))


def test_other_heads_models_and_options_are_refused():
    for head, model in (
        (Relu(), CrossAttention()),
        (Linear(train=True), CrossAttention()),
        (Linear(), SelfAttention()),
    ):
        with pytest.raises(ConfigError, match="with data=pretrained"):
            source().sample(head, model, 1, 0)
    for typed, message in (
        ("optimizer.init=pretrained", "optimizer.init=pretrained: data must be pretrained"),
        ("data=pretrained data.T=2 data.sinks=false", "data.T=2: must be >= 3"),
        ("probe=[other_heads]", "data must be pretrained"),
    ):
        with pytest.raises(ConfigError, match=message):
            experiment.check(composed(typed))
    with pytest.raises(ConfigError, match="data must be pretrained, with weights"):
        attnsvm.train(attnsvm.sample("sphere", trials=2), init="pretrained")


def run_of_tiny(*typed):
    return composed(
        f"data=pretrained data.transformer={tiny('bert')} data.n=3 data.T=4 data.at_layer=1",
        "trials=3 optimizer.init=pretrained optimizer.steps=0 selection.saturation=0",
        "probe=[entropy,rank,other_heads]",
        *typed,
    )


def values(column):
    return torch.tensor(column.tolist(), dtype=torch.float64)


@pytest.fixture(scope="module")
def record():
    return experiment.run(run_of_tiny())


def test_a_run_measures_the_head_as_it_is(record):
    batch = drawn(3, at_head=0)
    trials, W = record.trials, batch.weights
    assert trials["status"].tolist() == ["ok"] * 3
    np.testing.assert_array_equal(record.solutions["trained_W"], W[:, 0])
    selected = torch.from_numpy(record.solutions["selected"])
    assert torch.equal(selected, attnsvm.optimal_tokens(batch)[0])
    for norm in ("frobenius", "nuclear"):
        solution = attnsvm.solve_svm(batch.X, batch.Z, selected, norm)
        correlations = torch.stack([attnsvm.correlation(W[:, h], solution.W) for h in range(3)])
        measured = values(trials[f"one_minus_corr_{norm}"])
        torch.testing.assert_close(1 - measured, correlations[0], rtol=1e-6, atol=1e-9)
        others = values(trials[f"other_heads_{norm}"])
        torch.testing.assert_close(others, correlations[1:].mean(0), rtol=1e-6, atol=1e-9)


def test_a_record_is_proved_whatever_the_signs_of_the_basis(record, tmp_path):
    """Another machine may find rows of the other sign: their inner products are the model's."""
    genuine = written(tmp_path / "genuine", run_of_tiny(), record)
    assert prove(genuine) == RunProof(3, Counter(solved=6), reproduced=3)
    forged = Forgery.of(genuine)
    for name in ("X", "trained_W", "frobenius_W", "nuclear_W"):
        forged.arrays[name] = -forged.arrays[name]
    assert refusal(forged.written(tmp_path / "turned")) == ""
    forged.arrays["X"][0, 0] += 1e-3
    assert refusal(forged.written(tmp_path / "moved"))


def test_the_signature_is_that_of_the_content(tmp_path):
    copies = [write(tmp_path / name, "bert") for name in ("one", "two")]
    config = [composed("data=pretrained", f"data.transformer={copy}") for copy in copies]
    assert signature(config[0]) == signature(config[1])
    (copies[1] / "config.json").write_text("{}")
    assert signature(config[0]) != signature(config[1])


def test_other_heads_are_measured_without_what_the_attended_tokens_fix():
    """With selection=multi: against the projection of each head by its definition."""
    words = "selection=multi selection.attended=0.25 selection.negligible=0.25 trials=2"
    measured = experiment.run(run_of_tiny(words))
    W, at = drawn(2, at_head=0).weights.numpy(), measured.solutions
    for b in range(2):
        parts = [
            np.outer(x - X[inside][0], z).ravel()
            for X, z, inside in zip(at["X"][b], at["Z"][b], at["attended"][b], strict=True)
            for x in X[inside]
        ]
        others = W[b, 1:].reshape(2, -1)
        others = others - others @ np.linalg.pinv(parts, 1e-10) @ parts
        mm = at["frobenius_W"][b].ravel()
        correlations = others @ mm / np.linalg.norm(others, axis=1) / np.linalg.norm(mm)
        value = measured.trials["other_heads_frobenius"][b]
        assert value == pytest.approx(correlations.mean(), abs=1e-9)


def test_sentences_are_drawn_until_enough_are_accepted_and_all_of_them_are_run_again(tmp_path):
    """More of them than `trials`: a model's sentences are not those of consecutive seeds."""
    config = composed(
        f"data=pretrained data.transformer={tiny('gpt2')} data.n=4 data.T=5 optimizer.steps=20",
        "trials=4 seed=3 selection=multi selection.until_accepted=true",
    )
    record = experiment.run(config)
    seeds = record.trials["seed"].tolist()
    assert len(seeds) > 2 * 4
    assert seeds == [*range(3, 3 + len(seeds))]
    accepted = record.trials["status"] == "ok"
    assert accepted.sum() == 4
    assert accepted.iloc[-1]
    proof = prove(written(tmp_path / "record", config, record))
    assert proof.reproduced == len(seeds)
    assert not proof.differences
