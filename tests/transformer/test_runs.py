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
from tests.verify.forging import Forgery, refusal
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a sweep of one run."""
    folder = tmp_path_factory.mktemp("sweep")
    config = composed(*SMALL)
    written(folder, config, experiment.run(config))
    return folder


@pytest.fixture
def forgery(folder):
    (inside,) = (path for path in folder.iterdir() if path.is_dir())
    return Forgery.of(inside)


@pytest.fixture(scope="module")
def joint_record(tmp_path_factory):
    """The record of a run that trains everything."""
    config = composed(*SMALL, "model.trained=all", "model.mlp=2", "optimizer.steps=150")
    return written(tmp_path_factory.mktemp("joint"), config, experiment.run(config))


@pytest.fixture
def joint(joint_record):
    return Forgery.of(joint_record)


@pytest.mark.parametrize(("override", "message"), refusals("network"))
def test_what_a_network_does_not_support_is_refused_by_name(override, message):
    further = ("selection=multi",) if "selection." in override else ()
    overrides = [*further, override.replace("(", "\\(").replace(")", "\\)")]
    with pytest.raises(ConfigError) as caught:
        composed("model=transformer", *overrides)
    assert message in str(caught.value)
    assert "model=transformer" in str(caught.value) or override.startswith("model.")


def test_a_probe_of_factors_is_refused():
    config = composed("model=transformer", "parameterization=kq", "probe=[balance]")
    with pytest.raises(ConfigError, match="model must not be transformer"):
        experiment.check(config)


@pytest.mark.parametrize("trained", ["attention", "all"])
def test_a_network_that_diverged_has_rows(trained):
    further = "optimizer.steps=3", "optimizer.lr=1e308", f"model.trained={trained}"
    trials = experiment.run(composed(*SMALL, *further)).trials
    assert set(trials["status"]) == {"diverged"}
    assert len(trials) == 12


def test_what_was_trained_is_that_of_the_library(joint):
    model = Transformer(**NETWORK, trained="all", mlp=2)
    batch = attnsvm.sample("sphere", model=model, n=2, T=3, d=6, trials=3)
    path = train_layers(batch, model, steps=150)
    assert {name for name in joint.arrays if name.startswith("network_")} == {
        f"network_{name}" for name in ("W", "V", "M1", "M2", "head_v")
    }
    for name, part in path.trained.items():
        np.testing.assert_array_equal(joint.arrays[f"network_{name}"][4:8], part[[1] * 4])
    tops = path.log_softmax.argmax(-1)  # (B, S, L, H, n, T)
    for k, row in joint.trials.iterrows():
        top = tops[row["seed"], :, row["layer"], row["attention_head"]]
        seen = torch.as_tensor(joint.arrays["mask"][k].sum(-1) > 1).view(2, 3)
        same = (top == top[-1])[:, seen].all(-1).tolist()
        since = path.steps.tolist().index(int(row["selected_since"]))
        assert all(same[since:])
        assert since == 0 or not same[since - 1]


def swapped_layers(f):
    """The weights of two layers change places, in both arrays."""
    f.arrays["network_W"] = f.arrays["network_W"][:, ::-1].copy()
    rows = np.arange(12)
    f.arrays["trained_W"] = f.arrays["network_W"][
        rows, f.arrays["layer"], f.arrays["attention_head"]
    ]


FORGERIES = {
    "swapped layers": swapped_layers,
    "M1": lambda f: f.array("network_M1", lambda V: 1.001 * V),
}


@pytest.mark.full
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_network_is_refused(name, request, tmp_path):
    forged = request.getfixturevalue("joint" if name == "M1" else "forgery")
    FORGERIES[name](forged)
    assert refusal(forged.written(tmp_path))


@pytest.mark.parametrize("record", quick("forgery", "joint"))
def test_the_genuine_record_is_reproduced(record, request, tmp_path):
    assert prove(request.getfixturevalue(record).written(tmp_path), 3).reproduced == 3


@pytest.mark.full
@pytest.mark.parametrize(
    "overrides",
    [
        "model.trained=head head=mlp head.width=3 optimizer.steps=100",
        "model.trained=all head=relu parameterization=kq optimizer.steps=100",
        "model.trained=values model.heads=1 optimizer.steps=300 model.rate=1",
        "model.residual=false model.layers=3 parameterization=kq optimizer.steps=200",
        "selection=multi model.residual=false model.heads=1 optimizer.steps=1500",
        "model.readout=every model.causal=true head=relu model.mlp=2 "
        "probe=[rank,entropy,margin_gap] optimizer.gradient=direct",
    ],
)
def test_other_networks_pass(overrides, tmp_path):
    config = composed(*SMALL, *overrides.split())
    record = experiment.run(config)
    proof = prove(written(tmp_path, config, record), 10**6)
    assert proof.reproduced == record.trials["seed"].nunique()


def test_a_stalled_layer_is_told():
    """The published gradient cancels; its error is that of each layer."""
    model = Transformer(layers=2)
    batch = attnsvm.sample("sphere", model=model, n=2, T=3, d=6, trials=3)
    fields = {"steps": 600, "lr": 0.5, "record_every": 600}
    exact = train_layers(batch, model, **fields).direction_error
    direct = train_layers(batch, model, gradient="direct", **fields).direction_error
    assert exact.eq(0).all()
    assert direct.isnan().logical_or(direct > 1e-3).any()
    assert torch.isfinite(exact).all()


def test_layers_and_heads_are_never_pooled(folder):
    sweep = attnsvm.load(folder)
    assert sweep.axes == ("layer", "attention_head")
    assert row_key(sweep.trials) == ["run", *KEY]
    assert not sweep.trials.duplicated(row_key(sweep.trials)).any()
    chart = sweep.chart("layer", "one_minus_corr_frobenius", estimator="median", status="all")
    medians = sweep.trials.groupby(["attention_head", "layer"])["one_minus_corr_frobenius"].median()
    np.testing.assert_allclose(chart.table["median"], medians)
