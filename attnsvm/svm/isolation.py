"""One broken instance does not take its batch with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from attnsvm.svm.certificate import Certificate, Verdict
from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.solution import Claim

# What numerical code raises, warnings turned into errors included.
NUMERICAL = (
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    ArithmeticError,
    ValueError,
    RuntimeWarning,
)


def isolated(
    problem: SvmProblem,
    solve: Callable[[SvmProblem], Claim],
    judge: Callable[[SvmProblem, Claim], Verdict],
) -> Verdict:
    """Return the verdict of each instance; one that breaks the solver claims nothing.

    A batch that raises is halved until the instance that does is alone.
    """
    try:
        return judge(problem, solve(problem))
    except NUMERICAL:
        if problem.B == 1:
            return judge(problem, _nothing(problem))
    halves = torch.arange(problem.B, device=problem.D.device).tensor_split(2)
    return _joined(*(isolated(problem.take(half), solve, judge) for half in halves))


def _nothing(problem: SvmProblem) -> Claim:
    nothing = torch.full_like(problem.h, torch.nan)
    return Claim(torch.full_like(problem.combine(nothing), torch.nan), nothing, nothing)


Part = TypeVar("Part", Verdict, Certificate)


def _joined(first: Part, second: Part) -> Part:
    """Return two verdicts, or their certificates, as one."""
    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(first)):
        x, y = getattr(first, name), getattr(second, name)
        if isinstance(x, Certificate):
            joined[name] = _joined(x, y)
        else:
            joined[name] = torch.cat([x, y]) if isinstance(x, Tensor) else x + y
    return type(first)(**joined)
