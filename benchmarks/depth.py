"""Training of several layers against its peers, as ratios of one run: `python -m benchmarks.depth`.

Peers: a loop over instances with torch autograd, and JAX (vmap, scan, jit), both with the softmax
whose backward pass does not cancel, in float64 on two threads. Normalised steps of W, or of K and
Q, of every layer, logistic loss, linear head on position 0, residual connection. As in ours, the
last layer has only the query that is read. The peers do less: they do not carry the differences of
rows that become copies of each other, and they underflow beyond norms of about 700.

Times are the best of several repetitions taken in turn, on the clock and of the processors, which
other programs of a busy machine disturb less; compilation is apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.transformer import LayerTrajectory
from benchmarks._clock import best_in_turn, print_ratios, seconds

SHAPE, LAYERS, LR = (4, 5, 16), 2, 0.1
RUNS = (100, 1000, "w"), (100, 1000, "kq"), (1000, 300, "w"), (1000, 300, "kq")
"""Instances, steps, and what is trained."""

FEW, LOOP_STEPS, REPEATS = 4, 20, 3
"""Instances and steps of the autograd loop, and repetitions."""


def ours(batch: ProblemBatch, rule: str, steps: int) -> LayerTrajectory:
    model = attnsvm.Transformer(layers=LAYERS)
    every = max(1, steps)
    return attnsvm.train_layers(batch, model, rule, steps=steps, lr=LR, record_every=every)


def autograd_loop(batch: ProblemBatch, start: Sequence[Tensor], steps: int) -> Tensor:
    """Train one instance after the other; return W, (B, L, d, d)."""
    found = []
    for b in range(batch.B):
        X, Y, v = batch.X[b], batch.Y[b], batch.head_parameters["v"][b]
        factors = [V[b].clone().requires_grad_() for V in start]
        for _ in range(steps):
            rows = X
            W = _combined(factors)
            for layer in range(LAYERS):
                queries = rows[:, :1] if layer == LAYERS - 1 else rows
                attention = attnsvm.softmax_exact(queries @ W[layer].mT @ rows.mT)
                rows = (queries + attention @ rows) / 2**0.5
            risk = torch.nn.functional.softplus(-Y * (rows[:, 0] @ v)).mean()
            gradients = torch.autograd.grad(risk, factors)
            with torch.no_grad():
                for V, g in zip(factors, gradients, strict=True):
                    V -= LR * g / g.norm(dim=(-2, -1), keepdim=True)
        found.append(_combined(factors).detach())
    return torch.stack(found)


def _combined(factors: Sequence[Any]) -> Any:
    """Return W of all layers, of W or of K and Q."""
    return factors[0] if len(factors) == 1 else factors[0] @ factors[1].mT


def jax_training(batch: ProblemBatch, start: Sequence[Tensor], steps: int) -> Callable[[], Any]:
    """Return the compiled training of the whole batch by JAX; it returns W."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    @jax.custom_vjp
    def softmax(logits: Any) -> Any:
        return jax.nn.softmax(logits, -1)

    def forward(logits: Any) -> Any:
        s = softmax(logits)
        return s, s

    def backward(s: Any, g: Any) -> Any:
        top = jnp.argmax(s, -1, keepdims=True)
        dg = g - jnp.take_along_axis(g, top, -1)
        q = s * (dg - (s * dg).sum(-1, keepdims=True))
        at_top = jnp.arange(s.shape[-1]) == top
        q = jnp.where(at_top, 0.0, q)
        return (jnp.where(at_top, -q.sum(-1, keepdims=True), q),)

    softmax.defvjp(forward, backward)

    def risk(factors: Any, X: Any, Y: Any, v: Any) -> Any:
        rows, W = X, _combined(factors)
        for layer in range(LAYERS):
            queries = rows[:, :1] if layer == LAYERS - 1 else rows
            logits = jnp.einsum("nkd,ntd->nkt", queries @ W[layer].T, rows)
            rows = (queries + softmax(logits) @ rows) / 2**0.5
        return jax.nn.softplus(-Y * (rows[:, 0] @ v)).mean()

    def one(factors: Any, X: Any, Y: Any, v: Any) -> Any:
        def step(factors: Any, _: Any) -> Any:
            gradients = jax.grad(risk)(factors, X, Y, v)
            return [
                V - LR * g / jnp.linalg.norm(g, axis=(-2, -1), keepdims=True)
                for V, g in zip(factors, gradients, strict=True)
            ], None

        return _combined(jax.lax.scan(step, factors, None, length=steps)[0])

    arrays = [jnp.asarray(tensor.numpy()) for tensor in (batch.X, batch.Y)]
    arrays.append(jnp.asarray(batch.head_parameters["v"].numpy()))
    factors = [jnp.asarray(V.numpy()) for V in start]
    train = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(train(factors, *arrays))


def compare(B: int, steps: int, rule: str) -> None:
    """Print microseconds per instance and step, the ratios, and that all train alike."""
    n, T, d = SHAPE
    model = attnsvm.Transformer(layers=LAYERS)
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B, model=model)
    few, path = batch.take(slice(FEW)), ours(batch, rule, 0)
    factors = (path.weights.W,) if path.K is None or path.Q is None else (path.K, path.Q)
    start = [V[:, :, 0].contiguous() for V in factors]
    few_start = [V[:FEW] for V in start]
    peer = jax_training(batch, start, steps)
    compiling = seconds(peer)[0]
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "ours": (lambda: ours(batch, rule, steps), B * steps),
        "0 steps": (lambda: ours(batch, rule, 0), B * steps),
        "loop": (lambda: autograd_loop(few, few_start, LOOP_STEPS), FEW * LOOP_STEPS),
        "jax": (peer, B * steps),
    }
    print(
        f"{SHAPE} {LAYERS} layers, {rule}, B = {B}, {steps} steps; JAX compiles {compiling:.1f} s"
    )
    print_ratios(best_in_turn(works, REPEATS))
    short = ours(few, rule, LOOP_STEPS).weights.W[:, :, 0]
    again = jax_training(few, few_start, LOOP_STEPS)()
    peers = {
        "loop": autograd_loop(few, few_start, LOOP_STEPS),
        "jax": torch.tensor(again.tolist(), dtype=short.dtype),
    }
    for name, W in peers.items():
        apart = (W - short).abs().max() / short.abs().max()
        print(f"  {name}: W differs by {apart:.0e} after {LOOP_STEPS} steps", flush=True)


def main() -> None:
    torch.set_num_threads(2)
    for B, steps, rule in RUNS:
        compare(B, steps, rule)


if __name__ == "__main__":
    main()
