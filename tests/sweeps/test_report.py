"""The report says everything that is on record, as text, and the command says what is missing."""

import dataclasses
import html
import html.parser
import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import attnsvm
from attnsvm import record
from attnsvm.record.folder import write, write_failure
from attnsvm.record.provenance import provenance
from attnsvm.sweeps import aggregate, figures, report, style
from attnsvm.sweeps.conclusion import conclusion
from attnsvm.sweeps.report.page import QUESTION, report_page
from attnsvm.sweeps.search import search_of
from attnsvm.sweeps.status import main as status
from tests.faults import configs, prepared
from tests.sweeps import synthetic


@pytest.fixture
def rank(tmp_path):
    return synthetic.rank_frames(tmp_path, [(15, 5)])


@pytest.fixture
def own(monkeypatch):
    """One small figure in place of those of a sweep; returns what draws it."""
    drawings = [figures.Drawing("own", "", lambda: style.figure(3, 2))]
    drawer = SimpleNamespace(
        tables=lambda frames: {"own": frames.runs}, draw=lambda *_: drawings, drawings=drawings
    )
    monkeypatch.setattr(figures, "figure_module", lambda *_: drawer)
    return drawer


class Reader(html.parser.HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, page):
        super().__init__()
        self.structure, self.attributes, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.structure.append((tag, *(name for name, _ in attrs)))
        self.attributes += attrs

    def handle_comment(self, data):
        self.structure.append(data)

    def handle_data(self, data):
        self.text += data


def stands_alone(path):
    """Read a page, which loads nothing from elsewhere."""
    text = path.read_text()
    assert "http" not in re.sub(r'content="[^"]*"|http-equiv', "", text)
    assert "url(" not in text
    return Reader(text)


def test_the_facts_add_up_below_the_question_of_the_records(rank):
    facts = {"question": "Does <rank> grow?", "repeated": 7, "disagreeing": 2}
    page = report_page(dataclasses.replace(rank, **facts), [], {})
    assert '<p class="lead">Does &lt;rank&gt; grow?</p>' in page
    assert "<b>7</b> duplicate rows left out" in page
    assert "2 of them hold other results than the row that is kept" in page
    page = report_page(dataclasses.replace(rank, question=""), [], {})  # of an older record
    assert '<p class="lead">' not in page
    assert QUESTION in report_page(dataclasses.replace(rank, name="", question=""), [], {})
    listed = re.findall(r"<li><b>(\d+)</b> ([\w ]+)</li>", page)
    counted = {what: int(count) for count, what in listed}
    total = counted.pop("instances")
    assert sum(counted.values()) == total == len(rank.rows) + 3  # both lost runs are one cell
    assert (counted["failed"], counted["missing"]) == (1, 3)
    runs = rank.runs.assign(state="failed")
    lost = dataclasses.replace(rank, runs=runs, rows=pd.DataFrame())
    assert lost.statuses == {"failed": 3 * 3}
    files = report.write_report(lost)
    assert files.figures == ()
    assert "nothing to draw yet" in files.html.read_text()


def test_the_command_is_safe_in_a_shell_and_complete(rank):
    words = ["attnsvm", "-m", "data={n:2,T:3}", "head._target_='; rm -rf x", "data.d=2,4"]
    folder = Path("a folder's")
    swept = dataclasses.replace(rank, command=shlex.join(words), directory=folder)
    page = report_page(swept, [], {})
    (block,) = re.findall("<pre>\n(.*?)</pre>", page, re.DOTALL)
    lines = html.unescape(block).splitlines()
    assert shlex.split(lines[0]) == words
    assert shlex.split(lines[1]) == ["attnsvm-report", str(folder)]


def test_pages_are_pictures_and_a_paper_is_pdfs_of_a_column_or_a_page_with_captions(rank, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("rank_vs_d_1.png", "rank_vs_d_2.gif", "rank_vs_d_own.png", "rank_vs_ds.png"):
        (folder / name).touch()  # two pages of an earlier report, and files of the user
    files = report.write_report(rank)
    first = {p: p.read_bytes() for p in (files.html, *files.figures, *files.tables)}
    kinds = [
        f"rank_vs_d{end}.{kind}" for end in ("", "_infeasible") for kind in ("pdf", "png", "txt")
    ]
    names = [*(f"figures/{kind}" for kind in kinds), "report.html", "tables/rank_vs_d.csv"]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in first) == names
    page = stands_alone(files.html)
    addresses = [value for name, value in page.attributes if name in ("src", "href")]
    assert all(address.startswith(("data:", "figures/", "tables/")) for address in addresses)
    for words in ("1 missing, 1 corrupt of 4 runs", "sha256 differs", "two tokens of equal score"):
        assert words in page.text
    users = {folder / "rank_vs_d_own.png", folder / "rank_vs_ds.png"}
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == {*first, *users}
    files = report.write_report(rank, paper=True)
    assert {p: p.read_bytes() for p in first} == first  # the same bytes; the page keeps its own
    assert {path.suffix for path in files.figures} == {".pdf", ".txt"}
    for path in files.figures:
        content = path.read_bytes()
        if path.suffix == ".pdf":
            (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", content)
            assert min(abs(float(width) / 72 * 25.4 - mm) for mm in (85, 170)) < 0.1
            assert b"FontFile2" in content  # an embedded TrueType font
            assert b"/Type3" not in content
        else:
            assert b"certified infeasible" in content


def test_a_figure_that_fails_costs_no_other_one_and_no_table(rank, own, tmp_path):
    earlier = tmp_path / "figures/bad.png"
    earlier.parent.mkdir()
    earlier.touch()

    def failing(*_):
        raise ValueError("no\nsuch <panel>")

    own.drawings.insert(0, figures.Drawing("bad", "", failing))
    files = report.write_report(rank)
    (line,) = files.failed
    assert line.startswith("bad: ValueError: no such <panel> (")
    assert [path.stem for path in files.tables] == [p.name for p in files.pictures] == ["own"]
    assert not earlier.exists()
    assert "Could not be drawn: bad: ValueError" in files.html.read_text()
    own.tables = failing
    files = report.write_report(rank)
    assert [line.partition(":")[0] for line in files.failed] == ["tables"]
    assert "no such &lt;panel&gt;" in files.html.read_text()


def test_the_report_begins_with_the_charts_that_were_asked_for_the_latest_of_a_name(
    sound, tmp_path, own
):
    folder = shutil.copytree(sound, tmp_path / "sweep")
    page = folder / "report.html"

    def shown(*words):
        assert report.main([str(folder), *words]) == 0
        return re.findall('<figure id="([^"]*)"', page.read_text())

    names = [f"{y}_vs_data.d_by_parameterization_line_all" for y in ("W_norm", "risk")]
    for y in ("W_norm", "risk", "W_norm"):
        first = shown("--x", "d", "--y", y, "--status", "all")
        assert first[0].startswith(y)
        assert len(set(first)) == len(first)
    assert first == [*names, "own"]
    stored = pd.read_csv(folder / f"tables/{names[0]}.csv")
    called = attnsvm.load(folder).chart("d", "W_norm", status="all")
    pd.testing.assert_frame_equal(stored, called.table, check_dtype=False)
    shown("--x", "d", "--y", "W_norm", "--status", "all", "--col", "parameterization")
    latest = {place: place.read_bytes() for place in folder.glob(f"*/{names[0]}*.*")}
    assert {place.suffix for place in latest} == {".png", ".pdf", ".txt", ".csv"}
    for place in latest:
        place.write_text("of an older record")
    page.write_text("<html>of an older version</html>\n")
    assert shown() == first
    assert {place: place.read_bytes() for place in latest} == latest
    (folder / "charts.json").write_text('{"charts": ["W_norm", 3]}')  # damaged
    assert shown() == ["own"]


def test_a_search_names_its_best_run_and_draws_the_objective(sound, tmp_path, own):
    loaded = attnsvm.load(sound)
    runs = loaded.runs.assign(overrides="objective='median(W_norm)'")
    command = "attnsvm -m 'data.d=tag(log, choice(3, 4))'"
    sweep = dataclasses.replace(loaded, directory=tmp_path, runs=runs, command=command)
    assert search_of(sweep) is None
    ok = loaded.rows[loaded.rows["status"] == "ok"]
    values = ok.groupby("run", observed=True)["W_norm"].median()
    best = {
        "best_value": float(values.min()),
        "best_params": {"data.d": 4, "parameterization": "w"},
    }
    (tmp_path / "optimization_results.yaml").write_text(json.dumps(best))
    line = conclusion(sweep)[-1]
    for part in ("best of 4 trials: data.d=4 parameterization=w: ", values.idxmin()):
        assert part in line
    table = search_of(sweep).table
    assert table["trial"].tolist() == [1, 2, 3, 4]
    assert table.set_index("run")["objective"].dropna().to_dict() == values.to_dict()
    names = [picture.name for picture in report.write_report(sweep).pictures]
    assert names == ["search_trial", "search_parameterization", "search_d", "own"]
    (ax,) = search_of(sweep).drawings[-1].figure.axes
    assert ax.get_xscale() == "log"  # as it was sampled


def test_the_command_names_what_is_lost_and_refuses_what_cannot_be_read_or_written(
    rank, own, monkeypatch, capsys
):
    place, frames = rank.directory, [rank]
    assert report.main([str(place)]) == 2
    assert "no record" in capsys.readouterr().err
    monkeypatch.setattr(aggregate, "read_sweep", lambda directory: frames[-1])
    assert report.main([str(place)]) == 1
    text = capsys.readouterr().out
    for part in ("missing: lost: no record", "corrupt: ", "report.html", "infeasible"):
        assert part in text
    assert "\x07" not in text
    frames.append(dataclasses.replace(rank, runs=rank.runs.query("state == 'done'")))
    assert report.main([str(place)]) == 0
    shutil.rmtree(place / "figures")
    (place / "figures").write_text("a file where a folder must be")
    assert report.main([str(place)]) == 2
    assert "cannot be written" in capsys.readouterr().err


PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "</style><script>alert(1)</script>",
    "<template><script>alert(1)</script></template>",
    "--><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><x/>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "&#60;script&#62;alert(1)",
    "{{7*7}}${7*7}<%=7*7%>",
    r"$\frac{1}{0}$ \input{/etc/passwd}",
    "\u202e<b>drow\u2066",
    "</table></details></main><h1>mine</h1>",
    "\x1b]0;title\r\a",
]
"""What a record may say to be run as code in a page or a terminal."""


def sweep_that_says(folder, words):
    """Make a sweep with a failed run for each of `words` and a sound run whose tags they are."""
    origin = provenance(configs(1)[0], [])
    plan = {}
    for k, word in enumerate(words):
        run = folder / f"run-{k}"
        run.mkdir(parents=True)
        tags = {**origin, "overrides": [word], "version": word, "sweep": word}
        write_failure(run, tags, ValueError(word))
        plan[run.name] = [word]
    (folder / "sound").mkdir()
    options = {**origin["options"], "head": words[0], "data": words[2]}
    tags = {**origin, "options": options, "git_revision": words[1], "python": words[11]}
    write(folder / "sound", [prepared(configs(1)[0])], tags)
    record.write_plan(folder, {**plan, "sound": []})
    return folder


@pytest.mark.full
def test_what_records_say_is_text_and_does_not_steer_a_terminal(tmp_path, capsys):
    pages, harmless = [], [f"word{k}" for k in range(len(PAYLOADS))]
    for name, words in (("hostile", PAYLOADS), ("harmless", harmless)):
        folder = sweep_that_says(tmp_path / name, words)
        assert status([str(folder)]) == report.main([str(folder)]) == 1
        pages.append(Reader((folder / "report.html").read_text()))
    output = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in output)
    page, plain = pages
    assert page.structure == plain.structure
    shown = "".join(page.text.split())
    for payload in PAYLOADS:
        letters = "".join(c for c in payload if c.isprintable())
        assert "".join(letters.split()) in shown, payload
