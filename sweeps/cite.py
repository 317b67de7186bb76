"""`attnsvm cite RUN`: what a published number should name, as BibTeX."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError
from attnsvm.record import RUN_FILE, one_line, read_plan, run_state

PAPER = Path(__file__).with_suffix(".bib").read_text().rstrip()
"""The entry of the paper whose theory attnsvm computes."""

LATEX = {letter: rf"\{letter}" for letter in "#$%&_"} | {
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}
"""What letters that mean something to LaTeX are written as."""


def citation(words: Sequence[str]) -> str:
    """Return BibTeX entries of the finished runs or sweeps in folders, and of the paper."""
    if not words:
        raise ConfigError("cite: must have folders of runs or sweeps, as cite multirun/NAME")
    return "\n\n".join([*map(_entry, words), PAPER])


def _entry(word: str) -> str:
    """Return the entry of a folder: of its plan's runs if it is a sweep, else of the run in it."""
    folder = Path(word)
    plan = read_plan(folder)
    folders = [folder / name for name in sorted(plan.runs)] or [folder]
    runs = [_finished(word, run_folder) for run_folder in folders]
    digests = [sha256((run_folder / RUN_FILE).read_bytes()).hexdigest() for run_folder in folders]
    if not plan.runs:
        (run,), (digest,), command = runs, digests, runs[0]["overrides"]
        digests_of = f"signature {run['signature']}; sha256 of its {RUN_FILE} {digest}"
        options = ", ".join(f"{group}={option}" for group, option in run["options"].items())
        title = f"{run['sweep'] or 'a run'} ({options})"
    else:
        pairs = zip(digests, folders, strict=True)
        listed = "".join(
            f"{digest}  {run_folder.name}/{RUN_FILE}\n" for digest, run_folder in pairs
        )
        digest, command = sha256(listed.encode()).hexdigest(), plan.command or []
        digests_of = (
            f"{len(runs)} runs; sha256 of the lines that sha256sum prints of */{RUN_FILE} {digest}"
        )
        title = f"{folder.resolve().name} (a sweep)"
    years = {datetime.fromtimestamp(run["started_s"], UTC).year for run in runs}
    revisions = sorted({run["git_revision"] or "unknown" for run in runs})
    code = sorted({run["code"] for run in runs})  # it differs from that of the revision if changed
    lines = {
        "title": f"attnsvm: {title}",
        "author": "The attnsvm developers",
        "year": str(max(years)),
        "version": ", ".join(sorted({run["version"] for run in runs})),
        "note": f"revision {', '.join(revisions)}; code {', '.join(code)}; "
        f"command: attnsvm {shlex.join(command)}; {digests_of}",
    }
    latex = str.maketrans(LATEX)
    escaped = {name: one_line(text).translate(latex) for name, text in lines.items()}
    fields = ",\n".join(f"  {name:7} = {{{text}}}" for name, text in escaped.items())
    return f"@software{{attnsvm-{digest[:12]},\n{fields}\n}}"


def _finished(word: str, folder: Path) -> Mapping[str, Any]:
    """Return what `run.json` of a finished run says; it has the digests of the other files."""
    state = run_state(folder)
    if not state.finished:
        why = f"{state.state}{f', {state.reason}' if state.reason else ''}"
        raise ConfigError(f"cite {word}: must be a finished run or sweep; {folder.name} is {why}")
    return state.run
