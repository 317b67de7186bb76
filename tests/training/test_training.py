import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Generator

from attnsvm import Transformer, train_layers
from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.linalg import EPS as MACHINE_EPS
from attnsvm.nn.risk import Risk
from attnsvm.training import train
from attnsvm.training.batch import parameterization_named
from tests.kkt import normal as draw

GD_RECORDS = json.loads((Path(__file__).parents[1] / "reference" / "gd.json").read_text())
SMALL = {"n": 3, "T": 4, "d": 5, "trials": 6, "seed": 20}


def ragged(batch):
    mask = torch.rand(batch.mask.shape, generator=Generator().manual_seed(3)) > 0.4
    mask[:, :, 0] = True
    return dataclasses.replace(batch, mask=mask)


def reference_run(record):
    """Train as the reference did, with a snapshot before the last step."""
    d, steps, kq = record["d"], record["steps"], record["parameterization"] == "kq"
    zero, shape = torch.zeros(d, d).double(), {name: record[name] for name in ("n", "T", "d")}
    return train(
        sample(head=record["head"], seed=record["seed"], trials=1, **shape),
        record["parameterization"],
        steps=steps,
        lr=0.1,
        gradient="direct",
        ridge=MACHINE_EPS if kq else 0.0,
        init=(0.1 * torch.eye(d).double(), zero) if kq else zero,
        record_every=max(1, steps - 1),
    )


NOISE = {
    ("kq", 300, "linear", 0),
    ("kq", 300, "linear", 1),
    ("kq", 300, "linear", 2),
    ("kq", 300, "relu", 2),
}
"""Runs whose direct gradient lost its digits to saturation, 1 - s < 1e-12, on the way."""


@pytest.mark.parametrize("record", GD_RECORDS)
def test_published_update_is_that_of_the_reference(record):
    path = reference_run(record)
    s, W = path.softmax[0, -2], path.W[0]
    assert path.loss[0, -2].item() == pytest.approx(record["loss_before_last_step"], rel=1e-8)
    assert s.amax(-1).tolist() == pytest.approx(record["max_softmax"], rel=1e-8)
    assert s.argmax(-1).tolist() == record["argmax"]
    if tuple(record[name] for name in ("parameterization", "steps", "head", "seed")) not in NOISE:
        names = ("fro_norm", "trace", "W00", "W01", "W10")
        entries = [W.norm(), W.trace(), *W[0, :2], W[1, 0]]
        expected = [record[name] for name in names]
        assert entries == pytest.approx(expected, rel=1e-8, abs=1e-8)


def objective(risk, ridge, *variables):
    value = risk.value(risk.forward(variables))
    return value + ridge * sum(V.square().sum((-2, -1)) for V in variables)


def risk_of(batch, parameterization="w", m=None, loss="logistic"):
    return Risk(batch, parameterization_named(parameterization, m), named("loss", loss))


@pytest.mark.parametrize("gradient", ["direct", "log_domain"])
@pytest.mark.parametrize(
    ("head", "loss", "ridge"), [("relu", "exponential", 0.0), ("mlp", "squared", 0.03)]
)
def test_gradient_is_that_of_autograd(gradient, head, loss, ridge):
    """That of a trained head too. `test_testing` has the parts, of every option by itself."""
    batch = ragged(sample(head=head, **SMALL))
    batch.head.train = head == "relu" and gradient == "log_domain"
    risk = risk_of(batch, "kq", 2, loss)
    shapes = [*risk.rule.shapes(5), *[(5, 5)] * batch.head.train]
    variables = tuple(2 * draw(batch.B, *shape, seed=i) for i, shape in enumerate(shapes))
    G = risk.gradient(variables, risk.forward(variables), gradient, ridge)
    tracked = tuple(V.requires_grad_() for V in variables)
    expected = torch.autograd.grad(objective(risk, ridge, *tracked).sum(), tracked)
    for part, log_scale, wanted in zip(G.parts, G.log_scales, expected, strict=True):
        got = part * log_scale.exp()[:, None, None]
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-14)


@pytest.mark.processors
def test_divergence_is_a_status_of_its_instance():
    batch = sample(**SMALL)
    W0 = draw(batch.B, 5, 5)
    W0[2] = 1e308
    path = train(batch, optimizer="gd", steps=5, lr=1.0, init=W0, ridge=10.0)
    calm = train(batch.take(slice(2)), optimizer="gd", steps=5, lr=1.0, init=W0[:2], ridge=10.0)
    assert path.diverged.tolist() == [False, False, True, False, False, False]
    assert path.W[:2].equal(calm.W)


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("compiled", [True, False])
def test_progress_counts_the_steps_and_not_at_snapshots_only(compiled, layers):
    done, options = [], {"steps": 230, "compiled": compiled}
    if layers:
        model = Transformer(layers=layers)
        batch = sample(model=model, **SMALL)
        train_layers(batch, model, record_every=230, progress=done.append, **options)
    else:
        train(sample(**SMALL), progress=done.append, **options)
    assert done == sorted({0, *done, 230})
    assert len(done) >= 3


ZERO, PATH = torch.zeros(5, 5).double(), {"optimizer": "regularization_path"}
KQ2 = {"parameterization": "kq", "m": 2}
REFUSED = [
    (r"parameterization=v: must be w \| kq", {"parameterization": "v"}),
    (r"optimizer=sgd: did you mean gd\?", {"optimizer": "sgd"}),
    (r"optimizer\.step: .*did you mean steps\?", {"step": 3}),
    (r"parameterization\.m: .*must be absent", {"m": 2}),
    ("m=6: must be >= 1 and <= d=5", {**KQ2, "m": 6}),
    (
        r"optimizer\.norm=spectral\+max: must be",
        {"parameterization": "kq", "optimizer": "steepest", "norm": "spectral+max"},
    ),
    *(
        (r"optimizer\.batch=4: must be <= n=3", {"batch": 4, "compiled": compiled})
        for compiled in (True, False)
    ),
    ("init: 2 tensors; must be W0", {"init": (ZERO, ZERO)}),
    ("init W0: torch.float32", {"init": ZERO.float()}),
    ("init W0: nan", {"init": ZERO * torch.nan}),
    (r"init K0: shape .* must be \(6, 5, 2\)", {**KQ2, "init": (ZERO, ZERO)}),
    ("init_angle=5.0: must be 0 with .*m=2", {**KQ2, "init": "cone", "init_angle": 5.0}),
    ("init=cone: must be .* not known", {"init": "cone", "optimizer": "adam"}),
    ("init=balanced: parameterization must be kq", {"init": "balanced"}),
    *(
        (r"optimizer\.radii=", {**PATH, "radii": radii})
        for radii in ([], [3.0, 1.0], [0.0, 1.0], [1.0, 1.0])
    ),
    *((rf"optimizer\.cone={cone}", {**PATH, "cone": cone}) for cone in (0.0, 90.0)),
    (r"optimizer\.init=zero: must be another start", {**PATH, "cone": 5.0, "init": "zero"}),
]


@pytest.mark.parametrize(("message", "options"), REFUSED)
def test_what_cannot_be_trained_is_named(message, options):
    with pytest.raises(ConfigError, match=message):
        train(sample(**SMALL), **options)
