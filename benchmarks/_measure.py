"""Times and memory of programs, tables of them, and the peers of training.

Peers: a loop over instances with torch autograd, and JAX (vmap, scan, jit). Both take normalised
steps V -= LR G / ||G||_F of every factor, W or K and Q, of every layer.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnsvm import softmax_exact
from attnsvm.optimizer.base import TINY
from attnsvm.problem import ProblemBatch


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes: on the clock, and of the processors."""
    started = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started[0], time.process_time() - started[1]


PAUSE_S = 0.1
"""Seconds before each program: the threads of the one before may wait for work in a loop."""


def best_in_turn(
    works: Mapping[str, tuple[Callable[[], Any], int]], repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the best microseconds of a step of each program, a (call, number of its steps).

    They are taken in turn, so that all meet the same disturbances.
    """
    best = dict.fromkeys(works, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, (work, count) in works.items():
            time.sleep(PAUSE_S)
            spent = [second / count * 1e6 for second in seconds(work)]
            best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
    return best


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments), computed in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def with_peak(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return work() and the MiB of resident memory by which it exceeds what was there (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # or what was before would count as the peak
    start = _most_resident()
    return work(), _most_resident() - start


def _most_resident() -> float:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1024


def print_row(*cells: Any) -> None:
    """Print a row of a table; a shape without its brackets."""
    words = (", ".join(map(str, x)) if isinstance(x, tuple) else str(x) for x in cells)
    print(f"| {' | '.join(words)} |", flush=True)


def print_head(*columns: str) -> None:
    """Print the names of the columns of a table."""
    print_row(*columns)
    print("|---" * len(columns) + "|")


LR = 0.1
FEW, LOOP_STEPS = 4, 20
"""Instances and steps of the autograd loop."""

Risk = Callable[..., Any]
"""(W, others, X, Z, Y, v, F) to the risk of an instance, of arrays of torch or JAX.

`others` is what is trained beside W; F has the functions softmax, softplus and log of that library.
"""


def combined(factors: Sequence[Any]) -> Any:
    """Return W, which is first, or the product of K and Q, where there are two."""
    return factors[0] @ factors[1].mT if len(factors) == 2 else factors[0]


def arrays(batch: ProblemBatch) -> tuple[Tensor, ...]:
    return batch.X, batch.Z, batch.Y, batch.head_parameters["v"]


def autograd_loop(
    risk: Risk, batch: ProblemBatch, start: Sequence[Tensor], steps: int, exact: bool
) -> Tensor:
    """Train one instance after the other; return W."""
    softmax = softmax_exact if exact else partial(torch.softmax, dim=-1)
    functions = SimpleNamespace(softmax=softmax, softplus=softplus, log=torch.log)
    trained = []
    for b in range(batch.B):
        instance = [tensor[b] for tensor in arrays(batch)]
        factors = [V[b].clone().requires_grad_() for V in start]
        for _ in range(steps):
            value = risk(combined(factors), factors[1:], *instance, functions)
            gradients = torch.autograd.grad(value, factors)
            with torch.no_grad():
                for V, g in zip(factors, gradients, strict=True):
                    V -= LR * g / (g.norm(dim=(-2, -1), keepdim=True) + TINY)
        trained.append(combined(factors).detach())
    return torch.stack(trained)


def jax_training(
    risk: Risk, batch: ProblemBatch, start: Sequence[Tensor], steps: int, exact: bool
) -> Callable[[], Any]:
    """Return the compiled training of the whole batch by JAX, which returns W."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    @jax.custom_vjp
    def exact_softmax(logits: Any) -> Any:
        return jax.nn.softmax(logits, -1)

    def backward(s: Any, g: Any) -> Any:
        top = jnp.argmax(s, -1, keepdims=True)
        dg = g - jnp.take_along_axis(g, top, -1)
        q = s * (dg - (s * dg).sum(-1, keepdims=True))
        at_top = jnp.arange(s.shape[-1]) == top
        q = jnp.where(at_top, 0.0, q)
        return (jnp.where(at_top, -q.sum(-1, keepdims=True), q),)

    exact_softmax.defvjp(lambda logits: (jax.nn.softmax(logits, -1),) * 2, backward)
    softmax = exact_softmax if exact else jax.nn.softmax
    functions = SimpleNamespace(softmax=softmax, softplus=jax.nn.softplus, log=jnp.log)

    def loss(factors: Any, *instance: Any) -> Any:
        return risk(combined(factors), factors[1:], *instance, functions)

    def trained(factors: Any, *instance: Any) -> Any:
        def step(factors: Any, _: Any) -> Any:
            gradients = jax.grad(loss)(factors, *instance)
            return [
                V - LR * g / (jnp.linalg.norm(g, axis=(-2, -1), keepdims=True) + TINY)
                for V, g in zip(factors, gradients, strict=True)
            ], None

        return combined(jax.lax.scan(step, factors, None, length=steps)[0])

    instances = [jnp.asarray(tensor.numpy()) for tensor in arrays(batch)]
    factors = [jnp.asarray(V.numpy()) for V in start]
    train = jax.jit(jax.vmap(trained))
    return lambda: jax.block_until_ready(train(factors, *instances))


def compare(
    title: str,
    ours: Callable[[ProblemBatch, int], Tensor],
    risk: Risk,
    batch: ProblemBatch,
    start: Sequence[Tensor],
    steps: int,
    repeats: int,
    exact: bool = False,
) -> None:
    """Print microseconds per instance and step, the ratios, and how far the peers' W is from ours.

    `ours` takes (batch, steps) to W (B, ..., d, d); `start` has the factors, each (B, ..., p, q);
    `exact`: the peers' softmax has a backward pass that does not cancel.
    """
    few = risk, batch.take(slice(FEW)), [V[:FEW] for V in start], LOOP_STEPS, exact
    peer, count = jax_training(risk, batch, start, steps, exact), batch.B * steps
    compiling = seconds(peer)[0]
    works = {
        "ours": (lambda: ours(batch, steps), count),
        "0 steps": (lambda: ours(batch, 0), count),
        "loop": (lambda: autograd_loop(*few), FEW * LOOP_STEPS),
        "jax": (peer, count),
    }
    best = best_in_turn(works, repeats)
    print(f"{title}, B = {batch.B}, {steps} steps; JAX compiles {compiling:.1f} s")
    for name, spent in best.items():
        clock, processors = (peer / mine for peer, mine in zip(spent, best["ours"], strict=True))
        times = f"{spent[0]:9.3f} us on the clock, {spent[1]:9.3f} of the processors"
        print(f"  {name:8} {times}; {clock:.2f} and {processors:.2f} times ours", flush=True)
    mine, again = ours(few[1], LOOP_STEPS), jax_training(*few)()
    peers = {"loop": autograd_loop(*few), "jax": torch.tensor(again.tolist(), dtype=mine.dtype)}
    for name, W in peers.items():
        error = (W - mine).abs().max() / mine.abs().max()
        print(f"  {name}: W differs by {error:.0e} after {LOOP_STEPS} steps", flush=True)
