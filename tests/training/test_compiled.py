"""The compiled kernel against the torch loop, step by step."""

from __future__ import annotations

import dataclasses
import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from inspect import getsource
from multiprocessing import get_context
from threading import Barrier, Event, Semaphore, Thread, Timer

import numpy as np
import pytest
import torch
from numba.core.caching import CacheImpl
from torch import Generator

from attnsvm.attention import Risk
from attnsvm.config.instantiate import named
from attnsvm.data import sample
from attnsvm.linalg import jit, one_thread
from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import matmul
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.training import train
from attnsvm.training.batch import parameterization_named
from attnsvm.training.compiled import applies, schedule
from attnsvm.training.compiled import loop as compiled_loop

pytestmark = pytest.mark.processors

SHAPE = {"n": 3, "T": 4, "d": 5, "trials": 11, "seed": 20}
FULL = pytest.mark.full
HEADS = pytest.mark.parametrize(
    "head", ["relu", *(pytest.param(head, marks=FULL) for head in ("linear", "quadratic"))]
)
RULES = pytest.mark.parametrize(
    ("parameterization", "m"), [("w", None), ("kq", None), pytest.param("kq", 2, marks=FULL)]
)
LOSSES = pytest.mark.parametrize(
    "loss",
    [
        "logistic",
        *(pytest.param(name, marks=FULL) for name in ("exponential", "linear", "squared")),
    ],
)


def ragged(batch):
    mask = torch.rand(batch.mask.shape, generator=Generator().manual_seed(3)) > 0.4
    mask[:, :, 0] = True
    return dataclasses.replace(batch, mask=mask)


def both(batch, *arguments, **options):
    return [train(batch, *arguments, compiled=compiled, **options) for compiled in (True, False)]


def assert_same(kernel, loop, tolerance=1e-12):
    error = (kernel.snapshots - loop.snapshots).norm(dim=(-2, -1))
    assert (error <= tolerance * loop.snapshots.norm(dim=(-2, -1))).all()


def test_the_kernel_compiles_where_numba_may_not_write(monkeypatch):
    def twice(x):
        return 2 * x

    assert compiled()(twice).stats.cache_path  # here it may
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert compiled()(twice)(21) == 42


def test_compiled_code_is_filed_under_all_that_it_is_made_of(monkeypatch):
    """Else a change of another file than the function's would leave the old code in use."""

    def twice(x):
        return 2 * x

    def name(*included):
        return compiled(*included)(twice).py_func.__qualname__

    filed = name(matmul, 1.0)
    assert filed.startswith("twice_")
    assert name(matmul, 1.0) == filed
    assert name(matmul, 2.0) != filed
    monkeypatch.setattr(jit, "getsource", lambda module: getsource(module) + "# edited")
    assert name(matmul, 1.0) != filed


TWO = """
from attnsvm.linalg.jit import compiled

@compiled()
def inner(x):
    return x + 1

@compiled()
def outer(x):
    return inner(x) * 2
"""


def test_compilation_is_announced_once_and_loading_is_not(tmp_path, caplog):
    (tmp_path / "two.py").write_text(TWO)
    for told in (["compiling the test"], []):  # the second time from disk, in new dispatchers
        spec = spec_from_file_location("two", tmp_path / "two.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for _ in range(2):
            with jit.announced("test"):
                assert module.outer(1) == 4
        assert [r.getMessage().split(" for ")[0] for r in caplog.records] == told
        caplog.clear()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("blocks", [1, 13])
@pytest.mark.parametrize("steps", [1, 100])
def test_threads_share_the_steps_evenly_and_wait_only_for_what_is_begun_first(
    blocks, threads, steps
):
    found = schedule.shares(blocks, threads, steps)
    taken = np.zeros((blocks, steps), int)
    for first, last, begin, end in (share for mine in found for share in mine):
        taken[first:last, begin:end] += 1
    assert (taken == 1).all()
    work = [
        sum((last - first) * (end - begin) for first, last, begin, end in mine) for mine in found
    ]
    assert max(work) - min(work) <= 2
    begun_first = {(first, end) for first, _, _, end in (mine[0] for mine in found)}
    for mine in found:
        assert all(share.begin == 0 for share in mine[:-1])
        assert mine[-1].begin == 0 or (mine[-1].first, mine[-1].begin) in begun_first


def test_what_an_exception_ends_leaves_no_steps_behind(monkeypatch):
    """The first snapshot raises while the first share of the steps is taken: no other one is."""
    batch, begun, entered, over = sample(**SHAPE), [], Semaphore(0), Event()
    threads = torch.get_num_threads()

    def take(loop, first, last, etas, stops, at):
        if last > first:  # else it is only compiled
            begun.append(first)
            entered.release()
            assert over.wait(60)

    def fail(done):
        assert all(entered.acquire(timeout=60) for _ in range(threads))
        Timer(0.1, over.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(compiled_loop._Loop, "take_steps", take)
    monkeypatch.setattr(schedule, "SHARE", 1)
    with pytest.raises(KeyboardInterrupt):
        train(batch.take(torch.arange(11).repeat(8)), steps=1000, progress=fail)
    assert len(begun) == threads
    assert torch.get_num_threads() == threads


@FULL
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_trains_with_threads_of_its_own():
    """Without them it would wait for threads of its parent."""
    batch = sample(**SHAPE)
    W = train(batch, steps=3).W
    child = get_context("fork").Process(
        target=lambda: sys.exit(0 if torch.equal(train(batch, steps=3).W, W) else 3)
    )
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0


@FULL
def test_trainings_in_two_threads_leave_torch_its_threads():
    batch, entered, seen = sample(**SHAPE), Barrier(2), []

    def work(steps):
        def meet(done):
            if not done:
                entered.wait(60)

        train(batch, steps=steps, progress=meet)

    def look():
        seen.append(torch.get_num_threads())

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for functions in ([lambda: work(10), lambda: work(3000)], [look]):
            running = [Thread(target=function) for function in functions]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
        assert seen == [3]
    finally:
        torch.set_num_threads(threads)


def test_lanes_hold_every_instance_once():
    for B, blocks in ((11, 2), (16, 2), (3, 1)):
        tensor = torch.arange(B * 6, dtype=torch.float64).view(B, 2, 3)
        lanes = blocks_of(tensor)
        assert lanes.shape == (blocks, 2, 3)
        assert of_blocks(lanes, B).equal(tensor)
        filled = of_blocks(lanes, 8 * blocks)[B:]
        assert filled.equal(tensor[-1:].expand_as(filled))  # any instance will do


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
        torch.set_num_threads(3)
        assert_same(train(batch, parameterization, **options), whole)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    for some in ([0], [4], [5], [6], [2, 7], [3, 1, *range(8, 19)]):
        alone = train(batch.take(torch.tensor(some)), parameterization, **options)
        for name in ("snapshots", "loss", "softmax", "direction_error"):
            expected = getattr(whole, name)[some]
            torch.testing.assert_close(getattr(alone, name), expected, rtol=1e-12, atol=1e-12)


@HEADS
@RULES
@LOSSES
def test_one_step_is_that_of_torch(head, parameterization, m, loss):
    batch = ragged(sample(head=head, **SHAPE))
    for optimizer in ("normalized_gd", "gd"):
        for ridge in (0.0, 1e-3):
            paths = both(
                batch, parameterization, optimizer, loss, m=m, ridge=ridge, steps=1, lr=0.3
            )
            assert_same(*paths)


@RULES
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize(("n", "T", "d"), [(1, 1, 2), (1, 5, 2), (9, 6, 4), (3, 5, 7), (5, 4, 20)])
def test_one_step_at_odd_sizes(n, T, d, ridge, parameterization, m):
    """Also more dimensions than tokens: training in their span is training."""
    options = {"steps": 1, "lr": 0.3, "ridge": ridge, "m": m}
    batch = sample(head="relu", n=n, T=T, d=d, trials=9)
    assert_same(*both(batch, parameterization, **options))
    assert_same(*both(ragged(batch), parameterization, **options))


@RULES
def test_the_kernel_finds_finite_minima_copies_and_gradients_of_zero(parameterization, m):
    """Both samples with the tokens +-v, one query and opposite labels: the risk is least at W = 0.

    Then two equal tokens, and instances as they are drawn.
    """
    batch = sample(n=2, T=2, d=3, trials=19)
    X, Y, Z = batch.X.clone(), batch.Y.clone(), batch.Z.clone()
    v = batch.head_parameters["v"][:9, None]
    X[:9, :, 0], X[:9, :, 1], Z[:9, 1] = v, -v, Z[:9, 0]
    Y[:9, 0], Y[:9, 1] = 1.0, -1.0
    X[9:12, :, 1] = X[9:12, :, 0]
    batch = dataclasses.replace(batch, X=X, Y=Y, Z=Z)
    options = {"m": m, "steps": 20_000, "lr": 0.5, "record_every": 20_000}
    path = train(batch, parameterization, "gd", **options)
    assert path.finite_optimum[:12].all()
    assert not path.finite_optimum[12:].any()
    assert (path.direction_error[9:12] == 0).all()


@RULES
@pytest.mark.parametrize("steps", [200, 2000])
def test_minima_are_seen_while_the_gradient_sinks_into_rounding(steps, parameterization, m):
    """The minimum is at W = 0 in all that the gradient sees; the rest of W never changes."""
    batch = sample(n=2, T=2, d=10, trials=32)
    X, Y, Z, v = batch.X.clone(), batch.Y.clone(), batch.Z.clone(), batch.head_parameters["v"]
    X[:, :, 0], X[:, :, 1], Z[:, 1] = v[:, None], -v[:, None], Z[:, 0]
    Y[:, 0], Y[:, 1] = 1.0, -1.0
    batch = dataclasses.replace(batch, X=X, Y=Y, Z=Z)
    options = {"m": m, "steps": steps, "lr": 0.5, "record_every": steps}
    kernel, loop = both(batch, parameterization, "gd", **options)
    near = kernel.loss[:, -1] - math.log(2) < 1e-12
    assert near.any() or steps < 2000
    assert kernel.finite_optimum[near].all()
    assert loop.finite_optimum[near].all()


@HEADS
@RULES
def test_a_late_step_is_that_of_torch(head, parameterization, m):
    """From a state on the way; whole paths may differ, where steps overshoot and amplify bits."""
    batch = ragged(sample(head=head, **SHAPE))
    path = train(batch, parameterization, m=m, steps=300, growth=0.01)
    init = path.W if path.K is None else (path.K, path.Q)
    for lr in (0.1, 3.0):
        assert_same(*both(batch, parameterization, m=m, init=init, steps=1, lr=lr))


@HEADS
@LOSSES
@pytest.mark.parametrize("optimizer", ["normalized_gd", "gd"])
def test_one_published_step_is_that_of_torch(head, loss, optimizer):
    batch = ragged(sample(head=head, **SHAPE))
    options = {"gradient": "direct", "steps": 1, "lr": 0.3}
    assert_same(*both(batch, "w", optimizer, loss, **options))
    late = train(batch, "w", optimizer, loss, gradient="direct", steps=40).W
    assert_same(*both(batch, "w", optimizer, loss, init=late, **options))


@FULL
def test_the_published_steps_stall_in_the_kernel_as_in_torch():
    """Once all attention is on one token the published gradient is zero or noise, in both."""
    batch = sample(**SHAPE)
    kernel, loop = both(batch, gradient="direct", steps=1500)
    exact = train(batch, steps=1500)
    norms = [path.W.norm(dim=(1, 2)) for path in (kernel, loop, exact)]
    assert (norms[0] < 0.9 * norms[2]).any()
    torch.testing.assert_close(norms[0], norms[1], rtol=0.1, atol=0)


def test_many_steps_of_w_are_those_of_torch():
    batch = sample(**SHAPE)
    kernel, loop = both(batch, steps=500, record_every=50)
    assert_same(kernel, loop, 1e-12 * 500)
    torch.testing.assert_close(kernel.loss, loop.loss, rtol=1e-10, atol=1e-14)


@RULES
def test_a_saturated_step_is_that_of_torch(parameterization, m):
    batch = sample(**SHAPE)
    rule = parameterization_named(parameterization, m)
    size = 1e4 if parameterization == "w" else 1e2
    init = tuple(size * V for V in rule.init("uniform", 1.0, batch.seeds, batch.d))
    moved = []
    for path in both(batch, parameterization, m=m, init=init, steps=1, lr=1.0, growth=0.0):
        variables = (path.W,) if path.K is None else (path.K, path.Q)
        moved.append([V - V0 for V, V0 in zip(variables, init, strict=True)])
    for taken, loop in zip(*moved, strict=True):
        torch.testing.assert_close(taken, loop, rtol=0, atol=1e-9 * size**0.5)


def test_the_kernel_knows_where_it_does_not_apply():
    batch = sample(**SHAPE)

    def risk(head="linear", parameterization="w"):
        rule = parameterization_named(parameterization, None)
        return Risk(sample(head=head, **SHAPE), rule, named("loss", "logistic"))

    assert applies(risk(), named("optimizer", "gd"))
    assert not applies(risk(), named("optimizer", "adam"))
    published = named("optimizer", "normalized_gd", gradient="direct")
    assert applies(risk(), published)
    assert not applies(risk(parameterization="kq"), published)
    assert not applies(risk(), named("optimizer", "gd", gradient="direct", ridge=1e-3))
    assert not applies(risk("mlp"), named("optimizer", "gd"))
    batch.head.train = True
    trained = Risk(batch, parameterization_named("w", None), named("loss", "logistic"))
    assert not applies(trained, named("optimizer", "gd"))


@FULL
@pytest.mark.parametrize("parameterization", ["w", "kq"])
@pytest.mark.parametrize(
    ("loss", "c", "limit"),
    [
        ("exponential", 2000, "exponential"),
        ("exponential", -2000, "exponential"),
        ("logistic", 2000, "exponential"),
        ("logistic", -2000, "linear"),
    ],
)
@pytest.mark.parametrize("kernel", [True, False])
def test_tokens_far_along_the_head_leave_the_same_steps(parameterization, loss, c, limit, kernel):
    """Tokens + c v add c to every margin and nothing to the attention: l' falls by e^-c alone."""
    near = sample(**SHAPE)
    near = dataclasses.replace(near, Y=torch.ones_like(near.Y))
    v = near.head_parameters["v"]
    far = dataclasses.replace(near, X=near.X + c * v[:, None, None])
    settings = {"steps": 20, "compiled": kernel, "init": "zero"}
    expected = train(near, parameterization, loss=limit, **settings)
    found = train(far, parameterization, loss=loss, **settings)
    assert found.W.norm(dim=(1, 2)).min() > 0.1
    torch.testing.assert_close(found.W, expected.W, rtol=1e-7, atol=1e-9)


def test_blocks_of_one_thread_may_be_nested():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with one_thread() as outside:
            with one_thread() as again:
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        assert (outside, again, torch.get_num_threads()) == (3, 3, 3)
    finally:
        torch.set_num_threads(threads)
