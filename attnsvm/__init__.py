"""Attention as a support vector machine: sample, train, select tokens, solve the SVM, compare.

>>> import attnsvm
>>> batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=100)
>>> path = attnsvm.train(batch, parameterization="w", steps=2000)
>>> selection = attnsvm.select_tokens(batch, path)
>>> solution = attnsvm.solve_svm(batch.X, batch.Z, selection.selected, norm="frobenius")
>>> attnsvm.correlation(path.W, solution.W)  # (100,)
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.config import ConfigError
from attnsvm.config.version import __version__

if TYPE_CHECKING:
    from attnsvm.attention import softmax_exact
    from attnsvm.comparison import margin_gap, svmeq
    from attnsvm.data import sample
    from attnsvm.data.pretrained import heads_of
    from attnsvm.linalg.directions import correlation, one_minus_correlation
    from attnsvm.model import Transformer
    from attnsvm.problem import ProblemBatch
    from attnsvm.selection import TokenSelection, optimal_tokens, select_tokens
    from attnsvm.svm import (
        SvmSolution,
        SvmStatus,
        solve_gen_svm,
        solve_rank_constrained,
        solve_svm,
    )
    from attnsvm.sweeps.loaded import load
    from attnsvm.training import Trajectory, in_cone, in_span, span_basis, train
    from attnsvm.transformer import LayerProblems, LayerTrajectory, layer_problems, train_layers

# Without this, the last bits of MKL's products depend on the address of a matrix, and so on the
# batch. MKL reads it at its first product: import attnsvm before any product.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# In a checkout the folders sweeps and conf lie beside this package; in an installation, within it.
if not (Path(__file__).parent / "sweeps").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

_HOME = {
    name: module
    for module, names in {
        "attention": ["softmax_exact"],
        "comparison": ["margin_gap", "svmeq"],
        "data": ["sample"],
        "data.pretrained": ["heads_of"],
        "linalg.directions": ["correlation", "one_minus_correlation"],
        "model": ["Transformer"],
        "problem": ["ProblemBatch"],
        "selection": ["TokenSelection", "optimal_tokens", "select_tokens"],
        "svm": ["SvmSolution", "SvmStatus"],
        "svm.solve": ["solve_gen_svm", "solve_rank_constrained", "solve_svm"],
        "sweeps.loaded": ["load"],
        "training": ["Trajectory", "in_cone", "in_span", "span_basis", "train"],
        "transformer": ["LayerProblems", "LayerTrajectory", "layer_problems", "train_layers"],
    }.items()
    for name in names
}
"""Module of each public name that is imported on first use."""

__all__ = [
    "ConfigError",
    "LayerProblems",
    "LayerTrajectory",
    "ProblemBatch",
    "SvmSolution",
    "SvmStatus",
    "TokenSelection",
    "Trajectory",
    "Transformer",
    "__version__",
    "correlation",
    "heads_of",
    "in_cone",
    "in_span",
    "layer_problems",
    "load",
    "margin_gap",
    "one_minus_correlation",
    "optimal_tokens",
    "sample",
    "select_tokens",
    "softmax_exact",
    "solve_gen_svm",
    "solve_rank_constrained",
    "solve_svm",
    "span_basis",
    "svmeq",
    "train",
    "train_layers",
]


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use: torch takes over a second."""
    if name not in _HOME:
        raise AttributeError(f"module 'attnsvm' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attnsvm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, including those not yet imported."""
    return __all__
