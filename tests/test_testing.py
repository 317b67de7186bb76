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


def options(group):
    return [name for name in GROUPS[group].own if name not in ("file", "digits", "pretrained")]


@pytest.mark.parametrize("name", options("head"))
def test_heads(name):
    check_head(named("head", name))


@pytest.mark.parametrize("name", options("data"))
def test_data(name):
    check_data(named("data", name))


@pytest.mark.parametrize("name", options("model"))
def test_models(name):
    check_model(named("model", name))


@pytest.mark.parametrize("name", options("parameterization"))
def test_parameterizations(name):
    check_parameterization(named("parameterization", name))


def test_a_low_rank_parameterization():
    check_parameterization(KQ(m=2))


@pytest.mark.parametrize("name", options("loss"))
def test_losses(name):
    check_loss(named("loss", name))


@pytest.mark.parametrize(
    "name",
    [
        n if n in ("normalized_gd", "adam") else pytest.param(n, marks=pytest.mark.full)
        for n in options("optimizer")
        if n != "polyak"
    ],
)
def test_optimizers(name):
    path = {"radii": [1.0, 3.0]} if name == "regularization_path" else QUICK
    check_optimizer(named("optimizer", name, **path))


@pytest.mark.parametrize("name", PROBES.own)
def test_probes(name, tmp_path):
    np.save(tmp_path / "M.npy", np.eye(5))
    given = {"path": str(tmp_path / "M.npy")} if name == "distance" else {}
    check_probe(named("probe", name, **given), PROBES[name])


@pytest.mark.parametrize(
    ("group", "name"), [(g, n) for g in GROUPS for n in options(g)] + [("probe", n) for n in PROBES]
)
def test_configs(group, name):
    given = {"path": "M.npy"} if name == "distance" else {}
    check_config({**GROUPS, "probe": PROBES}[group][name], **given)


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


HEADS = {
    Sloped: "gradient: differs",
    Mixed: "depends on the batch",
    Global: "global random numbers",
    Single: "must be float64",
    Featured: "features: their sum",
}


@pytest.mark.parametrize("twin", HEADS)
def test_broken_heads(twin):
    with pytest.raises(AssertionError, match=HEADS[twin]):
        check_head(twin())


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
