"""The documentation is run, and everything that it names exists."""

import dataclasses
import importlib.util
import re
import sys
import textwrap
import tomllib
import types
from decimal import Decimal
from functools import cache
from itertools import takewhile
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.config import GROUPS, RunConfig, SelectionConfig, SvmConfig
from attnsvm.sweeps.cite import citation
from attnsvm.sweeps.claims import all_claims
from attnsvm.sweeps.verdicts.derive import COMMITTED, read
from docs.pages import PAGES as GENERATED
from tests.quick import quick_rows

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "multirun/README.md"]
SITE = {*DOCS.glob("*.md"), *DOCS.glob("findings/*.md"), *(DOCS / name for name in GENERATED)}
PAGES = [*FILES, *sorted(SITE)]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf/sweep").glob("*.yaml"))
PACKAGES = "attnsvm|sweeps|hydra_plugins|benchmarks"


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


@each_page
def test_paths_exist(page):
    text = text_of(page)
    for path in re.findall(rf"`((?:{PACKAGES}|conf|tests|docs)/[\w/.]+)`", text):
        assert "my_" in path or (ROOT / path).exists(), path
    for path in re.findall(r"(?:attnsvm-\w+|--docs) (docs/\w[\w/]*(?:\.zip)?)", text):
        assert (ROOT / path).is_dir() or (path.endswith(".zip") and (ROOT / path).is_file()), path
    for name in re.findall(r"`(\w+\.py)`", text):
        assert list(ROOT.glob(f"attnsvm/**/{name}")), name


@each_page
def test_modules_and_their_names_can_be_imported(page):
    for name in re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)", text_of(page)):
        if re.search(r"\.(py|toml|yaml)$", name):
            continue
        module, _, attribute = name.rpartition(".")
        imported = importlib.import_module(module)
        assert hasattr(imported, attribute) or importlib.import_module(name), name


def test_the_page_of_one_run_names_functions_of_its_files_and_at_most_35_files():
    page = (ROOT / "docs/how_a_run_works.md").read_text()
    rows = re.findall(r"^\| `(attnsvm/\S+\.py)` \| (.*) \|$", page, re.MULTILINE)
    assert rows
    for path, text in rows:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = importlib.import_module(name)
        for name in re.findall(r"`([A-Za-z][\w.]*)`", text):
            if name not in ("_target_", "run.json") and not name.startswith("attnsvm"):
                assert attrgetter(name)(module)
    stages, branches = importlib.import_module("attnsvm.experiment.stages"), set()
    for name in re.findall(r"`Stages\.(\w+)`", page):
        assert callable(getattr(stages.Stages, name))
        branches.add(name)
    assert set(stages.SELECTIONS) == {"top", "multi", "scc", "optimal"} < branches
    count = len(set(re.findall(r"`(attnsvm/\S+\.py)`", page)))
    assert count <= 35
    assert f"This page names {count} files" in page


@each_page
def test_commands_name_what_exists(page):
    text = text_of(page)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^ *|`)make ([\w-]+)", text, re.MULTILINE)) <= set(targets)
    for module in re.findall(r"python -m ((?:sweeps|benchmarks)[\w.]*)", text):
        assert importlib.util.find_spec(module), module
    for name in re.findall(r"python -m benchmarks ([a-z]\w*)", text):
        assert (ROOT / f"benchmarks/{name}.py").exists(), name
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(re.findall(r"(?:^ +|`|\$ )(attnsvm-\w+)", text, re.MULTILINE)) <= set(scripts)


@each_page
def test_options_and_fields_exist(page):
    text = text_of(page)
    for sweep in re.findall(r"sweep=(\w+)", text):
        assert sweep in ("NAME", "my_sweep", *EXPERIMENTS), sweep
    groups = f"{'|'.join(GROUPS)}|selection|svm|hydra/launcher|hydra/callbacks"
    for group, option in re.findall(rf"(?<![\w./])({groups})=(\w+)", text):
        named = f"{group}={option}" in {"hydra/launcher=joblib", *OF_THE_EXAMPLE}
        assert named or (ROOT / f"conf/{group}/{option}.yaml").exists(), f"{group}={option}"
    schemas = {group: list(options.values()) for group, options in GROUPS.items()}
    schemas |= {"selection": [SelectionConfig], "svm": [SvmConfig]}
    known = {
        f"{group}.{field.name}"
        for group, options in schemas.items()
        for schema in options
        for field in dataclasses.fields(schema)
    }
    typed = re.findall(rf"(?<![\w./])((?:{'|'.join(schemas)})\.\w+)=", text)
    assert set(typed) <= known | OF_THE_EXAMPLE
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
    assert named == re.findall(r"{figure} figures/(\w+)\.png", text)
    assert sorted(named) == EXPERIMENTS
    for name in EXPERIMENTS:
        assert f"    attnsvm sweep={name}\n" in text
        assert f"    attnsvm-verify docs/records/{name}\n" in text


def test_the_api_page_has_every_public_name():
    import attnsvm

    text = (ROOT / "docs/api.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: attnsvm\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted({*attnsvm.__all__, "testing"} - {"__version__", "nn"})


def test_the_headlines_are_three_tables_with_the_counts_of_their_claims():
    page = (ROOT / "docs/headlines.md").read_text()
    tables = [part.count("\n|") - 2 for part in page.split("\n## ")[1:]]
    assert len(tables) == 3
    assert 8 <= min(tables) <= max(tables) <= 10
    entries, claims = read(COMMITTED), all_claims()
    counts = re.findall(
        r"claims\.md#(\w+)\) (holds|open|fails): (\d+) of (\d+)(?:, undecided (\d+))?", page
    )
    assert len(counts) == page.count("claims.md#")
    for name, word, *numbers in counts:
        verdict = entries[name].verdict
        assert verdict.kind == {"open": "undecided"}.get(word, word), name
        late = verdict.met - verdict.holds - verdict.fails
        told = (
            [verdict.fails, verdict.met, late] if word == "fails" else [verdict.holds, verdict.met]
        )
        assert told == [int(number or 0) for number in numbers[: len(told)]], name
    stated = [claim for claim in claims if claim.reading == "stated"]
    assert not any(entries[claim.name].verdict.fails for claim in stated)
    assert f"Of the {len(stated)} [claims]" in page


def test_every_page_is_in_the_menu():
    listed = set(re.findall(r"^.* <([\w/]+)>$", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    pages = [p for p in (ROOT / "docs").rglob("*") if p.suffix in (".md", ".ipynb")]
    names = {str(p.relative_to(DOCS).with_suffix("")) for p in {*pages, *SITE}}
    assert listed == {name for name in names if not name.startswith("records/")} - {"index"}
