"""Digest of the rule of a claim: the functions and constants that rule on its instances."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGE = __name__.rpartition(".")[0]


def rule_digest(functions: Iterable[Callable[..., Any]]) -> str:
    """Return the sha256 of some functions and of all that they use of the claims' modules.

    Code counts without comments and docstrings, and wherever it stands: a rule may move to another
    module. What a function looks up in attnsvm, pandas or `Evidence` does not count.

    Parameters
    ----------
    functions : iterable of callable
        Functions, or partials of them. Their parts count, but no variables that they close over.
    """
    found: dict[int, str] = {}
    parts = [_text(one, found) for one in functions]
    return hashlib.sha256(repr([parts, sorted(found.values())]).encode()).hexdigest()


def _text(value: Any, found: dict[int, str]) -> str:
    """Return a value as text; put the code of functions that it consists of into `found`."""
    if isinstance(value, partial):
        keywords = {name: _text(each, found) for name, each in sorted(value.keywords.items())}
        return (
            f"{_text(value.func, found)}({[_text(each, found) for each in value.args]}{keywords})"
        )
    if not isinstance(value, FunctionType):
        return repr(value)
    if value.__closure__:
        raise TypeError(f"{value.__qualname__}: closes over variables; must be a partial instead")
    if id(value) not in found:
        found[id(value)] = ""  # a function may call itself
        uses = {name: value.__globals__.get(name) for name in _names(value.__code__)}
        parts = [
            f"{name}={_text(each, found)}" for name, each in sorted(uses.items()) if _counts(each)
        ]
        found[id(value)] = f"{_code(value)} {parts}"
    return value.__name__


def _counts(value: Any) -> bool:
    """Return whether a global name is of a rule: a constant, or a function of claims."""
    if isinstance(value, FunctionType):
        return value.__module__.startswith(PACKAGE)
    return isinstance(value, (bool, int, float, str, tuple, partial))


def _names(code: CodeType) -> set[str]:
    """Return the names that some code looks up, with those of the functions inside it."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _code(function: FunctionType) -> str:
    """Return the code of a function; of all functions that begin on its line."""
    line = function.__code__.co_firstlineno
    nodes = [one for one in _functions(function.__code__.co_filename) if one.lineno == line]
    if not nodes:
        raise LookupError(f"{function.__qualname__}: no function begins on its line {line}")
    return " ".join(_plain(_Bare().visit(node)) for node in nodes)


@cache
def _functions(path: str) -> tuple[Any, ...]:
    tree = ast.walk(ast.parse(Path(path).read_text()))
    return tuple(node for node in tree if isinstance(node, (ast.FunctionDef, ast.Lambda)))


def _plain(node: Any) -> str:
    """Return a tree as text without its empty fields, which differ between versions of Python."""
    if isinstance(node, list):
        return f"[{' '.join(map(_plain, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (f"{name}={_plain(value)}" for name, value in ast.iter_fields(node)
              if value is not None and value != [])  # fmt: skip
    return f"{type(node).__name__}({' '.join(fields)})"


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)
