"""Checks for the tests of a plug-in: what attnsvm relies on in each kind of option.

Each function raises AssertionError, which says what does not hold. In a test of yours::

    from attnsvm.testing import check_config, check_head

    def test_my_head():
        check_head(MyHead(power=3))
        check_config(MyHeadConfig, power=3)
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Generator, Tensor

from attnsvm.config.instantiate import instantiate
from attnsvm.config.probe import ProbeConfig
from attnsvm.config.run import ALL_GROUPS
from attnsvm.config.sources import package_of
from attnsvm.data import Data, sample
from attnsvm.head import Head, Linear
from attnsvm.loss import Logistic, Loss
from attnsvm.model import CrossAttention, Model
from attnsvm.optimizer import Optimizer
from attnsvm.parameterization import KQ, Parameterization, W
from attnsvm.probe import Probe, Snapshot, measured
from attnsvm.selection import optimal_tokens
from attnsvm.svm import solve_svm
from attnsvm.training import train

SLOPE = 1e-6
"""Largest relative difference between a gradient and that of autograd."""

SAME = 1e-12
"""Largest relative difference between an instance in a batch and alone."""


def check_config(schema: type, **fields: Any) -> None:
    """Check that a config survives YAML, and that its object keeps the value of every field.

    Parameters
    ----------
    schema : type
        The dataclass of an option.
    **fields
        Values that are not the defaults.
    """
    config = schema(**fields)
    written = OmegaConf.create(OmegaConf.to_yaml(OmegaConf.structured(config)))
    read = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), written))
    assert read == config, f"{schema.__name__}: is {read} after YAML, was {config}"
    group = next(name for name, options in ALL_GROUPS.items() if issubclass(schema, options.base))
    option = instantiate(config, group, [package_of(config._target_)])
    for f in dataclasses.fields(schema):
        if f.name != "_target_":
            kept, value = getattr(option, f.name, None), getattr(config, f.name)
            kept = list(kept) if isinstance(value, list) and kept else kept
            assert kept == value, f"{type(option).__name__}.{f.name}: is {kept}, must be {value}"


def check_head(head: Head, d: int = 5) -> None:
    """Check draws, shapes, gradients against autograd, batches, features and device."""
    with _no_global_draws("draw"):
        drawn = [head.draw(Generator().manual_seed(seed), d) for seed in (0, 1, 2, 3, 3)]
    for name, p in drawn[3].items():
        assert p.dtype == torch.float64, f"draw: {name} is {p.dtype}, must be float64"
        assert p.equal(drawn[4][name]), f"draw: {name} is another one with the same generator"
    parameters = {name: torch.stack([p[name] for p in drawn[:4]]) for name in drawn[0]}
    o, weights = _random(4, 3, d), _random(4, 3)
    for points in (o[:, 0], o, o[:, :, None].expand(4, 3, 2, d)):
        value = head.value(points, parameters)
        assert value.shape == points.shape[:-1], f"value: shape {tuple(value.shape)}"
        for b in range(4):
            alone = head.value(points[[b]], {name: p[[b]] for name, p in parameters.items()})
            _close(alone, value[[b]], SAME, "value: depends on the batch")
        slope = Head.gradient(head, points, parameters)
        _close(head.gradient(points, parameters), slope, SLOPE, "gradient: differs from autograd")
    trained = head.parameter_gradient(o, parameters, weights)
    for name, p in Head.parameter_gradient(head, o, parameters, weights).items():
        _close(trained[name], p, SLOPE, f"parameter_gradient of {name}: differs from autograd")
    X = _random(4, 3, 2, d, seed=1)
    if (described := head.features(X, parameters)) is not None:
        p, (alpha, beta, rho) = described
        total = (alpha * p + beta * p.square() / 2 + rho * p.clamp(min=0)).sum(-1)
        _close(total, head.value(X, parameters), SAME, "features: their sum is not the head")
    elsewhere = {name: p.to("meta") for name, p in parameters.items()}
    for method in (head.value, head.gradient):
        device = method(o.to("meta"), elsewhere).device
        assert device.type == "meta", f"{method.__name__}: on {device}, must be on its input's"


def check_data(data: Data, head: Head | None = None, model: Model | None = None) -> None:
    """Check that instance i is that of seed + i, whatever is drawn with it and before it."""
    options = head or Linear(), model or CrossAttention()
    with _no_global_draws("sample"):
        batch = data.sample(*options, 4, 7)
    assert batch.seeds.tolist() == [7, 8, 9, 10][: batch.B], f"sample: seeds {batch.seeds}"
    if data.sample(*options, 1, 7).B == batch.B:  # whatever number is requested
        return
    for b in range(batch.B):
        _same_instance(data.sample(*options, 1, 7 + b), batch, b, "sample")


def check_model(model: Model, n: int = 3, T: int = 4, d: int = 5) -> None:
    """Check shapes, that no masked token becomes admissible, and batches."""
    shape = (2, *model.label_shape(n, T))
    X, Z, Y = _random(2, n, T, d), _random(2, n, d, seed=1), _random(*shape, seed=2).sign()
    mask = torch.ones(2, n, T, dtype=torch.bool)
    mask[:, 0, -1] = False
    for allowed, of_second in ((None, None), (mask, mask[1:])):
        samples = model.expand(X, Z, Y, allowed)
        B, N, tokens, width = samples.X.shape
        must = {"Z": (B, N, width), "Y": (B, N), "mask": (B, N, tokens)}
        shapes = {name: tuple(getattr(samples, name).shape) for name in must}
        assert shapes == must, f"expand: shapes {shapes}, must be {must}"
        assert samples.mask.dtype == torch.bool, f"expand: mask is {samples.mask.dtype}"
        assert samples.mask.any(-1).all(), "expand: a sample without admissible token"
        _same_instance(model.expand(X[1:], Z[1:], Y[1:], of_second), samples, 1, "expand")
    seen = (samples.X[0] == X[0, 0, -1]).all(-1) & samples.mask[0]
    assert not seen.any(), "expand: a masked token is admissible"


def check_parameterization(rule: Parameterization, d: int = 5) -> None:
    """Check W, queries, the chain rule against autograd, initial weights and rank."""
    seeds = torch.arange(4)
    start = rule.init("uniform", 1.0, seeds, d)
    shapes = tuple(tuple(V.shape[1:]) for V in start)
    assert shapes == rule.shapes(d), f"init: shapes {shapes}, must be {rule.shapes(d)}"
    weights, Z, P = rule.combine(start), _random(4, 3, d), _random(4, 3, d, seed=1)
    assert weights.shape == (4, d, d), f"combine: shape {tuple(weights.shape)}"
    _close(rule.query(start, Z), Z @ weights.mT, SAME, "query: is not W z")
    assert not rule.combine(rule.init("zero", 1.0, seeds, d)).any(), "zero: W is not 0"
    slopes = _slopes(lambda *variables: P * (Z @ rule.combine(variables).mT), *start)
    for name, V, slope in zip(rule.NAMES, rule.pullback(start, P, Z), slopes, strict=True):
        _close(V, slope, SLOPE, f"pullback of {name}: differs from autograd")
    rank = torch.linalg.matrix_rank(weights).max()
    assert rank <= rule.max_rank(d), f"max_rank: {rule.max_rank(d)}, but W has rank {rank}"
    alone = rule.init("uniform", 1.0, seeds[2:3], d)
    _close(rule.combine(alone)[0], weights[2], SAME, "init: depends on the other instances")


def check_loss(loss: Loss) -> None:
    """Check that the loss decreases if it says so, its slopes, and large margins."""
    u = torch.linspace(-4, 4, 33, dtype=torch.float64) + (5 if loss.POSITIVE else 0)
    value, (slope,) = loss.value(u), _slopes(loss.value, u)
    assert not loss.DECREASING or (value.diff() < 0).all(), "value: must decrease"
    _close(loss.derivative(u), slope, SLOPE, "derivative: differs from autograd")
    for margins in (u, 1e3 * u):
        factor, exponent = loss.slope(margins)
        inside = (factor >= 0.5) & (factor <= 1) if loss.DECREASING else factor.isfinite()
        assert inside.all(), "slope: its factor must be >= 1/2 and <= 1, or finite"
        assert exponent.isfinite().all(), "slope: its exponent must be finite"
    factor, exponent = loss.slope(u)
    _close(-factor * exponent.exp(), slope, SLOPE, "slope: a e^c differs from autograd")
    for delta in (0.0, 1e-3, 0.5):
        shift = torch.full_like(u, delta)
        expected = (loss.value(u - shift) - value) / delta if delta else -slope
        factor, exponent = loss.excess_slope(u, shift)
        message = f"excess_slope at {delta:g}: a e^c differs"
        _close(factor * exponent.exp(), expected, SLOPE, message)
        for part in loss.excess_slope(1e3 * u, 1e3 * shift):
            assert part.isfinite().all(), "excess_slope: must be finite at large margins"


def check_optimizer(optimizer: Optimizer) -> None:
    """Check snapshots, that instances do not depend on each other, and that the risk falls.

    Both W and (K, Q) are trained, on 4 instances with the linear head and the logistic loss; the
    compiled loop, where it has the optimizer, against that of torch.
    """
    batch = sample("sphere", n=2, T=3, d=4, trials=4)
    grid = optimizer.grid()
    assert grid[0] == 0, f"grid: {grid}, must begin with 0"
    assert sorted(set(grid)) == grid, f"grid: {grid}, must increase"
    for rule in (W(), KQ()):
        path, again, compiled = (
            train(batch, rule, optimizer, compiled=c) for c in (False, False, True)
        )
        start = rule.combine(rule.init(optimizer.init, optimizer.init_scale, batch.seeds, batch.d))
        _close(path.snapshots[:, 0], start, SAME, "run: its first snapshot is not the start")
        assert path.W.isfinite().all(), "run: weights are not finite"
        assert again.W.equal(path.W), "run: a second training gives other weights"
        _close(compiled.W, path.W, 1e-9, "run: the compiled loop gives other weights")
        for b in range(batch.B):
            alone = train(batch[b], rule, optimizer, compiled=False)
            _close(alone.W[0], path.W[b], 1e-9, "run: depends on the other instances")
        fell = (path.loss[:, -1] < path.loss[:, 0]).all()
        assert len(grid) == 1 or fell, "run: the risk does not fall"


def check_probe(probe: Probe, quantities: Iterable[str] | type[ProbeConfig], d: int = 5) -> None:
    """Check names, types, instances that do not depend on each other, and what is undefined.

    Parameters
    ----------
    probe : Probe
        The probe.
    quantities : iterable of str, or type
        Their names, or the schema that declares them: then also their ranges are checked.
    d : int
        Dimension of the weights.
    """
    declared = quantities.QUANTITIES if isinstance(quantities, type) else dict.fromkeys(quantities)
    assert declared, "QUANTITIES: must not be empty"
    probe.check(d)
    state = _snapshot(d)

    def compare(state: Snapshot, at: list[int], message: str) -> None:
        for name, value in measured(probe, declared, state).items():
            _close(value[-len(at) :], values[name][at], SAME, f"{name}: {message}")

    values = measured(probe, declared, state)
    for b in range(4):
        compare(_alone(state, b), [b], "depends on the other instances")
    W = state.W.clone()
    W[0] = torch.nan
    compare(dataclasses.replace(state, W=W), [1, 2, 3], "a diverged instance changes others")
    measured(probe, declared, dataclasses.replace(state, W=torch.zeros_like(W)))
    for name, quantity in declared.items():
        if quantity is not None and quantity.allowed is not None:
            inside = all(quantity.allowed.holds(v) for v in values[name].tolist() if v == v)
            assert inside, f"{name}: {values[name].tolist()}, must be {quantity.allowed}"


def _snapshot(d: int) -> Snapshot:
    batch = sample("planted", n=2, T=3, d=d, trials=4, held_out=4)
    K, Q = _random(4, d, 2), _random(4, d, 2, seed=1)
    softmax, (selected, _) = torch.softmax(_random(4, 2, 3), -1), optimal_tokens(batch)
    solutions = {"frobenius": solve_svm(batch.X, batch.Z, selected)}
    return Snapshot(batch, 100, K @ Q.mT, K, Q, softmax, selected, Logistic(), solutions)


def _alone(state: Snapshot, b: int) -> Snapshot:
    at = slice(b, b + 1)
    names = "batch", "W", "K", "Q", "softmax", "selected"
    parts = {name: getattr(state, name)[at] for name in names}
    solutions = {norm: solution[at] for norm, solution in state.solutions.items()}
    return dataclasses.replace(state, **parts, solutions=solutions)


def _same_instance(alone: Any, batch: Any, b: int, what: str) -> None:
    """Check that instance b of a batch is the one that was made alone."""
    of_alone, of_batch = (vars(of) | vars(of).get("head_parameters", {}) for of in (alone, batch))
    for name, value in of_alone.items():
        if isinstance(value, Tensor) and name in of_batch:  # not what was computed meanwhile
            same = value[0].equal(of_batch[name][b])
            assert same, f"{what}: {name} depends on the other instances"


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@contextmanager
def _no_global_draws(method: str) -> Iterator[None]:
    before = torch.random.get_rng_state()
    yield
    assert torch.random.get_rng_state().equal(before), f"{method}: uses the global random numbers"


def _slopes(value: Callable[..., Tensor], *at: Tensor) -> tuple[Tensor, ...]:
    """Return the derivatives of the sum of values, by autograd."""
    with torch.enable_grad():
        tracked = [V.detach().requires_grad_() for V in at]
        return torch.autograd.grad(value(*tracked).sum(), tracked)


def _close(value: Tensor, expected: Tensor, relative: float, message: str) -> None:
    atol = relative * max([1.0, *expected.abs().nan_to_num(0.0).flatten().tolist()])
    explained: Any = lambda reason: f"{message}. {reason}"  # noqa: E731
    torch.testing.assert_close(
        value, expected, rtol=relative, atol=atol, equal_nan=True, msg=explained
    )
