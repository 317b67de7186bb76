"""The kit for plug-ins: attnsvm's own options pass it, deliberately broken twins fail it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
from attnsvm.testing import (
    check_config,
    check_data,
    check_head,
    check_loss,
    check_model,
    check_optimizer,
    check_parameterization,
    check_probe,
)

QUICK = {"steps": 20, "record_every": 10, "lr": 0.05}
CHECKS = {
    "head": check_head,
    "data": check_data,
    "model": check_model,
    "parameterization": check_parameterization,
    "loss": check_loss,
    "optimizer": check_optimizer,
}
OF_FILES = ("file", "digits", "pretrained")
SLOW = {*GROUPS["optimizer"].own} - {"normalized_gd", "adam"}
OPTIONS = [
    pytest.param(group, name, marks=[pytest.mark.full] if name in SLOW else [])
    for group, options in GROUPS.items()
    for name in options.own
    if name not in OF_FILES
]


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_own_options(group, name):
    check_config(GROUPS[group][name])
    given = QUICK if group == "optimizer" else {}
    if name == "regularization_path":
        given = {"radii": [1.0, 3.0]}
    if name != "polyak":
        CHECKS[group](named(group, name, **given))


def test_a_low_rank_parameterization():
    check_parameterization(KQ(m=2))


@pytest.mark.parametrize("name", PROBES.own)
def test_own_probes(name, tmp_path):
    np.save(tmp_path / "M.npy", np.eye(5))
    given = {"path": str(tmp_path / "M.npy")} if name == "distance" else {}
    check_config(PROBES[name], **given)
    check_probe(named("probe", name, **given), PROBES[name])


# --- broken twins ---------------------------------------------------------------------------------


class Sloped(Linear):
    def gradient(self, o, parameters):
        return 1.001 * super().gradient(o, parameters)


class Mixed(Linear):
    def value(self, o, parameters):
        return super().value(o, parameters) + 1e-9 * o.sum()


class Global(Linear):
    def draw(self, generator, d):
        return {"v": torch.randn(d, dtype=torch.float64)}


class Single(Linear):
    def draw(self, generator, d):
        return {"v": super().draw(generator, d)["v"].float()}


class Featured(Relu):
    def features(self, X, parameters):
        F, kinds = super().features(X, parameters)
        return F, kinds * 2


class Sequential(Sphere):
    def sample(self, head, model, trials, seed):
        batch = super().sample(head, model, trials, seed)
        batch.X[1:] += 1
        return batch


class Unmasked(CrossAttention):
    def expand(self, X, Z, Y, mask):
        return super().expand(X, Z, Y, None)


class Turned(KQ):
    def pullback(self, variables, P, Z):
        K, Q = super().pullback(variables, P, Z)
        return Q, K


class Rough(Logistic):
    def derivative(self, u):
        return super().derivative(u) * (1 + 1e-4)


class Rising(Logistic):
    def value(self, u):
        return -super().value(u)


class Together(NormalizedGD):
    def update(self, step):
        mean = tuple(part.mean(0, keepdim=True).expand_as(part) for part in step.parts)
        for V, part in zip(step.variables, mean, strict=True):
            V -= step.eta * part
        return step.variables


class Ascending(NormalizedGD):
    def step_size(self, k):
        return -super().step_size(k)


class Normed(Entropy):
    def measure(self, snapshot):
        return {k: v / v.sum() for k, v in super().measure(snapshot).items()}


class Signed(Entropy):
    def measure(self, snapshot):
        return {k: -v for k, v in super().measure(snapshot).items()}


def first_order(cls):
    made = named("optimizer", "normalized_gd", **QUICK)
    return cls(**{name: getattr(made, name) for name in (
        "lr", "steps", "growth", "schedule", "decay", "gradient", "ridge", "record_every", "record",
        "init", "init_scale")})  # fmt: skip


TWINS = {
    "slope": (lambda: check_head(Sloped()), "gradient: differs"),
    "batch": (lambda: check_head(Mixed()), "depends on the batch"),
    "random numbers": (lambda: check_head(Global()), "global random numbers"),
    "precision": (lambda: check_head(Single()), "must be float64"),
    "features": (lambda: check_head(Featured()), "features: their sum"),
    "data": (lambda: check_data(Sequential(2, 3, 4)), "depends on the other instances"),
    "model": (lambda: check_model(Unmasked()), "a masked token is admissible"),
    "parameterization": (lambda: check_parameterization(Turned()), "pullback"),
    "loss": (lambda: check_loss(Rough()), "derivative: differs"),
    "rising loss": (lambda: check_loss(Rising()), "value: must decrease"),
    "optimizer": (lambda: check_optimizer(first_order(Together)), "depends on the other"),
    "ascent": (lambda: check_optimizer(first_order(Ascending)), "the risk does not fall"),
    "probe": (lambda: check_probe(Normed(), EntropyConfig), "depends on the other"),
    "range": (lambda: check_probe(Signed(), EntropyConfig), "must be a finite number >= 0"),
}


@pytest.mark.parametrize("kind", TWINS)
def test_broken_twins(kind):
    check, told = TWINS[kind]
    with pytest.raises(AssertionError, match=told):
        check()
