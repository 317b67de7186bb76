"""Digest of the rule of a claim: the expressions, functions and constants that decide it."""

from __future__ import annotations

import ast
import hashlib
import inspect
from functools import partial
from types import FunctionType
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
CONSTANTS = (bool, int, float, str, tuple, list, dict, partial)


def rule_digest(*parts: Any) -> str:
    """Return the sha256 of values, functions, and all that these use of the claims' modules.

    Code counts without comments and docstrings, and wherever it stands: a rule may move to another
    module. What a function looks up in attnsvm, pandas or `Evidence` does not count.

    Parameters
    ----------
    *parts : object
        Plain values, functions and partials of them, also in lists, tuples and dictionaries.
    """
    sources: dict[FunctionType, str] = {}
    text = _text(parts, sources)
    return hashlib.sha256(repr([text, sorted(sources.values())]).encode()).hexdigest()


def _text(value: Any, sources: dict[FunctionType, str]) -> str:
    """Return a value as text; add the functions of which it consists to `sources`."""
    if isinstance(value, partial):
        value = [value.func, value.args, sorted(value.keywords.items())]
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(one, sources) for one in value)}]"
    if not isinstance(value, FunctionType):
        return repr(value)
    if value not in sources:
        sources[value] = ""  # a function may call itself
        sources[value] = _source(value, sources)
    return value.__name__


def _source(function: FunctionType, sources: dict[FunctionType, str]) -> str:
    """Return the code of a function, and the constants and functions of claims that it names."""
    if function.__closure__ or function.__name__ == "<lambda>":
        raise TypeError(f"{function.__qualname__}: must be a function of a module, or a partial")
    tree = ast.parse(inspect.getsource(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    named = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    values = {name: function.__globals__.get(name) for name in named}
    uses = {name: value for name, value in values.items() if _counts(value)}
    return f"{ast.unparse(tree)} {_text(uses, sources)}"


def _counts(value: Any) -> bool:
    """Return whether a global value is of a rule: a constant, or a function of claims."""
    if isinstance(value, FunctionType):
        return value.__module__.startswith(PACKAGE)
    return isinstance(value, CONSTANTS)
