"""The peers of training: a loop over instances with torch autograd, and JAX (vmap, scan, jit).

Both take normalised steps V -= LR G / ||G||_F of every factor, W or K and Q, of every layer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnsvm import softmax_exact
from attnsvm.data.problem import ProblemBatch
from attnsvm.optimizer.base import TINY
from benchmarks._measure import OURS, Program

LR = 0.1
FEW, LOOP_STEPS = 4, 20
"""Instances and steps of the autograd loop, after which W is compared."""

Risk = Callable[..., Any]
"""(W, others, X, Z, Y, v, F) to the risk of an instance, of arrays of torch or JAX.

`others` is what is trained beside W; F has the functions softmax, softplus and log of that library.
"""


def programs(
    ours: Callable[[ProblemBatch, int], Tensor],
    risk: Risk,
    batch: ProblemBatch,
    start: Sequence[Tensor],
    steps: int,
    exact: bool = False,
) -> dict[str, Program]:
    """Return ours, JAX and the loop, which all start at the same weights.

    `ours` takes (batch, steps) to W (B, ..., d, d); `start` has the factors, each (B, ..., p, q);
    `exact`: the peers' softmax has a backward pass that does not cancel.
    """
    few = risk, batch.take(slice(FEW)), [V[:FEW] for V in start], LOOP_STEPS, exact
    peer, count, loop = jax_training(risk, batch, start, steps, exact), batch.B * steps, few
    return {
        OURS: Program(partial(ours, batch, steps), count, partial(ours, few[1], LOOP_STEPS)),
        "JAX": Program(peer, count, lambda: jax_training(*few)().tolist()),
        "torch autograd": Program(
            partial(autograd_loop, *loop), FEW * LOOP_STEPS, partial(autograd_loop, *loop)
        ),
    }


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
    functions = SimpleNamespace(
        softmax=softmax, softplus=torch.nn.functional.softplus, log=torch.log
    )
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
