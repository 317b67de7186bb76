"""`attnsvm-claims hunt`: an instance on which a claim fails, made as small as it goes.

Instances are drawn at random sizes up to those of the claim's runs until one refutes the claim.
Then samples, tokens, dimensions and initial weights are left out, and the numbers rounded, as long
as the claim still fails. What is left is recorded as any run, so that `attnsvm-verify` proves it.
"""

import ast
import itertools
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from attnsvm.config.compose import composed
from attnsvm.config.groups import CrossAttentionConfig, SphereConfig
from attnsvm.config.instantiate import places_of
from attnsvm.config.sources import conf_folder
from attnsvm.display.pace import doing, each
from attnsvm.record.archive import pack

from ..claims import FAILS, HOLDS, Claim, Runs
from . import case as simpler
from .case import Case
from .derive import verdict
from .judging import Judge, Size, written
from .page import command, perform

AT_ONCE = 100
"""Instances that are drawn and trained together."""

Tell = Callable[[str], None]
Failing = Callable[[Sequence[Case]], Case | None]
"""Returns the simplest one of some cases of one shape on which a claim fails; None if on none."""


def hunt(claim: Claim, trials: int, directory: Path, tell: Tell) -> bool:
    """Search for a counterexample among so many instances; shrink and record the first one.

    Returns whether one was found; its record is in `directory`/hunt/NAME, and `tell` gets each line
    of the result. ValueError: the claim's runs draw no instances that can be shrunk; RuntimeError:
    the record of the shrunk instance does not refute the claim.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        found = _search(claim, trials, rng, tell, Path(place))
        if found is None:
            return False
        judge, first = found
        with doing("shrinking"):
            least = shrunk(first, judge.lightest, rng, tell)
    tell(f"numbers are multiples of 1/{least.denominator()}:")
    for line in least.words():
        tell(f"  {line}")
    _record(judge, least, directory, tell)
    return True


def _search(
    claim: Claim, trials: int, rng: np.random.Generator, tell: Tell, place: Path
) -> tuple[Judge, Case] | None:
    """Return the first instance that refutes the claim; None if none of so many does."""
    cells = [cell for runs in claim.runs for cell in cells_of(runs)]
    judges = [(Judge(claim, overrides, place), largest) for overrides, largest in cells]
    seen: Counter[str] = Counter()
    unmet = Counter(dict.fromkeys(claim.hypotheses, 0))
    for seed in each("part", range(0, trials, AT_ONCE)):
        judge, largest = judges[rng.integers(len(judges))]
        bounds = zip((1, 2, 1), largest, strict=True)
        n, T, d = (int(rng.integers(low, high + 1)) for low, high in bounds)
        rows = judge.drawn((n, T, d), seed, min(AT_ONCE, trials - seed))
        words = rows["ruling"]
        seen.update(words)
        unmet.update({name: int((~rows[name].fillna(True).astype(bool)).sum()) for name in unmet})
        failing = words.index[words == FAILS]
        if len(failing):
            tell(f"{claim.name} fails: n={n}, T={T}, d={d}, seed={failing[0]}; {_tally(seen)}")
            case = judge.case((n, T, d), int(failing[0]))
            if judge.lightest([case]) is not None:
                return judge, case
            tell("  passed over: two of its tokens are equal, or rounding decides")
    tell(f"{claim.name}: no counterexample; {_tally(seen)}")
    if seen[""] == seen.total():
        ((name, count),) = unmet.most_common(1)
        tell(f"  not met most often, on {count}: {name} ({_remedy(claim, name)})")
    return None


def _remedy(claim: Claim, hypothesis: str) -> str:
    """Return the condition of a hypothesis, and the options that would meet it, if they set it."""
    condition, _ = claim.hypotheses[hypothesis]
    nodes = list(ast.walk(ast.parse(condition)))
    named = {node.id: places_of(node.id) for node in nodes if isinstance(node, ast.Name)}
    options = {name: " | ".join(places) for name, places in named.items() if places}
    negated = {under for node in nodes if isinstance(node, ast.UnaryOp) for under in ast.walk(node)}
    for node in (one for one in nodes if one not in negated):
        match node:
            case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value)]) if name in options:
                options[name] += f"={value!s}"
    set_by = f"set by {', '.join(options.values())}" if options else "measured; more trials=N"
    return f"{condition}; {set_by}"


def _tally(seen: Counter[str]) -> str:
    drawn, unmet, holds, fails = seen.total(), seen[""], seen[HOLDS], seen[FAILS]
    undecided = drawn - unmet - holds - fails
    return (
        f"{drawn} instances drawn: hypotheses not met on {unmet}, holds on {holds}, "
        f"undecided on {undecided}, fails on {fails}"
    )


# --- what is drawn --------------------------------------------------------------------------------


def refusal(claim: Claim) -> str:
    """Return why a claim's runs draw no instances that can be shrunk; empty if they do."""
    try:
        for runs in claim.runs:
            list(cells_of(runs))
    except ValueError as error:
        return str(error)
    return ""


def cells_of(runs: Runs) -> Iterator[tuple[list[str], Size]]:
    """Yield the cells of some runs: overrides besides the data's, and the largest n, T, d.

    ValueError: they have other data than the sphere or another model than cross-attention, or take
    fixed steps, so that a shrunk instance would not be one of theirs.
    """
    named = [word for word in runs.overrides if word.startswith("sweep=")]
    files = (conf_folder() / f"{word.replace('=', '/')}.yaml" for word in named)
    grids = (OmegaConf.load(file).hydra.sweeper.params for file in files)
    grid = [f"{key}={values}" for one in grids for key, values in one.items()]
    given = OverridesParser.create().parse_overrides([*grid, *runs.overrides])
    options = {one.key_or_group: _values(one) for one in given}
    base = composed(named)
    if "gd" in options.get("optimizer", ()):
        raise ValueError(f"{runs.name}: its fixed steps are small enough for unit tokens only")
    sizes = options.pop("data", [])
    if not isinstance(base.data, SphereConfig) or not all(isinstance(one, dict) for one in sizes):
        raise ValueError(f"{runs.name}: only instances of data=sphere are shrunk")
    if "model" in options:
        options["model"] = [one for one in options["model"] if one == "cross_attention"]
    if not isinstance(base.model, CrossAttentionConfig) or not options.get("model", [base.model]):
        raise ValueError(f"{runs.name}: only instances of model=cross_attention are shrunk")
    largest = []
    for name in ("n", "T", "d"):
        values = options.pop(f"data.{name}", []) or [one[name] for one in sizes if name in one]
        largest.append(max(map(int, values or [getattr(base.data, name)])))
    n, T, d = largest
    others = {key: values for key, values in options.items() if key not in ("seed", "trials")}
    words = ([f"{key}={value}" for value in values] for key, values in others.items())
    yield from ((list(cell), (n, T, d)) for cell in itertools.product(*words))


def _values(one: Override) -> list[Any]:
    """Return the values of an override, as text; those of a dict as they are."""
    if one.key_or_group == "data":
        value = one.value()
        return list(value.list) if one.is_sweep_override() else [value]  # type: ignore[union-attr]
    if one.is_sweep_override():
        return list(one.sweep_string_iterator())
    return [one.get_value_element_as_str()]


# --- from an instance to a small one --------------------------------------------------------------


def shrunk(case: Case, failing: Failing, rng: np.random.Generator, tell: Tell) -> Case:
    """Return a case that is as simple as can be found by single steps, and still fails.

    `rng` draws bases and scales; `tell` gets a line for every new size.
    """

    def reduced(case: Case, steps: Callable[[Case], Iterable[list[Case]]]) -> Case:
        while (found := _first(failing, steps(case))) is not None:
            if found.size != case.size:
                tell("  shrunk to n={}, T={}, d={}".format(*found.size))
            case = found
        return case

    case = reduced(case, lambda one: [simpler.from_zero(one), *simpler.smaller(one, rng)])
    for _ in range(2):  # few and small numbers are easier to round
        case = _first(failing, simpler.rounded(case, rng)) or case
        case = reduced(case, lambda one: [simpler.from_zero(one), simpler.nearer_to_zero(one)])
    return case


def _first(failing: Failing, lists: Iterable[list[Case]]) -> Case | None:
    return next((found for cases in lists if cases and (found := failing(cases))), None)


# --- its record -----------------------------------------------------------------------------------


def _record(judge: Judge, case: Case, directory: Path, tell: Tell) -> None:
    """Run the case by the command line, as any run, and rule on its record."""
    claim, place = judge.claim, directory / "hunt"
    folder = place / claim.name
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(claim.name, (*judge.overrides, *written(folder, [case]), "trials=1"))
    ((_, error),) = perform([runs], place, (), 1)
    found = verdict(replace(claim, runs=(runs,)), place)
    if error or found.fails != 1:
        raise RuntimeError(f"{claim.name}: the record in {folder} says: {error or found.sentence}")
    tell(f"recorded by attnsvm {shlex.join(command(runs, place))}")
    tell(f"proved by attnsvm-verify {pack(folder, folder.parent)}")
