"""The compiled loop against the torch loop, step by step, for every rule of steps."""

import dataclasses

import pytest
import torch

from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.training import train, uncompiled
from tests.quick import quick, quick_rows
from tests.training.test_training import ragged, risk_of

pytestmark = pytest.mark.processors

SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 11, "seed": 20}
FULL = pytest.mark.full

NORMS = ["frobenius", "max", "l1", "spectral", "nuclear"]
RULES = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), pytest.param("kq", 2, marks=FULL)]
)
STEPPERS = quick(
    ("steepest", {"norm": "spectral", "beta": 0.9, "nesterov": True}),
    ("muon", {"polynomial": "polar_express"}),
    ("adam", {"batch": 2, "weight_decay": 0.5}),
    *(("steepest", {"norm": norm, "beta": beta}) for norm in NORMS for beta in (0.0, 0.8)),
    ("muon", {"newton_schulz_steps": 2, "beta": 0.0}),
    ("muon", {"polynomial": "exact"}),
    ("sign_gd", {"weight_decay": 0.5}),
    ("steepest", {"norm": "spectral+max", "beta": 0.9}),
    ("momentum", {"beta": 0.7, "nesterov": True}),
    ("normalized_gd", {"batch": 1, "weight_decay": 0.5}),
    ("normalized_gd", {}),
    count=3,
)


def assert_same(batch, /, *arguments, tolerance=1e-12, **options):
    """Check that compiled and torch loop have the same weights in every snapshot."""
    kernel, loop = (train(batch, *arguments, compiled=how, **options) for how in (True, False))
    size = loop.snapshots.norm(dim=(-2, -1))
    assert ((kernel.snapshots - loop.snapshots).norm(dim=(-2, -1)) <= tolerance * size).all()
    return kernel, loop


def test_an_interrupt_ends_a_training_without_end():
    batch, threads = sample(**SHAPE), torch.get_num_threads()

    def fail(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(batch, steps=10**9, record_every=10**9, progress=fail)
    assert torch.get_num_threads() == threads


@RULES
def test_numbers_depend_on_neither_batch_nor_threads_nor_neighbours(parameterization, m):
    batch = sample(n=2, T=7, d=9, trials=19)
    X, Z, mask = batch.X.clone(), batch.Z.clone(), batch.mask.clone()
    best = batch.scores().argmax(-1)[:, 0]
    for k in (0, 3, 9):
        X[k, 0, (best[k] + 1) % 7] = X[k, 0, best[k]]
    X[4], Z[5, 0], mask[6, 0, 1:] = X[4, :, :1], 0, False
    batch = dataclasses.replace(batch, X=X, Z=Z, mask=mask)
    options = {"m": m, "steps": 60, "record_every": 20}
    whole = train(batch, parameterization, **options)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # which share the second of three blocks
        again = train(batch, parameterization, **options).snapshots
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(again, whole.snapshots, rtol=1e-12, atol=1e-12)
    for some in ([0], [4], [5], [6], [2, 7], [3, 1, *range(8, 19)]):
        alone = train(batch.take(torch.tensor(some)), parameterization, **options)
        for name in ("snapshots", "loss", "softmax", "direction_error"):
            expected = getattr(whole, name)[some]
            torch.testing.assert_close(getattr(alone, name), expected, rtol=1e-12, atol=1e-12)


def weights(path, factor=1.0):
    """Return the last weights as the start of a training: W, or K and Q, times a factor."""
    return factor * path.W if path.K is None else (factor * path.K, path.Q)


@RULES
@pytest.mark.parametrize(
    ("head", "loss"),
    quick_rows(
        ("relu", "logistic"),
        ("linear", "exponential"),
        ("quadratic", "linear"),
        ("relu", "squared"),
        ("quadratic", "logistic"),
    ),
)
def test_a_step_is_that_of_torch(head, parameterization, m, loss):
    """From states on the way too; whole paths may differ where steps overshoot, amplifying bits."""
    batch = ragged(sample(head=head, **SHAPE))
    late = weights(train(batch, parameterization, m=m, steps=300, growth=0.01))
    early = {"gradient": "direct", "init": train(batch, gradient="direct", steps=40).W}
    cases = [{}, {"ridge": 1e-3}, {"init": late}, {"init": late, "lr": 3.0}]
    for optimizer in ("normalized_gd", "gd"):
        for case in [*cases, *[{"gradient": "direct"}, early] * (parameterization == "w")]:
            options = {"m": m, "steps": 1, "lr": 0.3, **case}
            assert_same(batch, parameterization, optimizer, loss, **options)


def next_tokens():
    """One sample has its label alone; (K, Q) go by their product."""
    batch = sample("token_graph", n=12, T=4, K=4, d=4, trials=11)
    labels, v = batch.head_parameters["v"], batch.head_parameters["v"][:, 1]
    X, mask = batch.X.clone(), ragged(batch).mask | (batch.scores() > 0.5)
    X[:, 1], labels[:, 1] = v[:, None], v
    return dataclasses.replace(batch, X=X, mask=mask)


def one_without_a_query():
    """The attention of the second sample underflows; momentum would keep a wrong scale."""
    batch = sample("token_graph", n=2, T=60, K=8, d=8, trials=9)
    return dataclasses.replace(batch, Z=batch.Z * torch.tensor([[0.0], [1.0]]))


LABELS = [
    *((next_tokens, name, {"lr": 1.0}, 0, 1.0) for name in ("gd", "normalized_gd")),
    *((next_tokens, name, {"lr": 1.0}, 600, 50.0) for name in ("gd", "normalized_gd")),
    (next_tokens, "gd", {"steps": 5}, 200, -1.0),  # labels with hardly any attention
    *((one_without_a_query, "steepest", {"beta": beta}, 200, 1e3) for beta in (0.0, 0.9)),
]


@RULES
@pytest.mark.parametrize(("draw", "name", "options", "before", "far"), LABELS)
def test_steps_of_labels_are_those_of_torch(draw, name, options, before, far, parameterization, m):
    """From the start until attention underflows."""
    batch = draw()
    path = train(batch, parameterization, "normalized_gd", "log", m=m, steps=before)
    far = 1.0 if draw is next_tokens and path.K is not None else far
    step = {"init": weights(path, far), "steps": 2, "m": m, "lr": 0.3, "tolerance": 1e-11}
    moved, _ = assert_same(batch, parameterization, name, "log", **step | options)
    if name == "steepest":
        assert (moved.W != moved.snapshots[:, 0]).flatten(1).any(1).all()
    if parameterization == "w":  # not the exact gradient
        assert_same(batch, loss="log", gradient="direct", steps=1)


@RULES
@pytest.mark.parametrize("shape", quick((3, 4, 5), (9, 6, 4), (5, 4, 20), (2, 1, 2)))
@pytest.mark.parametrize("stepper", STEPPERS)
def test_steps_of_every_rule_are_those_of_torch(stepper, shape, parameterization, m):
    """With more queries than dimensions, in the span of the tokens, and without a gradient.

    And where gradients and momenta underflow; whole paths differ there, as steps overshoot.
    """
    (name, fields), (n, T, d) = stepper, shape
    batch = ragged(sample(head="relu", n=n, T=T, d=d, trials=11, seed=20))
    batch.X[4] = batch.X[4, :, :1]
    if "+" in fields.get("norm", "") and parameterization == "kq":
        pytest.skip("only W has a bias")
    options = {"m": m, "tolerance": 1e-11, **fields}
    for ridge in (0.0, 1e-2):
        steps = {"steps": 4 if d == 5 else 2, "record_every": 1, "lr": 0.05}
        assert_same(batch, parameterization, name, ridge=ridge, **steps, **options)
    if name != "steepest" or parameterization == "kq" or d != 5:
        return
    late = 3e3 * train(batch, optimizer=name, steps=300, **fields).W
    kernel, _ = assert_same(batch, optimizer=name, init=late, steps=1, lr=1e3, **options)
    moved = (kernel.W - late).norm(dim=(1, 2))
    assert moved[4] == 0
    assert (moved > 0.1).sum() >= 8


class Slower(type(named("optimizer", "gd"))):
    """A plug-in's optimizer, which inherits what compiled code knows of another one."""


def test_the_loop_knows_where_it_applies():
    """Else both trainings of the tests above would be those of the torch loop."""
    risk = risk_of(sample(head="relu", **SHAPE))
    for name in ("gd", "muon", "adam", "steepest", "sign_gd"):
        assert not uncompiled(risk, named("optimizer", name))
    for rule in (Slower(), named("optimizer", "polyak")):
        assert uncompiled(risk, rule) == f"optimizer {type(rule).__name__}"
    risk.batch.head.train = True
    assert uncompiled(risk, named("optimizer", "gd")) == "the training of a head"
