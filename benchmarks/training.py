"""Speed of training against its peers, as ratios within one run: `python -m benchmarks.training`.

Peers: a loop over instances with torch autograd, as it is usually written, and JAX (vmap, scan,
jit) with the straightforward gradient. All in float64 on two threads, normalised gradient descent
with the logistic loss and the linear head. Times are those of the best of several repetitions,
taken in turn so that all meet the same disturbances; compilation is counted apart. Each line
says too what a call of 0 steps takes, and the ratio to JAX in CPU time, which means more while
other programs use the cores. After that: the cost of many dimensions, and memory and time
of a batch in chunks with `--many 100000`.
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

SHAPES = ((3, 4, 10), (5, 5, 5), (6, 8, 10), (15, 5, 20), (8, 16, 32), (2, 64, 64), (32, 8, 8))
BATCHES = (100, 1000)
LOOP_STEPS = 50
DIMENSIONS = (48, 512, 4096)
EPS = 2.220446049250313e-16

BOUNDS = {"w": {"loop": 300.0, "jax": 5.0}, "kq": {"jax": 5.0}}
"""Asked: how many times faster than the autograd loop and than compiled JAX."""


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


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def compare(
    shape: tuple[int, int, int], B: int, kq: bool, steps: int, repeats: int
) -> dict[str, float]:
    """Print one line, microseconds per instance-step and ratios; return peers over ours.

    The time of a call of 0 steps is in milliseconds.
    """
    n, T, d = shape
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B)
    rule = "kq" if kq else "w"
    few = batch.take(slice(4))

    def ours(steps: int) -> Callable[[], Any]:
        return lambda: attnsvm.train(batch, rule, steps=steps)

    few_steps = max(1, steps // 50)
    plain = lambda: attnsvm.train(batch, rule, steps=few_steps, compiled=False)  # noqa: E731
    loop = lambda: autograd_loop(few, kq, LOOP_STEPS)  # noqa: E731
    peer = jax_training(batch, kq, steps)
    attnsvm.train(few, rule, steps=1)
    compiling = seconds(peer)
    best: dict[str, float] = {}
    cpu = {"ours": 1e9, "jax": 1e9}
    for _ in range(repeats):
        for name, work in (("ours", ours(steps)), ("jax", peer)):
            cpu[name] = min(cpu[name], seconds(work, time.process_time))
        for name, work, count in (
            ("ours", ours(steps), B * steps),
            ("none", ours(0), 1000),
            ("torch", plain, B * few_steps),
            ("loop", loop, few.B * LOOP_STEPS),
            ("jax", peer, B * steps),
        ):
            best[name] = min(best.get(name, 1e9), seconds(work) / count * 1e6)
    whole = compiling / (B * steps) * 1e6
    print(
        f"{shape!s:12} {B:4} {rule:2}  0 steps {best['none']:6.1f} ms  "
        f"ours {best['ours']:7.3f}  torch {best['torch']:7.3f}  "
        f"loop {best['loop']:7.1f}  jax {best['jax']:7.3f}  with compilation {whole:7.3f}  |  "
        f"loop/ours {best['loop'] / best['ours']:6.0f}  jax/ours {best['jax'] / best['ours']:6.2f}"
        f"  in CPU time {cpu['jax'] / cpu['ours']:6.2f}",
        flush=True,
    )
    return {name: best[name] / best["ours"] for name in ("loop", "jax")}


def summarise(ratios: dict[str, list[dict[str, float]]]) -> None:
    """Print each bound, the least ratio of all shapes and batches, and whether it holds."""
    for rule, bounds in BOUNDS.items():
        for peer, asked in bounds.items():
            least = min(ratio[peer] for ratio in ratios[rule])
            verdict = "met" if least >= asked else "NOT met"
            print(f"{rule:2} {peer}/ours: asked {asked:g}, least {least:.2f}: {verdict}")


def dimensions(steps: int, repeats: int, trials: int = 100) -> None:
    """Print seconds for (n, T) = (6, 8) in the span of the vectors, finding it included."""
    print(f"\n{trials} instances, n=6, T=8, in_span and {steps} steps, seconds")
    batches = {d: attnsvm.sample("sphere", n=6, T=8, d=d, trials=trials) for d in DIMENSIONS}
    for rule in ("w", "kq"):
        best: dict[int, float] = {}
        for _ in range(repeats):
            for d, batch in batches.items():
                work = lambda: attnsvm.train(attnsvm.in_span(batch), rule, steps=steps)  # noqa: B023, E731
                best[d] = min(best.get(d, 1e9), seconds(work))
        row = "  ".join(f"d={d} {best[d]:.2f}" for d in DIMENSIONS)
        print(f"{rule:2}  {row}  |  d=4096 over d=48 {best[4096] / best[48]:.2f}", flush=True)


def many(trials: int, steps: int) -> None:
    """Print time and peak memory of a batch of (6, 8, 10) with 100 snapshots, in chunks."""
    batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=trials)
    before = peak_gib()

    def work() -> None:
        done = 0
        for part, path in train_chunks(batch, steps=steps, record_every=max(1, steps // 100)):
            done += path.snapshots.shape[0]
            assert part.stop == done

    took = seconds(work)
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
    ratios: dict[str, list[dict[str, float]]] = {"w": [], "kq": []}
    for shape in SHAPES:
        for B in BATCHES:
            for rule, found in ratios.items():
                kq = rule == "kq"
                found.append(compare(shape, B, kq, arguments.steps, arguments.repeats))
    summarise(ratios)
    dimensions(arguments.steps, arguments.repeats)


if __name__ == "__main__":
    main(sys.argv[1:])
