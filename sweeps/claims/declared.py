"""The declared claims: a yaml file for every paper, named by its arXiv number.

A file has the `runs` of its claims, name -> overrides of a sweep, and the `claims`, name -> fields
of `Claim`. Claims name hypotheses that several of them share, from the section `hypotheses` of the
file or of `shared.yaml`, which also has columns and rules of several papers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from .claim import Claim, Hypothesis, Runs
from .evidence import OTHERWISE, Rule

FOLDER = Path(__file__).parent
SHARED = "shared"


def all_claims() -> list[Claim]:
    """Return every claim, by paper and name."""
    contents = {path.stem: _content(path) for path in FOLDER.glob("*.yaml")}
    shared = contents.pop(SHARED)
    found = [claim for paper, one in contents.items() for claim in _claims(paper, one, shared)]
    return sorted(found, key=lambda claim: (claim.paper, claim.name))


def _content(path: Path) -> Any:
    return OmegaConf.to_container(OmegaConf.load(path), resolve=False)


def _claims(paper: str, content: Any, shared: Any) -> Iterator[Claim]:
    runs = {name: Runs.of(name, overrides) for name, overrides in content["runs"].items()}
    known = shared["hypotheses"] | content.get("hypotheses", {})
    for name, fields in content["claims"].items():
        fields |= {
            "hypotheses": dict(_hypotheses(fields["hypotheses"], known)),
            "prediction": tuple(_rules(fields["prediction"], shared["rules"])),
            "columns": shared["columns"] | fields.get("columns", {}),
            "runs": tuple(runs[one] for one in fields["runs"]),
        }
        yield Claim(name=name, paper=paper, **fields)


def _hypotheses(given: Any, known: Mapping[str, Any]) -> Iterator[tuple[str, Hypothesis]]:
    """Yield hypotheses in words with their conditions; words alone are of a shared one."""
    for one in given:
        ((words, condition),) = ({one: known[one]} if isinstance(one, str) else one).items()
        plain = isinstance(condition, str)
        yield words, (condition, OTHERWISE) if plain else (condition["is"], condition["known"])


def _rules(given: Any, shared: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield words with their conditions; a word alone stands for shared rules."""
    for one in given:
        if isinstance(one, str):
            yield from _rules(shared[one], shared)
        else:
            yield from one.items()
