"""Digest of the code that rules on the instances of a claim."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
VALUES = f"{PACKAGE}._runs"
"""A module of values only; those of a claim's own runs are part of its digest."""

WORDS = ("title", "number", "paper", "reading")
"""What a claim says of itself without a part in its verdict."""


def rule_digest(name: str, functions: Iterable[Callable[..., Any]]) -> str:
    """Return the sha256 of the code that a verdict follows from, without comments and docstrings.

    It is that of the claim's module, of the modules of its hypotheses and prediction, and of all
    modules of claims that these import.

    Parameters
    ----------
    name : str
        The claim's name.
    functions : iterable of callable
        Its hypotheses and its prediction.
    """
    open_ = {f"{PACKAGE}.{name}", *(one.__module__ for one in functions)}
    found: dict[str, str] = {}
    while open_:
        module = open_.pop()
        if module not in found and (code := _code(module)):
            found[module] = code[0]
            open_ |= code[1]
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


@cache
def _code(module: str) -> tuple[str, frozenset[str]] | None:
    """Return the code of a module, and the modules of claims that it imports; None without one."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse(Path(spec.origin).read_text())
    return _plain(_Bare().visit(tree)), frozenset(_imported(tree))


def _plain(node: Any) -> str:
    """Return a tree as text without its empty fields, which differ between versions of Python."""
    if isinstance(node, list):
        return f"[{' '.join(map(_plain, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_plain(value)}" for name, value in ast.iter_fields(node)
              if value is not None and value != [])  # fmt: skip
    return f"{type(node).__name__}({' '.join(fields)})"


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module.startswith(f"{PACKAGE}.") and module != VALUES:
            yield module


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings, and the words of a claim."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg in WORDS else self.generic_visit(node)
