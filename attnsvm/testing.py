"""Checks for the tests of a plug-in: what attnsvm relies on in each kind of option.

Each function raises AssertionError, which says what does not hold. In a test of yours::

    from attnsvm.testing import check_config, check_head

    def test_my_head():
        check_head(MyHead(power=3))
        check_config(MyHeadConfig, power=3)
"""

import dataclasses
from collections.abc import Callable, Iterable
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

STEP = 1e-6
"""Step of central differences."""

SLOPE = 1e-6
"""Largest relative difference between a gradient and central differences."""

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
    text = OmegaConf.to_yaml(OmegaConf.structured(config))
    read = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(text))
    )
    _require(read == config, f"{schema.__name__}: is {read} after YAML, was {config}")
    group = next(name for name, options in ALL_GROUPS.items() if issubclass(schema, options.base))
    option = instantiate(config, group, [package_of(config._target_)])
    for f in dataclasses.fields(schema):
        if f.name != "_target_":
            kept, value = getattr(option, f.name, None), getattr(config, f.name)
            same = list(kept) == value if isinstance(value, list) and kept else kept == value
            _require(same, f"{type(option).__name__}.{f.name}: is {kept}, must be {value}")


def check_head(head: Head, d: int = 5) -> None:
    """Check draws, shapes, gradients by central differences, batches, features and device."""
    parameters = _drawn(head, d)
    o = _random(4, 3, d)
    value = head.value(o, parameters)
    for points in (o[:, 0], o, o[:, :, None].expand(4, 3, 2, d)):
        values = head.value(points, parameters)
        _require(values.shape == points.shape[:-1], f"value: shape {tuple(values.shape)}")
        _require(values.dtype == torch.float64, f"value: {values.dtype}, must be float64")
        slope = head.gradient(points, parameters)
        _require(slope.shape == points.shape, f"gradient: shape {tuple(slope.shape)}")
    numeric = _differences(lambda at: head.value(at, parameters), o)
    _close(head.gradient(o, parameters), numeric, SLOPE, "gradient: differs from differences")
    weights = _random(4, 3)
    trained = head.parameter_gradient(o, parameters, weights)
    for name, p in parameters.items():

        def weighted(at: Tensor, name: str = name) -> Tensor:
            return (weights * head.value(o, {**parameters, name: at})).sum(1)

        total = _differences(weighted, p.flatten(1), p.shape)
        message = f"parameter_gradient of {name}: differs from differences"
        _close(trained[name].flatten(1), total, SLOPE, message)
    for b in range(4):
        at = slice(b, b + 1)
        alone = {name: p[at] for name, p in parameters.items()}
        _close(head.value(o[at], alone), value[at], SAME, "value: depends on the batch")
    X = _random(4, 3, 2, d, seed=1)
    described = head.features(X, parameters)
    if described is not None:
        p, (alpha, beta, rho) = described
        total = (alpha * p + beta * p.square() / 2 + rho * p.clamp(min=0)).sum(-1)
        _close(total, head.value(X, parameters), SAME, "features: their sum is not the head")
    elsewhere = {name: p.to("meta") for name, p in parameters.items()}
    for what in (head.value, head.gradient):
        on = what(o.to("meta"), elsewhere).device
        _require(on.type == "meta", f"{what.__name__}: on {on}, must be on that of its input")


def _drawn(head: Head, d: int) -> dict[str, Tensor]:
    """Return the parameters of 4 instances, each checked."""
    before = torch.random.get_rng_state()
    drawn = [head.draw(Generator().manual_seed(seed), d) for seed in range(4)]
    again = head.draw(Generator().manual_seed(3), d)
    _require(torch.random.get_rng_state().equal(before), "draw: uses the global random numbers")
    for name, p in drawn[3].items():
        _require(p.dtype == torch.float64, f"draw: {name} is {p.dtype}, must be float64")
        _require(p.equal(again[name]), f"draw: {name} is another one with the same generator")
    return {name: torch.stack([p[name] for p in drawn]) for name in drawn[0]}


def check_data(data: Data, head: Head | None = None, model: Model | None = None) -> None:
    """Check that instance i is that of seed + i, whatever is drawn with it and before it."""
    options = head or Linear(), model or CrossAttention()
    before = torch.random.get_rng_state()
    batch = data.sample(*options, 4, 7)
    _require(torch.random.get_rng_state().equal(before), "sample: uses the global random numbers")
    _require(batch.seeds.tolist() == [7, 8, 9, 10][: batch.B], f"sample: seeds {batch.seeds}")
    fixed = data.sample(*options, 1, 7).B == batch.B  # whatever is asked for
    for b in range(0 if fixed else batch.B):
        alone = data.sample(*options, 1, 7 + b)
        _same_instance(alone, batch, b, f"sample, seed {7 + b}")
        for name, p in alone.head_parameters.items():
            same = p[0].equal(batch.head_parameters[name][b])
            _require(same, f"sample: {name} of seed {7 + b} depends on the other instances")


def check_model(model: Model, n: int = 3, T: int = 4, d: int = 5) -> None:
    """Check shapes, that no masked token becomes admissible, and batches."""
    shape = (2, *model.label_shape(n, T))
    X, Z, Y = _random(2, n, T, d), _random(2, n, d, seed=1), _random(*shape, seed=2).sign()
    mask = torch.ones(2, n, T, dtype=torch.bool)
    mask[:, 0, -1] = False
    for allowed in (None, mask):
        samples = model.expand(X, Z, Y, allowed)
        B, N, tokens, width = samples.X.shape
        shapes = (tuple(samples.Z.shape), tuple(samples.Y.shape), tuple(samples.mask.shape))
        must = ((B, N, width), (B, N), (B, N, tokens))
        _require(shapes == must, f"expand: shapes of Z, Y, mask are {shapes}, must be {must}")
        _require(samples.mask.dtype == torch.bool, f"expand: mask is {samples.mask.dtype}")
        _require(bool(samples.mask.any(-1).all()), "expand: a sample without admissible token")
        alone = model.expand(X[1:], Z[1:], Y[1:], None if allowed is None else allowed[1:])
        _same_instance(alone, samples, 1, "expand")
    hidden = X[0, 0, -1]
    seen = (samples.X[0] == hidden).all(-1) & samples.mask[0]
    _require(not seen.any(), "expand: a masked token is admissible")


def check_parameterization(rule: Parameterization, d: int = 5) -> None:
    """Check W, queries, the chain rule by central differences, initial weights and rank."""
    seeds = torch.arange(4)
    start = rule.init("uniform", 1.0, seeds, d)
    shapes = tuple(tuple(V.shape[1:]) for V in start)
    _require(shapes == rule.shapes(d), f"init: shapes {shapes}, must be {rule.shapes(d)}")
    weights, Z, P = rule.combine(start), _random(4, 3, d), _random(4, 3, d, seed=1)
    _require(weights.shape == (4, d, d), f"combine: shape {tuple(weights.shape)}")
    _close(rule.query(start, Z), Z @ weights.mT, SAME, "query: is not W z")
    zero = rule.combine(rule.init("zero", 1.0, seeds, d))
    _require(not zero.any(), "zero: W is not 0")
    for k, (V, slope) in enumerate(zip(start, rule.pullback(start, P, Z), strict=True)):

        def total(at: Tensor, k: int = k) -> Tensor:
            moved = (*start[:k], at, *start[k + 1 :])
            return (P * (Z @ rule.combine(moved).mT)).sum((1, 2))

        numeric = _differences(total, V.flatten(1), V.shape)
        _close(slope.flatten(1), numeric, SLOPE, f"pullback of {rule.NAMES[k]}: differs")
    rank = int(torch.linalg.matrix_rank(weights).max())
    _require(rank <= rule.max_rank(d), f"max_rank: {rule.max_rank(d)}, but W has rank {rank}")
    alone = rule.init("uniform", 1.0, seeds[2:3], d)
    _close(rule.combine(alone)[0], weights[2], SAME, "init: depends on the other instances")


def check_loss(loss: Loss) -> None:
    """Check that the loss decreases if it says so, its slopes by differences, and large margins."""
    u = torch.linspace(-4, 4, 33, dtype=torch.float64) + (5 if loss.POSITIVE else 0)
    value = loss.value(u)
    _require(not loss.DECREASING or bool((value.diff() < 0).all()), "value: must decrease")
    numeric = (loss.value(u + STEP) - loss.value(u - STEP)) / (2 * STEP)
    _close(loss.derivative(u), numeric, SLOPE, "derivative: differs from differences")
    for margins in (u, 1e3 * u):
        factor, exponent = loss.slope(margins)
        inside = (factor >= 0.5) & (factor <= 1) if loss.DECREASING else factor.isfinite()
        _require(bool(inside.all()), "slope: its factor must be >= 1/2 and <= 1, or finite")
        _require(bool(exponent.isfinite().all()), "slope: its exponent must be finite")
    factor, exponent = loss.slope(u)
    _close(-factor * exponent.exp(), numeric, SLOPE, "slope: a e^c differs from differences")
    for delta in (0.0, 1e-3, 0.5):
        shift = torch.full_like(u, delta)
        expected = (loss.value(u - shift) - value) / delta if delta else -numeric
        factor, exponent = loss.excess_slope(u, shift)
        slope = factor * exponent.exp()
        _close(slope, expected, SLOPE, f"excess_slope at {delta:g}: a e^c differs")
        for part in loss.excess_slope(1e3 * u, 1e3 * shift):
            _require(bool(part.isfinite().all()), "excess_slope: must be finite at large margins")


def check_optimizer(optimizer: Optimizer) -> None:
    """Check snapshots, that instances do not depend on each other, and that the risk falls.

    Both W and (K, Q) are trained, on 4 instances with the linear head and the logistic loss.
    """
    batch = sample("sphere", n=2, T=3, d=4, trials=4)
    grid = optimizer.grid()
    _require(grid[0] == 0 and sorted(set(grid)) == grid, f"grid: {grid}, must increase from 0")
    for rule in (W(), KQ()):
        path = train(batch, rule, optimizer, compiled=False)
        start = rule.combine(rule.init(optimizer.init, optimizer.init_scale, batch.seeds, batch.d))
        _close(path.snapshots[:, 0], start, SAME, "run: its first snapshot is not the start")
        again = train(batch, rule, optimizer, compiled=False)
        _require(bool(path.W.isfinite().all()), "run: weights are not finite")
        _require(again.W.equal(path.W), "run: a second training gives other weights")
        for b in range(batch.B):
            alone = train(batch[b], rule, optimizer, compiled=False)
            _close(alone.W[0], path.W[b], 1e-9, "run: depends on the other instances")
        fell = (path.loss[:, -1] < path.loss[:, 0]).all()
        _require(len(grid) == 1 or bool(fell), "run: the risk does not fall")


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
    _require(bool(declared), "QUANTITIES: must not be empty")
    probe.check(d)
    state = _snapshot(d)
    values = measured(probe, declared, state)
    for b in range(state.batch.B):
        for name, value in measured(probe, declared, _alone(state, b)).items():
            _close(value[0], values[name][b], SAME, f"{name}: depends on the other instances")
    W = state.W.clone()
    W[1] = torch.nan
    for name, value in measured(probe, declared, dataclasses.replace(state, W=W)).items():
        rest = torch.arange(len(W)) != 1
        _close(value[rest], values[name][rest], SAME, f"{name}: a diverged instance changes others")
    measured(probe, declared, dataclasses.replace(state, W=torch.zeros_like(W)))
    for name, quantity in declared.items():
        if quantity is not None and quantity.allowed is not None:
            inside = all(quantity.allowed.holds(v) for v in values[name].tolist() if v == v)
            _require(inside, f"{name}: {values[name].tolist()}, must be {quantity.allowed}")


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
    for name in ("X", "Z", "Y", "mask"):
        same = getattr(alone, name)[0].equal(getattr(batch, name)[b])
        _require(same, f"{what}: {name} depends on the other instances")


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def _differences(
    value: Callable[[Tensor], Tensor], at: Tensor, shape: torch.Size | None = None
) -> Tensor:
    """Return central differences of `value` along the last axis of `at`, reshaped to `shape`."""
    columns = []
    for j in range(at.shape[-1]):
        step = torch.zeros_like(at)
        step[..., j] = STEP
        ends = [end if shape is None else end.reshape(shape) for end in (at + step, at - step)]
        columns.append((value(ends[0]) - value(ends[1])) / (2 * STEP))
    return torch.stack(columns, -1)


def _close(value: Tensor, expected: Tensor, relative: float, message: str) -> None:
    size = max([1.0, *expected.abs().nan_to_num(0.0).flatten().tolist()])
    atol, explained = relative * size, lambda reason: f"{message}. {reason}"
    torch.testing.assert_close(
        value, expected, rtol=relative, atol=atol, equal_nan=True, msg=explained
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
