"""The kit for plug-ins: attnsvm's own options pass it, deliberately broken twins fail it."""

import numpy as np
import pytest
import torch

from attnsvm import testing
from attnsvm.config import GROUPS, PROBES
from attnsvm.config.instantiate import named
from attnsvm.config.probe import EntropyConfig
from attnsvm.data import Sphere
from attnsvm.head import Linear, Relu
from attnsvm.loss import Logistic
from attnsvm.model import CrossAttention
from attnsvm.optimizer import NormalizedGD
from attnsvm.parameterization import KQ
from attnsvm.probe import Entropy

QUICK = {"steps": 20, "record_every": 10, "lr": 0.05}
CHECKS = {
    "head": testing.check_head,
    "data": testing.check_data,
    "model": testing.check_model,
    "parameterization": testing.check_parameterization,
    "loss": testing.check_loss,
    "optimizer": testing.check_optimizer,
    "probe": lambda probe: testing.check_probe(probe, EntropyConfig),
}
OF_FILES = ("file", "digits", "pretrained")
SLOW = {*GROUPS["optimizer"].own} - {"normalized_gd", "adam"}
OPTIONS = [
    pytest.param(group, name, marks=[pytest.mark.full] if name in SLOW else [])
    for group, options in GROUPS.items()
    for name in options.own
    if name not in OF_FILES and (group, name) != ("model", "linear")  # its tokens are classes
]


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_own_options(group, name):
    testing.check_config(GROUPS[group][name])
    options = QUICK if group == "optimizer" else {}
    if name == "regularization_path":
        options = {"radii": [1.0, 3.0]}
    if name != "polyak":
        CHECKS[group](named(group, name, **options))
    if name == "kq":
        testing.check_parameterization(KQ(m=2))


@pytest.mark.parametrize("name", PROBES.own)
def test_own_probes(name, tmp_path):
    np.save(tmp_path / "M.npy", np.eye(5))
    options = {"path": str(tmp_path / "M.npy")} if name == "distance" else {}
    testing.check_config(PROBES[name], **options)
    testing.check_probe(named("probe", name, **options), PROBES[name])


def twin(base, **methods):
    """Return a subclass of an option with methods that take what the option returns, then self."""

    def changed(name, change):
        return lambda self, *arguments: change(getattr(base, name)(self, *arguments), *arguments)

    return type(base.__name__, (base,), {name: changed(name, f) for name, f in methods.items()})


def together(variables, step):
    """Move every instance along the mean gradient of the batch."""
    for V, part in zip(step.variables, step.parts, strict=True):
        V -= step.eta * part.mean(0, keepdim=True).expand_as(part)
    return variables


def sequential(batch, *arguments):
    batch.X[1:] += 1
    return batch


def unmasked(samples, X, Z, Y, mask):
    return CrossAttention().expand(X, Z, Y, None)


def entropy(change):
    return twin(Entropy, measure=lambda measured, _: {k: change(v) for k, v in measured.items()})()


def first_order(**methods):
    return twin(NormalizedGD, **methods)(**QUICK)


TWINS = [
    ("gradient: differs", "head", twin(Linear, gradient=lambda g, *_: 1.001 * g)()),
    ("value: depends on the", "head", twin(Linear, value=lambda h, *_: h + 1e-9 * h.sum())()),
    ("global random", "head", twin(Linear, draw=lambda *_: {"v": torch.randn(5).double()})()),
    ("features: their sum", "head", twin(Relu, features=lambda f, *_: (f[0], 2 * f[1]))()),
    ("X depends on the other", "data", twin(Sphere, sample=sequential)(2, 3, 4)),
    ("a masked token is", "model", twin(CrossAttention, expand=unmasked)()),
    ("pullback", "parameterization", twin(KQ, pullback=lambda V, *_: V[::-1])()),
    ("derivative: differs", "loss", twin(Logistic, derivative=lambda slope, _: 1.0001 * slope)()),
    ("value: must decrease", "loss", twin(Logistic, value=lambda l, _: -l)()),
    ("run: depends on the other", "optimizer", first_order(update=together)),
    ("the risk does not fall", "optimizer", first_order(step_size=lambda eta, _: -eta)),
    ("(mean|max): depends on the other", "probe", entropy(lambda v: v / v.sum())),
    ("must be a finite number >= 0", "probe", entropy(lambda v: -v)),
]


@pytest.mark.parametrize(("message", "group", "option"), TWINS)
def test_broken_twins(message, group, option):
    with pytest.raises(AssertionError, match=message):
        CHECKS[group](option)
