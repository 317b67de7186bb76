"""Training of several layers against its peers, as ratios of one run: `python -m benchmarks.depth`.

Peers: a loop over instances with torch autograd, and JAX (vmap, scan, jit), both with the softmax
whose backward pass does not cancel, in float64 on two threads. Normalised steps of W of every
layer, logistic loss, linear head on position 0, residual connection. Times are the best of several
repetitions taken in turn; compilation is apart. The peers underflow beyond norms of about 700; ours
does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.transformer import LayerTrajectory

SHAPE, LAYERS, BATCH, STEPS, LR = (4, 5, 16), 2, 100, 100, 0.1
FEW = 4
"""Instances of the autograd loop."""


def ours(batch: ProblemBatch, model: attnsvm.Transformer, steps: int) -> LayerTrajectory:
    return attnsvm.train_layers(batch, model, steps=steps, lr=LR, record_every=max(1, steps))


def autograd_loop(batch: ProblemBatch, start: Tensor) -> Tensor:
    """Train one instance after the other; return W, (B, L, d, d)."""
    found = []
    for b in range(batch.B):
        X, Y, v = batch.X[b], batch.Y[b], batch.head_parameters["v"][b]
        W = start[b].clone().requires_grad_()
        for _ in range(STEPS):
            rows = X
            for layer in range(LAYERS):
                logits = rows @ W[layer] @ rows.mT
                rows = (rows + attnsvm.softmax_exact(logits.mT) @ rows) / 2**0.5
            risk = torch.nn.functional.softplus(-Y * (rows[:, 0] @ v)).mean()
            (g,) = torch.autograd.grad(risk, W)
            with torch.no_grad():
                W -= LR * g / g.norm(dim=(-2, -1), keepdim=True)
        found.append(W.detach())
    return torch.stack(found)


def jax_training(batch: ProblemBatch, start: Tensor) -> Callable[[], Any]:
    """Return the compiled training of the whole batch by JAX."""
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

    def risk(W: Any, X: Any, Y: Any, v: Any) -> Any:
        rows = X
        for layer in range(LAYERS):
            logits = jnp.einsum("nkd,ntd->nkt", rows @ W[layer].T, rows)
            rows = (rows + softmax(logits) @ rows) / 2**0.5
        return jax.nn.softplus(-Y * (rows[:, 0] @ v)).mean()

    def one(W: Any, X: Any, Y: Any, v: Any) -> Any:
        def step(W: Any, _: Any) -> Any:
            g = jax.grad(risk)(W, X, Y, v)
            return W - LR * g / jnp.linalg.norm(g, axis=(-2, -1), keepdims=True), None

        return jax.lax.scan(step, W, None, length=STEPS)[0]

    given = (start, batch.X, batch.Y, batch.head_parameters["v"])
    arrays = [jnp.asarray(tensor.numpy()) for tensor in given]
    train = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(train(*arrays))


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Print microseconds per instance and step, the ratios, and that all train alike."""
    torch.set_num_threads(2)
    n, T, d = SHAPE
    model = attnsvm.Transformer(layers=LAYERS)
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=BATCH, model=model)
    few = batch.take(slice(FEW))
    path = ours(batch, model, STEPS)
    start, end = path.snapshots[:, 0, :, 0], path.snapshots[:, -1, :, 0]
    peer = jax_training(batch, start)
    compiling = seconds(peer)
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "ours": (lambda: ours(batch, model, STEPS), BATCH),
        "loop": (lambda: autograd_loop(few, start[:FEW]), FEW),
        "jax": (peer, BATCH),
    }
    best = dict.fromkeys(works, 1e9)
    for _ in range(5):
        for name, (work, count) in works.items():
            best[name] = min(best[name], seconds(work) / count / STEPS * 1e6)
    found = {
        "loop": autograd_loop(few, start[:FEW]),
        "jax": torch.tensor(peer().tolist(), dtype=torch.float64),
    }
    for name, W in found.items():
        apart = (W - end[: len(W)]).abs().max() / end.abs().max()
        print(f"{name}: {best[name] / best['ours']:.1f} times ours, W differs by {apart:.0e}")
    told = ", ".join(f"{name} {value:.2f}" for name, value in best.items())
    print(f"microseconds per instance and step: {told}; JAX compiles in {compiling:.1f} s")


if __name__ == "__main__":
    main()
