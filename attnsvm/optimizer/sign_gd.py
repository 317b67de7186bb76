"""`optimizer=sign_gd`: every entry moves by the step size."""

from __future__ import annotations

from typing import Any

from attnsvm.optimizer.steepest import Steepest


class SignGD(Steepest):
    """V <- V - eta sign(grad): steepest descent in the entry-wise maximum norm."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(norm="max", beta=0.0, nesterov=False, **settings)
