"""Runs with model=transformer: a row for each layer and head, from the record to the chart."""

import numpy as np
import pytest
import torch

import attnsvm
from attnsvm import ConfigError, Transformer, experiment, train_layers
from attnsvm.sweeps.cells import row_key
from attnsvm.verify.run import prove
from tests.config.test_config import composed
from tests.quick import quick, refusals
from tests.verify.kinds import written

NETWORK = {"layers": 2, "heads": 2, "values": "orthogonal"}
SMALL = (
    "model=transformer",
    "data.n=2",
    "data.T=3",
    "data.d=6",
    "trials=3",
    "optimizer.steps=400",
    *(f"model.{name}={value}" for name, value in NETWORK.items()),
)
KEY = ["seed", "layer", "attention_head"]


@pytest.mark.parametrize(("override", "message"), refusals("network"))
def test_what_a_network_does_not_support_is_refused_by_name(override, message):
    further = ("selection=multi",) if "selection." in override else ()
    overrides = [*further, override.replace("(", "\\(").replace(")", "\\)")]
    with pytest.raises(ConfigError) as caught:
        composed("model=transformer", *overrides)
    assert message in str(caught.value)
    assert "model=transformer" in str(caught.value) or override.startswith("model.")


@pytest.mark.parametrize("trained", ["attention", "all"])
def test_a_network_that_diverged_has_rows(trained):
    further = "optimizer.steps=3", "optimizer.lr=1e308", f"model.trained={trained}"
    trials = experiment.run(composed(*SMALL, *further)).trials
    assert set(trials["status"]) == {"diverged"}
    assert len(trials) == 12


def test_what_was_trained_is_that_of_the_library():
    record = experiment.run(
        composed(*SMALL, "model.trained=all", "model.mlp=2", "optimizer.steps=150")
    )
    model = Transformer(**NETWORK, trained="all", mlp=2)
    batch = attnsvm.sample("sphere", model=model, n=2, T=3, d=6, trials=3)
    path, arrays = train_layers(batch, model, steps=150), record.solutions
    assert {name for name in arrays if name.startswith("network_")} == {
        f"network_{name}" for name in ("W", "V", "M1", "M2", "head_v")
    }
    for name, part in path.trained.items():
        np.testing.assert_array_equal(arrays[f"network_{name}"][4:8], part[[1] * 4])
    tops = path.log_softmax.argmax(-1)  # (B, S, L, H, n, T)
    for k, row in record.trials.iterrows():
        top = tops[row["seed"], :, row["layer"], row["attention_head"]]
        seen = torch.as_tensor(arrays["mask"][k].sum(-1) > 1).view(2, 3)
        same = (top == top[-1])[:, seen].all(-1).tolist()
        since = path.steps.tolist().index(int(row["selected_since"]))
        assert all(same[since:])
        assert since == 0 or not same[since - 1]


@pytest.mark.parametrize(
    "overrides",
    quick(
        "model.trained=all model.mlp=2 optimizer.steps=150",
        "",
        "model.trained=head head=mlp head.width=3 optimizer.steps=100",
        "model.trained=all head=relu parameterization=kq optimizer.steps=100",
        "selection=multi model.residual=false model.heads=1 optimizer.steps=1500",
        "model.readout=every model.causal=true head=relu model.mlp=2 "
        "probe=[rank,entropy,margin_gap] optimizer.gradient=direct",
    ),
)
def test_networks_are_reproduced_and_never_pooled(overrides, tmp_path):
    config = composed(*SMALL, *overrides.split())
    record = experiment.run(config)
    proof = prove(written(tmp_path, config, record), 10**6)
    assert proof.reproduced == record.trials["seed"].nunique()
    if overrides:
        return
    sweep = attnsvm.load(tmp_path)
    assert sweep.axes == ("layer", "attention_head")
    assert row_key(sweep.trials) == ["run", *KEY]
    assert not sweep.trials.duplicated(row_key(sweep.trials)).any()
    chart = sweep.chart("layer", "one_minus_corr_frobenius", estimator="median", status="all")
    medians = sweep.trials.groupby(["attention_head", "layer"])["one_minus_corr_frobenius"].median()
    np.testing.assert_allclose(chart.table["median"], medians)


def test_a_stalled_layer_is_told():
    """The published gradient cancels; its error is that of each layer."""
    model = Transformer(layers=2)
    batch = attnsvm.sample("sphere", model=model, n=2, T=3, d=6, trials=3)
    fields = {"steps": 600, "lr": 0.5, "record_every": 600}
    exact = train_layers(batch, model, **fields).direction_error
    direct = train_layers(batch, model, gradient="direct", **fields).direction_error
    assert exact.eq(0).all()
    assert direct.isnan().logical_or(direct > 1e-3).any()
