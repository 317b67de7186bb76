"""Names that do not exist: which one was probably meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


SYNONYMS = {
    "lr": ("learning_rate", "step_size", "eta"),
    "steps": ("epochs", "iterations", "num_steps", "max_steps"),
    "n": ("samples", "num_samples"),
    "T": ("tokens", "seq_len", "length"),
    "d": ("dim", "dimension", "embed_dim"),
    "m": ("rank", "head_dim"),
    "trials": ("batch_size", "instances", "repeats"),
}
"""Field -> what it is called elsewhere."""

MEANT = {name: field for field, names in SYNONYMS.items() for name in names}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name with the meaning of `name`, or the most like it; None if none is."""
    lower: dict[str, str] = {}
    for word in known:
        lower.setdefault(word.lower(), word)
    if (meant := MEANT.get(name.lower(), "")).lower() in lower:
        return meant
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    close = close or [word for word in lower if len(name) > 2 and name.lower() in word]
    return lower[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean NAME? ` for the known name that is most like `name`; "" if none is."""
    meant = nearest(name, known)
    return f"did you mean {meant}? " if meant else ""


def must_be_one_of(name: str, known: Iterable[str]) -> str:
    """Return the end of a refusal: the known name that is most like `name`, and all of them."""
    names = list(known)
    return f"{did_you_mean(name, names)}must be {' | '.join(names)}"


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, which tells the right name of a misspelt keyword argument (TypeError)."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                must = must_be_one_of(name, known)
                raise TypeError(f"{function.__name__}(): unknown argument {name}; {must}")
        return function(*args, **kwargs)

    return checked
