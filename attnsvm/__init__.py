"""Attention as a support vector machine: sample, train, select tokens, solve the SVM, compare.

>>> import attnsvm
>>> batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=100)
>>> path = attnsvm.train(batch, parameterization="w", steps=2000)
>>> selection = attnsvm.select_tokens(batch, path)
>>> solution = attnsvm.solve_svm(batch.X, batch.Z, selection.selected, norm="frobenius")
>>> attnsvm.correlation(path.W, solution.W)  # (100,)
"""

import ast
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.config import ConfigError as ConfigError
from attnsvm.config.version import __version__ as __version__

if TYPE_CHECKING:
    from attnsvm import nn as nn
    from attnsvm.data import sample as sample
    from attnsvm.data.pretrained import heads_of as heads_of
    from attnsvm.linalg import correlation as correlation
    from attnsvm.linalg import one_minus_correlation as one_minus_correlation
    from attnsvm.model import Transformer as Transformer
    from attnsvm.nn import softmax_exact as softmax_exact
    from attnsvm.problem import ProblemBatch as ProblemBatch
    from attnsvm.selection import TokenSelection as TokenSelection
    from attnsvm.selection import optimal_tokens as optimal_tokens
    from attnsvm.selection import select_tokens as select_tokens
    from attnsvm.svm import SvmSolution as SvmSolution
    from attnsvm.svm import SvmStatus as SvmStatus
    from attnsvm.svm import from_cvxpy as from_cvxpy
    from attnsvm.svm import solve_gen_svm as solve_gen_svm
    from attnsvm.svm import solve_least_norm as solve_least_norm
    from attnsvm.svm import solve_rank_constrained as solve_rank_constrained
    from attnsvm.svm import solve_svm as solve_svm
    from attnsvm.sweeps.loaded import load as load
    from attnsvm.theory.comparison import margin_gap as margin_gap
    from attnsvm.theory.comparison import svmeq as svmeq
    from attnsvm.training import Trajectory as Trajectory
    from attnsvm.training import in_cone as in_cone
    from attnsvm.training import in_span as in_span
    from attnsvm.training import span_basis as span_basis
    from attnsvm.training import train as train
    from attnsvm.transformer import LayerProblems as LayerProblems
    from attnsvm.transformer import LayerTrajectory as LayerTrajectory
    from attnsvm.transformer import layer_problems as layer_problems
    from attnsvm.transformer import train_layers as train_layers

# Without this, the last bits of MKL's products depend on the address of a matrix, and so on the
# batch. MKL reads it at its first product: import attnsvm before any product.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# A forked child would wait for ever for the threads that torch had in its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: "torch" in sys.modules and sys.modules["torch"].set_num_threads(1)
    )

# In a checkout the folders sweeps and conf lie beside this package; in an installation, within it.
if not (Path(__file__).parent / "sweeps").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

_HOME = {
    name.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text()))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("attnsvm.")
    for name in node.names
}
"""Module of each public name, as type checkers read it above: it is imported on first use."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import the module of a public name on first use: torch takes over a second."""
    if name == "nn":
        return importlib.import_module("attnsvm.nn")
    if name not in _HOME:
        raise AttributeError(f"module 'attnsvm' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those not yet imported."""
    return ["nn", *__all__]
