from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import html.parser
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from attnsvm.sweeps import aggregate, report
from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.figures import correlation_vs_d, rank_vs_d
from attnsvm.sweeps.report.page import QUESTION, report_page
from attnsvm.sweeps.report.render import Picture, render
from attnsvm.sweeps.report.write import _remove_other_pages
from tests.sweeps import synthetic


@pytest.fixture
def rank(tmp_path: Path) -> SweepFrames:
    return synthetic.rank_frames(tmp_path, ds=(1, 3, 10), trials=8)


class Tags(html.parser.HTMLParser):
    """The elements of a page, and the addresses that they name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]


def test_the_report_and_its_files_are_written(rank: SweepFrames, tmp_path: Path):
    files = report.write_report(rank)
    assert files.html == tmp_path / "report.html"
    names = sorted(p.relative_to(tmp_path).as_posix() for p in (*files.figures, *files.tables))
    assert names == ["figures/rank_vs_d.pdf", "figures/rank_vs_d.png", "tables/rank_vs_d.csv"]
    table = pd.read_csv(tmp_path / "tables" / "rank_vs_d.csv")
    assert table["trials"].sum() == 4 * len(rank.trials)


def test_a_hostile_record_cannot_put_markup_into_the_page(rank: SweepFrames):
    tags = Tags(report.write_report(rank).html.read_text())
    assert tags.names.count("script") == 1
    assert tags.names.count("img") == 1
    assert tags.handlers == []


def test_the_page_loads_nothing_from_elsewhere(rank: SweepFrames):
    text = report.write_report(rank).html.read_text()
    for address in Tags(text).addresses:
        assert address.startswith(("data:", "figures/", "tables/")), address
    assert "http" not in re.sub(r'content="[^"]*"|http-equiv', "", text)
    assert "url(" not in text


def test_the_page_tells_what_is_lost(rank: SweepFrames):
    text = report.write_report(rank).html.read_text()
    assert "1 missing, 1 corrupt of 17 runs" in text
    assert "sha256 differs" in text
    assert "two tokens of equal score" in text


def test_the_page_asks_the_question_of_the_records(rank: SweepFrames):
    asked = dataclasses.replace(rank, question="Does <rank> grow?")
    assert '<p class="lead">Does &lt;rank&gt; grow?</p>' in report_page(asked, [], {})
    assert '<p class="lead">' not in report_page(rank, [], {})  # of an older record
    assert f'<p class="lead">{QUESTION}</p>' in report_page(
        dataclasses.replace(rank, name=""), [], {}
    )


@pytest.mark.full
def test_a_figure_that_fails_costs_no_other_one_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frames = synthetic.correlation_frames(tmp_path, (4, 6), trials=10)
    sound = report.write_report(frames)

    def failing(*_: object) -> None:
        raise ValueError("no\nsuch <panel>")

    monkeypatch.setattr(correlation_vs_d, "_over_steps", failing)
    files = report.write_report(frames)
    assert len(files.failed) == 1
    assert files.failed[0].startswith("correlation_vs_d_steps: ValueError: no such <panel> (")
    assert files.tables == sound.tables
    assert [p.name for p in files.pictures] == ["correlation_vs_d", "correlation_vs_d_scatter"]
    assert not list(tmp_path.glob("figures/correlation_vs_d_steps.*"))  # of the first report
    assert "Could not be drawn: correlation_vs_d_steps: ValueError" in files.html.read_text()
    monkeypatch.setattr(correlation_vs_d, "tables", failing)
    files = report.write_report(frames)
    assert [line.partition(":")[0] for line in files.failed] == ["tables"]
    assert "no such &lt;panel&gt;" in files.html.read_text()


def test_the_facts_add_up(rank: SweepFrames):
    page = report.write_report(rank).html.read_text()
    facts = re.findall(r"<li><b>(\d+)</b> ([\w ]+)</li>", page)
    counted = {what: int(count) for count, what in facts}
    total = counted.pop("instances")
    assert sum(counted.values()) == total == len(rank.trials) + 8  # both lost runs are one cell
    assert counted["failed"] == (rank.trials["status"] == "failed").sum()
    assert counted["missing"] == 8
    lost = dataclasses.replace(rank, runs=rank.runs.assign(state="failed"), trials=pd.DataFrame())
    assert lost.statuses == {"failed": 16 * 8}


def test_the_command_is_safe_in_a_shell_and_complete(tmp_path: Path):
    folder = tmp_path / "a folder's"
    command = ["-m", "data={n:2,T:3}", "head._target_='; rm -rf x", "data.d=2,4"]
    frames = synthetic.rank_frames(folder, ds=(2,), trials=2)
    told = shlex.join(["attnsvm", *command])
    folder.mkdir()
    page = report.write_report(dataclasses.replace(frames, command=told)).html.read_text()
    (block,) = re.findall("<pre>\n(.*?)</pre>", page, re.DOTALL)
    lines = html.unescape(block).splitlines()
    assert shlex.split(lines[0]) == ["attnsvm", *command]
    assert shlex.split(lines[1]) == ["attnsvm-report", str(folder)]


def test_duplicates_are_told_and_so_are_other_results(rank: SweepFrames):
    page = report_page(dataclasses.replace(rank, repeated=7, disagreeing=2), [], {})
    assert "<b>7</b> duplicate rows left out" in page
    assert "2 of them hold other results than the row that is kept" in page
    assert "duplicate rows" not in report_page(rank, [], {})


def test_a_sweep_without_any_finished_run_still_gets_a_page(rank: SweepFrames):
    empty = dataclasses.replace(
        rank,
        runs=rank.runs[rank.runs["state"] != "done"],
        trials=pd.DataFrame(),
        history=pd.DataFrame(),
    )
    files = report.write_report(empty)
    assert files.figures == ()
    assert "nothing to draw yet" in files.html.read_text()


@pytest.mark.full
def test_writing_twice_gives_the_same_bytes_and_leaves_nothing_else(rank: SweepFrames):
    files = report.write_report(rank)
    first = {p: p.read_bytes() for p in (files.html, *files.figures, *files.tables)}
    report.write_report(rank)
    assert {p: p.read_bytes() for p in first} == first
    assert {p for p in files.html.parent.rglob("*") if p.is_file()} == set(first)


# --- the command ---------------------------------------------------------------------------------


def run_main(frames: SweepFrames, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(aggregate, "load", lambda directory: frames)
    return report.main([str(frames.directory)])


def test_main_names_what_is_lost_and_exits_1(
    rank: SweepFrames, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run_main(rank, monkeypatch) == 1
    told = capsys.readouterr().out
    assert "missing: lost: no record" in told
    assert "corrupt: " in told
    assert "\x07" not in told
    assert "report.html" in told


@pytest.mark.full
def test_main_exits_0_if_every_run_is_done(
    rank: SweepFrames, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    done = dataclasses.replace(rank, runs=rank.runs[rank.runs["state"] == "done"])
    assert run_main(done, monkeypatch) == 0
    assert "infeasible" in capsys.readouterr().out


@pytest.mark.full
def test_main_names_a_figure_that_fails_and_exits_1(
    rank: SweepFrames, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    done = dataclasses.replace(rank, runs=rank.runs[rank.runs["state"] == "done"])
    monkeypatch.setattr(rank_vs_d, "_panels", lambda table: 1 / 0)
    assert run_main(done, monkeypatch) == 1
    assert "not drawn: rank_vs_d: ZeroDivisionError: division by zero" in capsys.readouterr().out


def test_main_refuses_a_folder_that_does_not_exist_or_holds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert report.main([str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert report.main([str(tmp_path)]) == 2
    assert "no record" in capsys.readouterr().err


@pytest.mark.full
def test_main_says_when_the_folder_cannot_be_written(
    rank: SweepFrames, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (rank.directory / "figures").write_text("a file where a folder must be")
    assert run_main(rank, monkeypatch) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from attnsvm.sweeps.report import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.rstrip().endswith("[]")


# --- the page's parts ----------------------------------------------------------------------------


def overview_of(*sections: dict[str, object]) -> str:
    return render("overview.html", sections=sections, total="1 s")


def test_everything_but_markup_is_escaped():
    picture = Picture('"><script>', "<b>&\"'\x07", {"png": b"bytes"})
    section = {"name": "name", "wall": "1 s", "question": "", "warning": ""}
    page = overview_of(section | {"pictures": (picture,), "has_report": False})
    escaped = "&lt;b&gt;&amp;&#34;&#39;\ufffd"
    assert f'<img alt="{escaped}" src="data:image/png;base64,Ynl0ZXM=">' in page
    assert f"<figcaption>\n    {escaped}\n" in page
    assert '<a href="name/figures/&#34;&gt;&lt;script&gt;.png">PNG</a>' in page


def test_the_policy_names_the_script_of_the_page():
    page = overview_of()
    script = re.search("<script>(.*)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in page
    assert "default-src &#39;none&#39;" in page


def test_table_cells_show_four_digits_and_sort_by_all_of_them(rank: SweepFrames):
    values = pd.DataFrame({"x": [1 / 3, None], "name": ["<i>", "b"]})
    shown = report_page(rank, [], {"values": values})
    assert 'data-value="0.3333333333333333">0.3333<' in shown
    assert 'data-value="">–<' in shown
    assert "&lt;i&gt;" in shown


def test_pages_of_an_earlier_report_are_removed_and_other_files_are_not(tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("rank.png", "rank_1.png", "rank_2.pdf", "rank_2.gif", "rank_own.png", "ranks.png"):
        (folder / name).touch()
    _remove_other_pages([folder / "rank.png", folder / "rank.pdf"])
    assert sorted(p.name for p in folder.iterdir()) == ["rank.png", "rank_own.png", "ranks.png"]
    for name in ("rank_1.png", "rank_2.png", "rank_3.png"):
        (folder / name).touch()
    _remove_other_pages([folder / "rank_1.png", folder / "rank_2.png"])
    left = ["rank_1.png", "rank_2.png", "rank_own.png", "ranks.png"]
    assert sorted(p.name for p in folder.iterdir()) == left
