"""What a claim is: hypotheses and a prediction, each decided for every recorded instance."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from . import arrays
from .evidence import OF_HISTORY, Evidence, Rule, Truths

HOLDS, FAILS = "holds", "fails"

OURS = "ours"
"""In the place of a paper: the claim is of this project, and no paper states it."""

STATED, STRONGER, CARRIED_OVER = "stated", "stronger", "carried over"
"""How a claim follows a paper: as it is stated there; without one of the paper's assumptions, or
with more than it promises; or said there of another model or method."""

READINGS = (STATED, STRONGER, CARRIED_OVER, OURS)

Hypothesis = tuple[str, str]
"""The condition that an instance meets, and the condition under which that is known."""


@dataclass(frozen=True)
class Runs:
    """The runs that test a claim: an ordinary sweep in a folder of its own, `name`.

    Claims with the same runs share the folder.
    """

    name: str
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, name: str, overrides: str) -> Runs:
        """Return the runs of overrides that spaces separate."""
        return cls(name, tuple(overrides.split()))


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and how records decide it.

    Conditions are expressions as `Evidence` evaluates them.

    Attributes
    ----------
    name : str
        What the command calls it.
    paper, number : str
        arXiv number, or `OURS`, and what the paper calls it.
    title, statement : str
        In a few words; as a formula.
    hypotheses : mapping of str to Hypothesis
        What must hold for an instance, in words -> when it does.
    prediction : sequence of Rule
        The rules that say of an instance `holds`, `fails`, or why it is undecided.
    runs : tuple of Runs
        What is run to test it.
    tolerance : str
        How near is near enough, and why.
    reading : str
        One of READINGS.
    columns : mapping of str to str
        Names in its conditions that are no columns on record -> their expressions.
    """

    name: str
    paper: str
    number: str
    title: str
    statement: str
    hypotheses: Mapping[str, Hypothesis]
    prediction: Sequence[Rule]
    runs: tuple[Runs, ...]
    tolerance: str
    reading: str = STATED
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Who states it."""
        return OURS if self.paper == OURS else f"arXiv {self.paper}"

    @property
    def digest(self) -> str:
        """What a verdict depends on besides attnsvm: it changes when claim, runs or rule do.

        It covers the columns and functions that the conditions name, and what these name.
        """
        runs = [[one.name, *one.overrides] for one in self.runs]
        rule = [list(self.hypotheses.items()), list(self.prediction)]
        uses = _used(json.dumps(rule), {**sources(), **self.columns})
        parts = [self.statement, runs, self.tolerance, rule, sorted(uses.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    def met(self, hypothesis: str, evidence: Evidence) -> Truths:
        """Return for each instance whether it meets a hypothesis."""
        return evidence.truths(*self.hypotheses[hypothesis])


def _used(text: str, definitions: Mapping[str, str]) -> dict[str, str]:
    """Return the definitions that a text names, and those that they name."""
    found: dict[str, str] = {}
    texts = [text]
    while texts:
        named = {name for name in re.findall(r"\w+", texts.pop()) if name in definitions}
        new = {name: definitions[name] for name in named - set(found)}
        found |= new
        texts += new.values()
    return found


@cache
def sources() -> dict[str, str]:
    """Return the code of every function in expressions, without comments and docstrings."""
    found = {}
    for one in (arrays, Evidence):
        for node in ast.walk(ast.parse(inspect.getsource(one))):
            if isinstance(node, ast.FunctionDef) and (one is arrays or node.name in OF_HISTORY):
                if ast.get_docstring(node) is not None:
                    node.body = node.body[1:]
                found[node.name] = ast.unparse(node)
    return found
