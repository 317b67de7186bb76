"""Attention as a support vector machine: sample, train, select tokens, solve the SVM, compare.

>>> import attnsvm
>>> batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=100)
>>> path = attnsvm.train(batch, parameterization="w", steps=2000)
>>> pick = attnsvm.select_tokens(batch, path)
>>> solution = attnsvm.solve_svm(batch.X, batch.Z, pick.selected, norm="frobenius")
>>> attnsvm.correlation(path.W, solution.W)  # (100,)
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from attnsvm.config import ConfigError
from attnsvm.version import __version__

if TYPE_CHECKING:
    from attnsvm.comparison import correlation, one_minus_correlation, svmeq
    from attnsvm.data import sample
    from attnsvm.problem import ProblemBatch
    from attnsvm.selection import TokenSelection, optimal_tokens, select_tokens
    from attnsvm.span import in_span, span_basis
    from attnsvm.svm import SvmSolution, SvmStatus, solve_gen_svm, solve_svm
    from attnsvm.training import Trajectory, train

# MKL's last bits depend on where in memory a matrix lies, and so on its neighbours in a batch.
# It reads this at its first product: too late for a program that multiplied before this import.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

_HOME = {
    "ProblemBatch": "problem",
    "SvmSolution": "svm",
    "SvmStatus": "svm",
    "TokenSelection": "selection",
    "Trajectory": "training",
    "correlation": "comparison",
    "in_span": "span",
    "one_minus_correlation": "comparison",
    "optimal_tokens": "selection",
    "sample": "data",
    "select_tokens": "selection",
    "solve_gen_svm": "svm",
    "solve_svm": "svm",
    "span_basis": "span",
    "svmeq": "comparison",
    "train": "training",
}

__all__ = [
    "ConfigError",
    "ProblemBatch",
    "SvmSolution",
    "SvmStatus",
    "TokenSelection",
    "Trajectory",
    "__version__",
    "correlation",
    "in_span",
    "one_minus_correlation",
    "optimal_tokens",
    "sample",
    "select_tokens",
    "solve_gen_svm",
    "solve_svm",
    "span_basis",
    "svmeq",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load the module of a public name when it is first asked for: torch takes over a second."""
    if name not in _HOME:
        raise AttributeError(f"module 'attnsvm' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attnsvm.{_HOME[name]}"), name)
