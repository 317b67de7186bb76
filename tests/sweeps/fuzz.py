"""Random sweeps one step beside the named ones, from a seed: run, drawn and proved again."""

from __future__ import annotations

import random
import re
from pathlib import Path

from attnsvm.cli.help import experiments
from tests.command import attnsvm
from tests.pretrained.tiny import tiny

SWEEPS = """
rank_vs_d data={n:3,T:3},{n:3,T:4} data.d=2,5 / data={n:2,T:1}
correlation_vs_d data.d=4,6 / optimizer.gradient=direct
convergence_types data.d=4,8 / parameterization=kq
convergence_types_m parameterization.m=1,8 data.d=8 / parameterization.m=2
phase_transition data={n:2,T:2},{n:2,T:3},{n:3,T:2} data.d=2,4 / selection=optimal
generalisation data.signal=0.0,2.0 data.n=2,3 data.T=3 data.held_out=5 / data.n=3 \
    data.score_gap=0.0
gradient_floor optimizer.growth=0.0,0.05 / optimizer.growth=0.05
kq_plateau loss=logistic optimizer.init=uniform,small optimizer={lr:0.1},safe_gd / \
    optimizer=safe_gd
ridge_vs_path optimizer.ridge=0.0,1e-12 / optimizer.ridge=0.0
regularization_path optimizer.radii=[10.0,30.0] / optimizer.radii=[10.0]
token_count_vs_lambda head.lam=0.0,0.5 / head.lam=0.0
local_convergence / optimizer={gradient:direct,ridge:0.0}
sequence / model.causal=true
real_tokens data.n=3 / head.train=true
pretrained_heads data.transformer=TINY data.n=3 data.T=4 data.at_layer=0,1 data.at_head=0,2 \
    selection.attended=0.25 selection.negligible=0.25 / parameterization=kq optimizer.steps=20
optimizer_geometry optimizer={norm:spectral},muon,adam / optimizer={norm:l1}
optimizer_geometry_kq optimizer={norm:spectral},{norm:max},adam / optimizer=muon
mirror_descent optimizer={p:1.75,steps:30},{p:3.0,steps:60} / optimizer={p:2.0}
rank_of_weights data={n:2,T:2},{n:2,T:3} data.d=2,4 / data.d=3
rates optimizer=gd,normalized_gd optimizer.steps=1000 / optimizer=gd
depth data.n=2 data.T=3 data.d=5 model.layers=1,2 / model.residual=false
depth_precision data.n=2 data.T=3 data.d=5 model.layers=1,2 / optimizer.gradient=direct
heads data.n=2 data.T=3 data.d=5 model.layers=1 model.heads=1,2 / model.values=identity
joint data.n=2 data.T=3 data.d=5 model.trained=attention,all model.mlp=2 / model.trained=all
composition data.n=2 data.T=3 data.d=5 model.layers=1,2 / model.readout=every
trajectories / data=sphere data.n=2 data.T=3 data.d=2
- data.n=3 data.T=3 data.d=4 / data.T=1
"""
"""Name of a sweep, the smallest grid that still has two values on each axis, and what narrows it to
one value on an axis, or to another option; "-" is ad hoc, TINY a model of random weights."""

NEW_AXES = """
optimizer.lr=0.1,0.10001 | optimizer.lr=0.01,1.0 | optimizer.growth=0.0,0.1 |
optimizer.init=zero,small | optimizer.init=small optimizer.init_scale=0.01,1.0 |
optimizer.schedule=linear,geometric optimizer.growth=0.01 | optimizer.record_every=200,500 |
optimizer.record=linear,geometric | optimizer.ridge=0.0,1e-3 | optimizer.steps=0,20 |
optimizer.gradient=direct,log_domain | optimizer=gd,normalized_gd |
optimizer=adam optimizer.beta2=0.9,0.99 | optimizer=steepest optimizer.norm=max,l1.75 |
optimizer.schedule=decay optimizer.growth=0.1 optimizer.decay=0.5,1.0 |
optimizer=momentum optimizer.beta=0.5,0.9 | optimizer=mirror_descent optimizer.p=1.5,2,4 |
optimizer=mirror_descent optimizer.normalized=true,false | optimizer=sign_gd,polyak | data.n=2,4 |
data.T=2,3 | data.T=1,2 | data.d=1,3 | data=sphere,orthonormal | data.patch=2,4 |
parameterization=w,kq | parameterization.m=1,2 | head=linear,relu |
head=quadratic head.lam=0.0,0.3 | head=mlp head.width=2,4 | head.train=false,true |
model=cross_attention,self_attention | model=self_attention model.query=0,1 |
model=sequence model.causal=false,true | model=transformer model.layers=1,2 |
model=transformer model.residual=true,false model.heads=2 | loss=logistic,exponential |
loss=linear | selection.tokens=top,optimal,multi |
selection=multi selection.reject_all_positive=true,false | selection.saturation=0.5,0.999 |
selection.keep_stalled=true,false | svm.gap=1e-9,1e-6 | svm.rank_tolerance=1e-6,1e-3 |
svm.norms=[frobenius],[nuclear] | svm.norms=[nuclear] | svm.published=true,false | trials=1,3 |
seed=range(3) trials=3 | keep_path=true,false
"""
STATUSES = """
optimizer=gd optimizer.lr=1e308 | optimizer=gd optimizer.lr=1e150 |
optimizer.steps=0 optimizer.init=zero | optimizer.steps=30 optimizer.record_every=10 |
optimizer.lr=3.0 | selection.saturation=0.0 | selection.saturation=1.0 | data.d=1 | data.T=1 |
data.n=1 | trials=1 | svm.gap=1e-12
"""


def parsed(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


GRIDS: dict[str, dict[str, str]] = {}
ONE_VALUE: dict[str, dict[str, str]] = {}
for line in SWEEPS.replace("TINY", str(tiny("bert"))).strip().splitlines():
    given, _, narrowed = line.partition("/ ")
    name, _, grid = given.partition(" ")
    GRIDS[name.strip("-")], ONE_VALUE[name.strip("-")] = parsed(grid), parsed(narrowed)

AS_LONG = ("correlation_vs_d", "mirror_descent", "pretrained_heads", "rank_vs_d",
           "regularization_path")  # fmt: skip
"""Sweeps that do not train, whose grid has the steps, or that would reject all after a few."""


def miniature(name: str, trials: int, steps: int, every: int) -> dict[str, str]:
    """Return the overrides of a sweep with so many instances and steps of training."""
    given = {"trials": str(trials)}
    if name not in AS_LONG:
        given |= {"optimizer.steps": str(steps), "optimizer.record_every": str(every)}
    return given | GRIDS[name]


def combination(number: int) -> list[str]:
    """Return the arguments of the sweep `number`; about one in ten is not valid."""
    rng = random.Random(number)
    name = rng.choice([*experiments(), "", ""])
    given = miniature(name, 3, 1000, 250)
    if rng.random() < 0.4:
        given |= ONE_VALUE[name]
    for change in rng.sample(NEW_AXES.split("|"), rng.choice([0, 1, 1, 2])):
        given |= parsed(change)
    if rng.random() < 0.25:
        given |= parsed(rng.choice(STATUSES.split("|")))
    begin = [f"sweep={name}"] if name else ["-m"]
    return [*begin, *(f"{key}={value}" for key, value in given.items())]


def faults(arguments: list[str], folder: Path) -> list[str] | None:
    """Return what is wrong with the sweep of these arguments; None if it is refused with a reason.

    It must end without a traceback or a warning, with a report in which every figure is drawn, and
    with records that prove themselves.
    """
    done = attnsvm(*arguments, f"hydra.sweep.dir={folder}", cwd=folder.parent)
    code, told = done.returncode, done.stdout + done.stderr
    if code == 2 and re.search("^attnsvm: ", told, re.MULTILINE) and "Traceback" not in told:
        return None
    found = [] if code in (0, 1) else [f"exit code {code}"]
    found += [f"says {word!r}" for word in ("Traceback", "Warning", "not drawn") if word in told]
    if code == 1 and "attnsvm: " not in told:
        found.append("exit code 1 without a reason")
    if not (folder / "report.html").exists():
        return [*found, "no report", told[-1500:]]
    if not (any(folder.glob("figures/*.png")) and any(folder.glob("tables/*.csv"))):
        found.append("no figure or no table")
    proof = attnsvm(str(folder), cwd=folder.parent, command="attnsvm-verify")
    if proof.returncode != 0 or "Warning" in proof.stdout + proof.stderr:
        found.append(f"not proved: {(proof.stdout + proof.stderr)[-1500:]}")
    return [*found, told[-2500:]] if found else []
