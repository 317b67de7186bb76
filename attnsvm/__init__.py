"""Attention as a support vector machine: sample, train, select tokens, solve the SVM, compare.

>>> import attnsvm
>>> batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=100)
>>> path = attnsvm.train(batch, parameterization="w", steps=2000)
>>> selection = attnsvm.select_tokens(batch, path)
>>> solution = attnsvm.solve_svm(batch.X, batch.Z, selection.selected, norm="frobenius")
>>> attnsvm.correlation(path.W, solution.W)  # (100,)
"""

import os
import sys
from pathlib import Path

import lazy_loader

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

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
