"""Speed of training against its peers, as ratios within one run: `python -m benchmarks.training`.

Peers: a loop over instances with torch autograd, as it is usually written, and JAX (vmap, scan,
jit) with the straightforward gradient. All in float64 on two threads, normalised gradient descent
with the logistic loss and the linear head. Times are the best of several repetitions, on the clock
and of the processors, which other programs disturb less; compilation is apart, and a call of 0
steps is one of the programs. After that: the cost of many dimensions. `--many 100000`: memory and
time of a batch in chunks.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.training import train_chunks
from benchmarks._clock import best_in_turn, print_ratios, seconds

SHAPES = ((3, 4, 10), (5, 5, 5), (6, 8, 10), (15, 5, 20), (8, 16, 32), (2, 64, 64), (32, 8, 8))
BATCHES = (100, 1000)
LOOP_STEPS = 50
DIMENSIONS = (48, 512, 4096)
EPS = 2.220446049250313e-16


def autograd_loop(batch: ProblemBatch, kq: bool, steps: int) -> None:
    """Train one instance after the other by autograd."""
    for b in range(batch.B):
        X, Z, Y, v = batch.X[b], batch.Z[b], batch.Y[b], batch.head_parameters["v"][b]
        d = X.shape[-1]
        factors = [torch.rand(d, d, dtype=torch.float64) for _ in range(1 + kq)]
        for V in factors:
            V.requires_grad_()
        for _ in range(steps):
            W = factors[0] @ factors[1].T if kq else factors[0]
            s = torch.softmax((X @ (Z @ W.T).unsqueeze(-1)).squeeze(-1), -1)
            f = (s.unsqueeze(1) @ X).squeeze(1) @ v
            loss = torch.log(1 + torch.exp(-Y * f)).mean()
            gradients = torch.autograd.grad(loss, factors)
            with torch.no_grad():
                for V, g in zip(factors, gradients, strict=True):
                    V -= 0.1 * g / (g.norm() + EPS)


def jax_training(batch: ProblemBatch, kq: bool, steps: int) -> Callable[[], None]:
    """Return the compiled training of the whole batch by JAX."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    arrays = [
        jnp.asarray(t.numpy()) for t in (batch.X, batch.Z, batch.Y, batch.head_parameters["v"])
    ]
    path = attnsvm.train(batch, "kq" if kq else "w", steps=0)
    start = (path.K, path.Q) if kq else (path.W,)
    initial = tuple(jnp.asarray(V.numpy()) for V in start)

    def risk(factors: Any, X: Any, Z: Any, Y: Any, v: Any) -> Any:
        W = factors[0] @ factors[1].T if kq else factors[0]
        s = jax.nn.softmax(jnp.einsum("ntd,nd->nt", X, Z @ W.T), -1)
        f = jnp.einsum("nt,ntd->nd", s, X) @ v
        return jnp.log(1 + jnp.exp(-Y * f)).mean()

    def one(factors: Any, X: Any, Z: Any, Y: Any, v: Any) -> Any:
        def step(factors: Any, _: Any) -> Any:
            gradients = jax.grad(risk)(factors, X, Z, Y, v)
            moved = tuple(
                V - 0.1 * g / (jnp.linalg.norm(g) + EPS)
                for V, g in zip(factors, gradients, strict=True)
            )
            return moved, None

        return jax.lax.scan(step, factors, None, length=steps)[0]

    train = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(train(initial, *arrays))


def compare(shape: tuple[int, int, int], B: int, kq: bool, steps: int, repeats: int) -> None:
    """Print microseconds per instance-step and ratios."""
    n, T, d = shape
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B)
    rule, few, few_steps = "kq" if kq else "w", batch.take(slice(4)), max(1, steps // 50)

    def ours(steps: int, **options: bool) -> Callable[[], Any]:
        return lambda: attnsvm.train(batch, rule, steps=steps, **options)

    peer = jax_training(batch, kq, steps)
    attnsvm.train(few, rule, steps=1)
    compiling = seconds(peer)[0]
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "ours": (ours(steps), B * steps),
        "0 steps": (ours(0), B * steps),
        "torch": (ours(few_steps, compiled=False), B * few_steps),
        "loop": (lambda: autograd_loop(few, kq, LOOP_STEPS), few.B * LOOP_STEPS),
        "jax": (peer, B * steps),
    }
    print(f"{shape}, {rule}, B = {B}, {steps} steps; JAX compiles {compiling:.1f} s")
    print_ratios(best_in_turn(works, repeats))


def dimensions(steps: int, repeats: int, trials: int = 100) -> None:
    """Print seconds for (n, T) = (6, 8) in the span of the vectors, finding it included."""
    print(f"\n{trials} instances, n=6, T=8, in_span and {steps} steps, seconds")
    batches = {d: attnsvm.sample("sphere", n=6, T=8, d=d, trials=trials) for d in DIMENSIONS}
    for rule in ("w", "kq"):
        works = {
            f"d={d}": (lambda d=d, rule=rule: attnsvm.train(attnsvm.in_span(batches[d]), rule,
                                                            steps=steps), 10**6)
            for d in DIMENSIONS
        }  # fmt: skip
        best = [clock for clock, _ in best_in_turn(works, repeats).values()]
        row = "  ".join(f"{name} {one:.2f}" for name, one in zip(works, best, strict=True))
        print(f"{rule:2}  {row}  |  d=4096 over d=48 {best[-1] / best[0]:.2f}", flush=True)


def many(trials: int, steps: int) -> None:
    """Print time and peak memory of a batch of (6, 8, 10) with 100 snapshots, in chunks."""
    batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=trials)
    before = peak_gib()

    def work() -> None:
        done = 0
        for part, path in train_chunks(batch, steps=steps, record_every=max(1, steps // 100)):
            done += path.snapshots.shape[0]
            assert part.stop == done

    took = seconds(work)[0]
    rate = took / (trials * steps) * 1e6
    print(
        f"\n{trials} instances, (6, 8, 10), {steps} steps, 100 snapshots: {took:.0f} s, "
        f"{rate:.3f} microseconds per instance-step, peak {peak_gib():.2f} GiB "
        f"(asked 8; {before:.2f} before training)",
        flush=True,
    )


def peak_gib() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--many", type=int, default=0, metavar="B", help="only B instances in chunks"
    )
    arguments = parser.parse_args(words)
    torch.set_num_threads(2)
    if arguments.many:
        many(arguments.many, arguments.steps)
        return
    started = time.perf_counter()
    for rule in ("w", "kq"):
        attnsvm.train(attnsvm.sample(n=1, T=2, d=2, trials=2), rule, steps=1)
    print(f"our kernels ready after {time.perf_counter() - started:.1f} s (0 when cached)")
    print(f"microseconds per instance-step, {arguments.steps} steps")
    for shape in SHAPES:
        for B in BATCHES:
            for kq in (False, True):
                compare(shape, B, kq, arguments.steps, arguments.repeats)
    dimensions(arguments.steps, arguments.repeats)


if __name__ == "__main__":
    main(sys.argv[1:])
