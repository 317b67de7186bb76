"""What a claim is, hypotheses and a prediction, and the claims that are declared.

A yaml file for every paper, named by its arXiv number, has the `runs` of its claims, name ->
overrides of a sweep, and the `claims`, name -> fields of `Claim`. Claims name hypotheses that
several of them share, from the section `hypotheses` of the file or of `shared.yaml`, which also has
columns, rules and constants of several papers.
"""

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from omegaconf import OmegaConf

from . import arrays
from .evidence import OF_HISTORY, OTHERWISE, Evidence, Rule, Truths

HOLDS, FAILS = "holds", "fails"

OURS = "ours"
READINGS: Mapping[str, str] = {
    "stated": "a theorem of the paper with its hypotheses, read there",
    "proposed there": "by the paper, as a formula or from its experiments, and not proved",
    "abstract only": "as its abstract or a summary has it; the theorem was not at hand",
    "stronger": "without one of the paper's assumptions, or with more than it promises",
    "carried over": "by us from another model, method or step rule of the paper",
    OURS: "in no paper that we know",
}
"""How a claim follows a paper, and what that means."""

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
    def of(cls, name: str, overrides: str) -> Self:
        """Return the runs of overrides that spaces separate."""
        return cls(name, tuple(overrides.split()))


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and how records decide it; conditions are those of `Evidence`.

    Attributes
    ----------
    name, title, statement : str
        What the command calls it; in a few words; as a formula.
    paper, number, reading : str
        arXiv number, or `OURS`, and what the paper calls it; one of READINGS.
    hypotheses : mapping of str to Hypothesis
        What must hold for an instance, in words -> when it does.
    prediction : sequence of Rule
        The rules that say of an instance `holds`, `fails`, or why it is undecided.
    runs, tolerance
        What is run to test it; how near is near enough, and why.
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
    reading: str
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
        runs = [[of.name, *of.overrides] for of in self.runs]
        rule = [list(self.hypotheses.items()), list(self.prediction)]
        uses = _used(json.dumps(rule), {**sources(), **self.columns})
        parts = [self.statement, runs, self.tolerance, rule, sorted(uses.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    def met(self, hypothesis: str, evidence: Evidence) -> Truths:
        """Return for each instance whether it meets a hypothesis."""
        return evidence.truths(*self.hypotheses[hypothesis])


def _used(text: str, definitions: Mapping[str, str]) -> dict[str, str]:
    """Return the definitions that a text names, and those that they name."""
    uses: dict[str, str] = {}
    texts = [text]
    while texts:
        named = {name for name in re.findall(r"\w+", texts.pop()) if name in definitions}
        new = {name: definitions[name] for name in named - set(uses)}
        uses |= new
        texts += new.values()
    return uses


@cache
def sources() -> dict[str, str]:
    """Return the code of every function in expressions, without comments and docstrings."""
    codes = {}
    for module in (arrays, Evidence):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.FunctionDef) and (module is arrays or node.name in OF_HISTORY):
                if ast.get_docstring(node) is not None:
                    node.body = node.body[1:]
                codes[node.name] = ast.unparse(node)
    return codes


# --- the declared claims --------------------------------------------------------------------------


def all_claims() -> list[Claim]:
    """Return every claim, by paper and name."""
    files = {path.stem: OmegaConf.load(path) for path in Path(__file__).parent.glob("*.yaml")}
    contents: dict[str, Any] = {
        name: OmegaConf.to_container(
            OmegaConf.merge(content, files["shared"].constants), resolve=True
        )
        for name, content in files.items()
    }
    shared = contents.pop("shared")
    claims = [
        claim for paper, content in contents.items() for claim in _claims(paper, content, shared)
    ]
    return sorted(claims, key=lambda claim: (claim.paper, claim.name))


def _claims(paper: str, content: Any, shared: Any) -> Iterator[Claim]:
    runs = {name: Runs.of(name, overrides) for name, overrides in content["runs"].items()}
    known = shared["hypotheses"] | content.get("hypotheses", {})
    for name, fields in content["claims"].items():
        fields |= {
            "hypotheses": dict(_hypotheses(fields["hypotheses"], known)),
            "prediction": tuple(_rules(fields["prediction"], shared["rules"])),
            "columns": shared["columns"] | fields.get("columns", {}),
            "runs": tuple(runs[each] for each in fields["runs"]),
        }
        yield Claim(name=name, paper=paper, **fields)


def _hypotheses(hypotheses: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, Hypothesis]]:
    """Yield hypotheses in words with their conditions; words alone are of a shared one."""
    for hypothesis in hypotheses:
        if isinstance(hypothesis, str):
            hypothesis = {hypothesis: known[hypothesis]}
        ((words, condition),) = hypothesis.items()
        plain = isinstance(condition, str)
        yield words, (condition, OTHERWISE) if plain else (condition["is"], condition["known"])


def _rules(rules: Any, shared: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield words with their conditions; a word alone stands for shared rules."""
    for rule in rules:
        if isinstance(rule, str):
            yield from _rules(shared[rule], shared)
        else:
            yield from rule.items()
