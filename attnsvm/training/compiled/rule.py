"""What the compiled loop applies to: the rules of steps and the losses that it knows, by code."""

from __future__ import annotations

import math

from attnsvm.attention import Risk
from attnsvm.linalg.simd.loss import EXPONENTIAL, LINEAR, LOGISTIC, SQUARED
from attnsvm.loss import Exponential, LinearLoss, Logistic, Squared
from attnsvm.optimizer.base import Optimizer
from attnsvm.optimizer.first_order import FirstOrder
from attnsvm.optimizer.gd import GD
from attnsvm.optimizer.momentum import Momentum
from attnsvm.optimizer.muon import Muon
from attnsvm.optimizer.normalized_gd import NormalizedGD
from attnsvm.optimizer.sign_gd import SignGD
from attnsvm.optimizer.steepest import Steepest
from attnsvm.parameterization import KQ, W
from attnsvm.training.compiled.directions import CODES, FROBENIUS, L1, MAX, MUON, PLAIN, Direction
from attnsvm.training.compiled.gradient import Update

LOSS_CODES = {Logistic: LOGISTIC, Exponential: EXPONENTIAL, LinearLoss: LINEAR, Squared: SQUARED}
"""Codes of the losses in compiled code, of one layer and of networks."""


def applies(risk: Risk, optimizer: Optimizer) -> bool:
    """Return whether the compiled loop can take the steps of `optimizer` on `risk`."""
    batch = risk.batch
    first = {name: p[:1] for name, p in batch.head_parameters.items()}
    return (
        isinstance(optimizer, FirstOrder)
        and _rule(optimizer) is not None
        and (optimizer.gradient == "log_domain" or _published_w(risk, optimizer))
        and type(risk.rule) in (W, KQ)
        and type(risk.loss) in LOSS_CODES
        and batch.X.device.type == "cpu"
        and not batch.head.train
        and batch.head.features(batch.X[:1], first) is not None
    )


def _published_w(risk: Risk, optimizer: FirstOrder) -> bool:
    """Return whether this is the published update of W; that of (K, Q) amplifies rounding."""
    gradient_descent = type(optimizer) in (NormalizedGD, GD)
    return gradient_descent and type(risk.rule) is W and not optimizer.ridge


def _rule(optimizer: FirstOrder) -> int | None:
    """Return the code of the optimizer's rule; None if the compiled loop has none."""
    if type(optimizer) in (Steepest, SignGD):
        assert isinstance(optimizer, Steepest)
        return CODES.get(optimizer.implicit_bias or "")
    known = {GD: PLAIN, Momentum: PLAIN, NormalizedGD: FROBENIUS, Muon: MUON}
    return known.get(type(optimizer))


def update_of(risk: Risk, optimizer: FirstOrder) -> Update:
    """Return the update; its R is triangular in coordinates of the span of tokens and queries.

    Signs and largest entries depend on the coordinates, and of what a ridge shrinks outside of the
    span only the norm is known.
    """
    rule = _rule(optimizer)
    assert rule is not None  # as checked in `applies`
    beta = optimizer.beta if isinstance(optimizer, Momentum | Steepest) else 0.0
    direction = None if rule in (PLAIN, FROBENIUS) else Direction(rule, 0, 1.0)
    if isinstance(optimizer, Muon):
        factor = optimizer.stretch(*risk.rule.shapes(risk.batch.d)[0])
        direction = Direction(rule, optimizer.newton_schulz_steps, factor)
    of_gradient = direction is None and not beta
    return Update(
        loss=LOSS_CODES[type(risk.loss)],
        target=risk.loss.target if isinstance(risk.loss, Squared) else 0.0,
        log_ridge=math.log(2 * optimizer.ridge) if optimizer.ridge else -math.inf,
        exact=optimizer.gradient == "log_domain",
        normalised=rule == FROBENIUS,
        beta=beta,
        log_beta=math.log(beta) if beta else -math.inf,
        nesterov=isinstance(optimizer, Steepest) and optimizer.nesterov,
        triangular=rule not in (MAX, L1) and (of_gradient or not optimizer.ridge),
        direction=direction,
    )
