"""`optimizer=sign_gd`: every entry moves by the step size."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnsvm.optimizer.steepest import Steepest


@dataclass(kw_only=True, eq=False)
class SignGD(Steepest):
    """V <- V - eta sign(grad): steepest descent in the entry-wise maximum norm."""

    norm: str = field(default="max", init=False)
    beta: float = field(default=0.0, init=False)
    nesterov: bool = field(default=False, init=False)
