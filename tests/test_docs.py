"""The documentation is run, and everything that it names exists."""

import dataclasses
import importlib
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import types
from decimal import Decimal
from functools import cache
from itertools import takewhile
from operator import attrgetter
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

import attnsvm
from attnsvm.config import GROUPS, RunConfig, SelectionConfig, SvmConfig
from attnsvm.experiment import stages
from attnsvm.sweeps.cite import citation
from attnsvm.sweeps.claims import all_claims
from attnsvm.sweeps.verdicts.derive import COMMITTED, read
from benchmarks.__main__ import NAMES
from docs import speed
from docs.pages import PAGES as GENERATED
from tests.command import BIN, environment, ran
from tests.quick import quick_rows

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "multirun/README.md"]
SITE = {*DOCS.glob("*.md"), *DOCS.glob("findings/*.md"), *(DOCS / name for name in GENERATED)}
PAGES = [*FILES, *sorted(SITE)]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf/sweep").glob("*.yaml"))
PACKAGES = "attnsvm|sweeps|hydra_plugins|benchmarks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@cache
def text_of(page: Path) -> str:
    """Return the text of a page, also of those that the site generates."""
    generated = GENERATED.get(page.name) if page.parent == DOCS else None
    return generated() if generated else page.read_text()


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def run(page: str, monkeypatch, *edit: str) -> dict[str, object]:
    """Run the Python of a page from top to bottom, edited; return the names that it defines."""
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look for their module
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        exec(block.replace(*edit) if edit else block, vars(module))
    return vars(module)


@each_page
def test_every_row_of_a_table_has_the_cells_of_its_head(page):
    """The site drops what is beyond, for example behind a bar that is no border."""
    lines = text_of(page).splitlines()
    for row, gap, next_row in zip(lines, lines[1:], lines[2:], strict=False):
        assert gap or not (row.startswith("| ") and next_row.startswith("| ")), next_row
    for place, line in enumerate(lines):
        if re.fullmatch(r"\|[-| :]+\|", line):
            rows = [lines[place - 1], *takewhile(lambda row: row.startswith("|"), lines[place:])]
            cells = {row: len(re.findall(r"(?<!\\)\|", row)) for row in rows}
            assert set(cells.values()) == {cells[line]}, cells


def test_the_five_lines_of_the_readme_print_what_they_say(monkeypatch, capsys):
    run("README.md", monkeypatch)
    block = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    assert len([line for line in block.splitlines() if line]) == 5
    assert "4.61" in capsys.readouterr().out
    assert block.rstrip().endswith("# 4.61")


def test_the_page_shows_what_cite_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    entry = citation(["docs/records/heads"]).split("\n\n")[0]
    assert textwrap.indent(entry, "    ") in (ROOT / "docs/sharing.md").read_text()


def test_the_release_has_its_version_everywhere_and_the_lowest_versions_are_those_declared():
    assert f"\nversion: {attnsvm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert (
        re.findall("^## (.*)", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)[0]
        == attnsvm.__version__
    )
    pinned = dict(
        re.findall("^(.*)==(.*)$", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE)
    )
    for declared in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["joblib"]):
        name, lowest = re.match(r"([\w-]+)>=([\d.]+)", declared).groups()
        assert name == "torch" or re.fullmatch(rf"{lowest}(\.0)*", pinned[name])


def test_the_page_of_speed_and_the_readme_have_what_was_measured():
    page = text_of(DOCS / "speed.md")
    assert speed.page() == page
    assert speed.chart()
    modules = re.findall(r"^\| `([a-z]\w*)`", page, re.MULTILINE)
    assert modules == [*NAMES]
    assert speed.readme() == text_of(ROOT / "README.md")


HOLDS = quick_rows(
    ("start", lambda names: names["distance"].nanmedian() < 0.01),
    ("library", lambda names: names["W_svmeq"].shape == (10, 6, 6)),
    ("findings/pretrained", lambda names: len(names["layer"].K) == 4),
    ("findings/joint", lambda names: (names["law"].duality_gap < 1e-6).all()),
    ("solvers", lambda names: names["solution"].rank == 1),
    ("nn", lambda names: names["q"].grad.item() == pytest.approx(1.9287e-22, rel=1e-4)),
    ("plugins", lambda names: {"Cubic", "RootSteps", "CubicHeadConfig"} <= names.keys()),
)


@pytest.mark.parametrize(("page", "holds"), HOLDS)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, holds, tmp_path, monkeypatch):
    if page == "plugins":  # it writes files
        monkeypatch.chdir(tmp_path)
    named = ("attnsvm.one_minus", "distance = attnsvm.one_minus") if page == "start" else ()
    assert holds(run(f"docs/{page}.md", monkeypatch, *named))


@pytest.mark.full
def test_the_afternoon_prints_what_its_page_says(tmp_path):
    page, path = text_of(DOCS / "start.md"), f"{BIN}:{os.environ['PATH']}"
    files = re.findall(r"`(my_\w+\.py)`[^`]*```py\n(.*?)```", page, re.DOTALL)
    assert [(tmp_path / name).write_text(text) for name, text in files]
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in block.removeprefix("$ ").split("\n$ "):
            command, shown = re.split(r"(?<!\\)\n", f"{part}\n", maxsplit=1)
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment() | {"PATH": path},
                capture_output=True,
                text=True,
                timeout=600,
                check=True,
            )
            expected = ".*".join(re.escape(words.strip()) for words in shown.split("..."))
            assert re.search(expected, done.stdout, re.DOTALL), done.stdout


OF_THE_EXAMPLE = {"head=cubic", "head=Cubic", "head.power"}
"""What the page on plug-ins adds."""


def anchors(page: Path) -> set[str]:
    """Return the names by which a link can point to a heading of `page`."""
    headings = re.findall(r"^#+ (.*)", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


DIARY = re.compile(
    r"\b(as|than) before\b|\(before\b|\bbefore:|since then|so far|earlier version|\bmended\b"
    r"|no longer|changed since|(?<!\bis )(?<!\bare )(?<!\bbe )\bused to\b|at the last (?!step)",
    re.IGNORECASE,
)
"""What a page says that tells how it came to be."""


@each_page
def test_no_page_is_a_diary(page):
    text = " ".join(text_of(page).split())
    assert [match[0] for match in DIARY.finditer(text)] == []


@each_page
def test_links_exist(page):
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", text_of(page)):
        other = (page.parent / target).resolve() if target else page
        assert other.exists() or other in SITE, target
        generated = other.parent == DOCS and other.name in GENERATED
        assert not generated or page in SITE, f"{target}: not in a checkout"
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def importable(name: str) -> object:
    """Return a module, or an attribute of one, of a dotted name."""
    module, _, attribute = name.rpartition(".")
    imported = importlib.import_module(module or attribute)
    return getattr(imported, attribute, None) or importlib.import_module(name)


@each_page
def test_files_modules_and_commands_exist(page):
    text = text_of(page)
    for path in re.findall(rf"`((?:{PACKAGES}|conf|tests|docs)/[\w/.]+)`", text):
        assert "my_" in path or (ROOT / path).exists(), path
    for path in re.findall(r"(?:attnsvm-\w+|--docs) (docs/\w[\w/]*(?:\.zip)?)", text):
        assert (ROOT / path).is_dir() or (path.endswith(".zip") and (ROOT / path).is_file()), path
    for name in re.findall(r"`(\w+\.py)`", text):
        assert "my_" in name or list(ROOT.glob(f"attnsvm/**/{name}")), name
    dotted = rf"`((?:{PACKAGES})(?:\.\w+)+)|python -m ((?:sweeps|benchmarks|docs)[\w.]*)"
    for name in map("".join, re.findall(dotted, text)):
        assert re.search(r"\.(py|toml|yaml)$", name) or importable(name)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^ *|`)make ([\w-]+)", text, re.MULTILINE)) <= set(targets)
    assert set(re.findall(r"(?:^ +|`|\$ )(attnsvm-\w+)", text, re.MULTILINE)) <= set(
        PROJECT["scripts"]
    )


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_every_command_has_its_help(command, tmp_path):
    assert ran("--help", command=command, cwd=tmp_path).stdout


def test_the_page_of_one_run_names_functions_of_its_files_and_at_most_35_files():
    page = (ROOT / "docs/how_a_run_works.md").read_text()
    rows = re.findall(r"^\| `(attnsvm/\S+\.py)` \| (.*) \|$", page, re.MULTILINE)
    assert rows
    for path, text in rows:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in re.findall(r"`([A-Za-z][\w.]*)`", text):
            if name not in ("_target_", "run.json") and not name.startswith("attnsvm"):
                assert attrgetter(name)(importlib.import_module(module))
    branches = {name: getattr(stages.Stages, name) for name in re.findall(r"`Stages\.(\w+)`", page)}
    assert set(stages.SELECTIONS) == {"top", "multi", "scc", "optimal"} < set(branches)
    count = len(set(re.findall(r"`(attnsvm/\S+\.py)`", page)))
    assert count <= 35
    assert f"This page names {count} files" in page


@each_page
def test_options_and_fields_exist(page):
    text = text_of(page)
    for sweep in re.findall(r"sweep=(\w+)", text):
        assert sweep in ("NAME", "my_sweep", *EXPERIMENTS), sweep
    schemas = {group: list(options.values()) for group, options in GROUPS.items()}
    schemas |= {"selection": [SelectionConfig], "svm": [SvmConfig]}
    names = "|".join(schemas)
    typed = re.findall(rf"(?<![\w./])((?:{names}|hydra/launcher|hydra/callbacks)=\w+)", text)
    options = {
        word for word in typed if not (ROOT / f"conf/{word.replace('=', '/')}.yaml").exists()
    }
    assert options <= {"hydra/launcher=joblib", *OF_THE_EXAMPLE}
    fields = re.findall(rf"(?<![\w./])({names})\.(\w+)=", text)
    known = {
        name: {field.name for schema in schemas[name] for field in dataclasses.fields(schema)}
        for name in schemas
    }
    assert {
        f"{name}.{field}" for name, field in fields if field not in known[name]
    } <= OF_THE_EXAMPLE
    switches = {field.name for field in dataclasses.fields(RunConfig)}
    assert set(re.findall(r"`(\w+)=true`", text)) <= switches


MARK = "<!-- not recorded: "
"""Begins the line that says why no table has the numbers of its block; alone, of its section."""


def written(text: str) -> list[str]:
    """Return the numbers of more than two digits, but of code, comments, links, papers, AVX-512."""
    code = r"<!--.*?-->|^```.*?^```|^    .*?$|`[^`]*`|\]\([^)]*\)|https?://\S+|\b\d{4}\.\d{5}\b|AVX-512"
    text = re.sub(code, "", text, flags=re.MULTILINE | re.DOTALL)
    number = r"(?<![^\W_])(?<!\.)\d+(?: \d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?!\d)(?: ?%)?"
    numbers = re.findall(number, text)
    return [number for number in numbers if len(re.sub(r"e.*|[ .%]|^[0.]+", "", number)) > 2]


@cache
def stored(name: str) -> np.ndarray:
    """Return the numbers in tables, records and settings of an experiment."""
    files = [ROOT / f"conf/sweep/{name}.yaml", ROOT / f"docs/tables/{name}/about.json"]
    texts = "".join(path.read_text() for path in files if path.exists())
    numbers = [np.array(re.findall(r"\d+(?:\.\d+)?", texts), dtype=float)]
    records = (ROOT / "docs/records" / name).glob("*/trials.parquet")
    for path in (*records, *(ROOT / "docs/tables" / name).glob("*.parquet")):
        numbers += [np.ravel(pd.read_parquet(path).select_dtypes(["number"]).astype(float))]
    return np.unique(np.abs(np.concatenate(numbers)))


def is_stored(number: str, names: list[str]) -> bool:
    """Return whether a table has what rounds to a number or, if it ends with %, to that share."""
    exact = Decimal(number.replace(" ", "").rstrip("%"))
    half = 0.5000001 * 10.0 ** exact.as_tuple().exponent
    scaled = (by * stored(name) for name in names for by in (1, 100)[: 1 + number.endswith("%")])
    return any((np.abs(values - float(exact)) <= half).any() for values in scaled)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "claims.md"], ids=str)
def test_numbers_are_on_record_or_say_why_not(page):
    """In tables of the experiments that a section names, or in pages where they are tested."""
    pages = [DOCS / f"{name}.md" for name in ("experiments", "claims")]
    texts = [text_of(other) for other in pages if other != page]
    tested = {number.rstrip(" %") for text in texts for number in written(text)}
    missing = []
    for section in re.split(r"\n(?=#+ )", text_of(page)):
        names = [name for name in EXPERIMENTS if re.search(rf"\b{name}\b", section)]
        blocks = [] if f"\n\n{MARK}" in section else section.split("\n\n")
        numbers = written("\n\n".join(block for block in blocks if MARK not in block))
        open_ = [number for number in {*numbers} if number.rstrip(" %") not in tested]
        missing += [number for number in open_ if not is_stored(number, names)]
    assert not missing


def test_numbers_are_found_with_units_and_only_percent_are_shares(monkeypatch):
    text = "gap 0.734x, 7.34e+05, _0.735_, 73.6 %, 737ms, `0.738`, arXiv 2308.16898, 99"
    assert written(text) == ["0.734", "7.34e+05", "0.735", "73.6 %", "737"]
    monkeypatch.setattr(f"{__name__}.stored", lambda name: np.array([0.12341]))
    numbers = ("0.123", "0.124", "12.34 %", "12.34", "12.35 %")
    assert [number for number in numbers if is_stored(number, ["any"])] == ["0.123", "12.34 %"]


def test_the_page_of_experiments_has_every_experiment():
    text = text_of(DOCS / "experiments.md")
    named = re.findall(r"^### (\w+)", text, re.MULTILINE)
    figures = re.findall(r"{figure} figures/(\w+)\.png", text)
    assert named == [name for name in figures if name != "pretrained_heads_attention"]
    assert sorted(named) == EXPERIMENTS
    for name in EXPERIMENTS:
        assert f"    attnsvm sweep={name}\n" in text
        assert f"    attnsvm-verify docs/records/{name}\n" in text


def test_the_api_page_has_every_public_name():
    text = (ROOT / "docs/api.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: attnsvm\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted({*attnsvm.__all__, "testing"} - {"__version__", "nn"})


def test_the_headlines_are_three_tables_with_the_counts_of_their_claims():
    page = (ROOT / "docs/headlines.md").read_text()
    assert len(page.split("\n## ")) == 4
    entries, claims = read(COMMITTED), all_claims()
    count = r"claims\.md#(\w+)\) (holds|open|fails): (\d+) of (\d+)(?:, undecided (\d+))?"
    counts = re.findall(count, page)
    assert len(counts) == page.count("claims.md#")
    for name, word, number, met, undecided in counts:
        verdict = entries[name].verdict
        assert verdict.kind == {"open": "undecided"}.get(word, word), name
        late = verdict.met - verdict.holds - verdict.fails if word == "fails" else 0
        counted = verdict.fails if word == "fails" else verdict.holds
        assert [counted, verdict.met, late] == [int(x or 0) for x in (number, met, undecided)], name
    stated = [claim for claim in claims if claim.reading == "stated"]
    assert not any(entries[claim.name].verdict.fails for claim in stated)
    assert f"Of the {len(stated)} [claims]" in page


def test_notebooks_are_stored_without_output():
    for path in DOCS.glob("notebooks/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_every_page_is_in_the_menu():
    listed = set(re.findall(r"^.* <([\w/]+)>$", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    pages = [p for p in (ROOT / "docs").rglob("*") if p.suffix in (".md", ".ipynb")]
    names = {str(p.relative_to(DOCS).with_suffix("")) for p in {*pages, *SITE}}
    assert listed == {name for name in names if not name.startswith("records/")} - {"index"}
