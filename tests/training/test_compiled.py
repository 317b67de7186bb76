"""The compiled loop against the torch loop, step by step, for every rule of steps."""

import dataclasses

import pytest
import torch

from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.training import train, uncompiled
from tests.quick import quick
from tests.training.test_training import ragged, risk_of

pytestmark = pytest.mark.processors

SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 11, "seed": 20}
FULL = pytest.mark.full

HEADS = pytest.mark.parametrize("head", quick("relu", "linear", "quadratic"))
LOSSES = pytest.mark.parametrize("loss", quick("logistic", "exponential", "linear", "squared"))
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
    ("sign_gd", {}),
    ("momentum", {"beta": 0.7, "nesterov": True}),
    ("normalized_gd", {"batch": 1, "weight_decay": 0.5}),
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


@HEADS
@RULES
@LOSSES
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


@RULES
@pytest.mark.parametrize(
    "options",
    [
        {"ridge": 0.0},
        {"ridge": 1e-3},
        *(
            pytest.param({"optimizer": "steepest", "norm": norm, "beta": 0.8}, marks=FULL)
            for norm in NORMS
        ),
    ],
)
@pytest.mark.parametrize(("n", "T", "d"), [(1, 1, 2), (1, 5, 2), (9, 6, 4), (3, 5, 7), (5, 4, 20)])
def test_steps_at_odd_sizes(n, T, d, options, parameterization, m):
    """More queries than dimensions; more dimensions than tokens, which is training in the span."""
    batch = sample(head="relu", n=n, T=T, d=d, trials=9)
    steps = {"m": m, "steps": 2, "lr": 0.05, "record_every": 1, "tolerance": 1e-11}
    for instances in (batch, ragged(batch)):
        assert_same(instances, parameterization, **steps, **options)


def test_many_steps_of_w_are_those_of_torch():
    kernel, loop = assert_same(sample(**SHAPE), steps=500, record_every=50, tolerance=5e-10)
    torch.testing.assert_close(kernel.loss, loop.loss, rtol=1e-10, atol=1e-14)
    batch = sample("token_graph", T=2, trials=9)
    path, _ = assert_same(batch, steps=300, loss="log", tolerance=5e-10)
    assert_same(batch, init=path.W, loss="log", gradient="direct", steps=1)  # not the exact one


@RULES
@pytest.mark.parametrize("steps", [0, 100, 600])
def test_a_step_of_next_tokens_is_that_of_torch(steps, parameterization, m):
    """Until attention underflows; one sample has its label alone; (K, Q) go by their product."""
    batch = sample("token_graph", n=12, T=4, K=4, d=4, trials=11)
    labels, v = batch.head_parameters["v"], batch.head_parameters["v"][:, 1]
    X, mask = batch.X.clone(), ragged(batch).mask | (batch.scores() > 0.5)
    X[:, 1], labels[:, 1] = v[:, None], v
    batch = dataclasses.replace(batch, X=X, mask=mask)
    path = train(batch, parameterization, "normalized_gd", "log", m=m, steps=steps)
    far = 50.0 if steps == 600 and path.K is None else 1.0
    step = {"init": weights(path, far), "steps": 1, "lr": 1.0, "m": m, "tolerance": 1e-11}
    for name in ("gd", "normalized_gd"):
        assert_same(batch, parameterization, name, "log", **step)


@RULES
def test_samples_without_a_gradient_hide_no_others(parameterization, m):
    """The attention of the second sample underflows; momentum would keep a wrong scale."""
    batch = sample("token_graph", n=2, T=60, K=8, d=8, trials=9)
    batch = dataclasses.replace(batch, Z=batch.Z * torch.tensor([[0.0], [1.0]]))
    path = train(batch, parameterization, "normalized_gd", "log", m=m, steps=200)
    steps = {"norm": "frobenius", "init": weights(path, 1e3), "steps": 2, "lr": 0.3, "m": m}
    for beta in (0.0, 0.9):
        moved, _ = assert_same(batch, parameterization, "steepest", "log", beta=beta, **steps)
        assert (moved.W != moved.snapshots[:, 0]).flatten(1).any(1).all()


def test_a_label_with_hardly_any_attention_depends_on_no_neighbour():
    batch = sample("token_graph", n=12, K=5, d=6, trials=9)
    init, X = -2 * train(batch, loss="log", steps=200).W, batch.X.clone()
    kernel, _ = assert_same(batch, "w", "gd", "log", init=init, steps=5, tolerance=1e-11)
    X[8] /= 2  # whose scores are not 0 and 1
    other = train(dataclasses.replace(batch, X=X), "w", "gd", "log", init=init, steps=5)
    torch.testing.assert_close(other.W[:8], kernel.W[:8], rtol=1e-11, atol=1e-11)


@RULES
def test_copies_of_a_token_have_no_gradient(parameterization, m):
    batch = sample(n=2, T=2, d=3, trials=19)
    batch.X[9:12, :, 1] = batch.X[9:12, :, 0]
    path = train(batch, parameterization, "gd", m=m, steps=2000, lr=0.5, record_every=2000)
    assert path.finite_optimum.nonzero()[:, 0].tolist() == [9, 10, 11]
    assert (path.direction_error[9:12] == 0).all()


@RULES
@pytest.mark.parametrize("ridge", [1e-2, pytest.param(0.0, marks=FULL)])
@pytest.mark.parametrize("stepper", STEPPERS)
def test_a_few_steps_are_those_of_torch(stepper, ridge, parameterization, m):
    name, fields = stepper
    options = {"m": m, "ridge": ridge, "steps": 4, "record_every": 1, "lr": 0.05}
    batch = ragged(sample(**SHAPE))
    assert_same(batch, parameterization, name, tolerance=1e-11, **options, **fields)


@pytest.mark.parametrize(
    ("norm", "options"),
    [
        *((norm, {"steps": 1, "lr": 1e3}) for norm in NORMS),
        ("frobenius", {"beta": 0.9, "steps": 50, "record_every": 10}),
    ],
)
def test_a_late_step_in_a_norm_is_that_of_torch(norm, options):
    """Where gradients and momenta underflow; whole paths differ, as steps overshoot."""
    batch = sample(**SHAPE)
    batch.X[4] = batch.X[4, :, :1]  # no gradient
    late = 3e3 * train(batch, optimizer="steepest", norm=norm, steps=300).W
    kernel, _ = assert_same(
        batch, optimizer="steepest", norm=norm, init=late, tolerance=1e-11, **options
    )
    moved = (kernel.W - late).norm(dim=(1, 2))
    assert moved[4] == 0
    assert (moved > 0.1).sum() == 10


class Slower(type(named("optimizer", "gd"))):
    """A plug-in's optimizer, which inherits what compiled code knows of another one."""


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", ["gd", "muon", "adam", "steepest", "sign_gd", "polyak", "slower"])
def test_the_loop_knows_where_it_applies(name, trained):
    """Else both trainings of the tests above would be those of the torch loop."""
    batch = sample(head="relu", **SHAPE)
    batch.head.train = trained
    rule = Slower() if name == "slower" else named("optimizer", name)
    unknown = f"optimizer {name.title()}" if name in ("polyak", "slower") else ""
    assert uncompiled(risk_of(batch), rule) == (unknown or "the training of a head" * trained)
