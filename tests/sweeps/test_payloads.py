"""What configs, names and errors say is text in the report, whatever it looks like."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from attnsvm import record
from attnsvm.record.provenance import provenance
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import main, write_report
from attnsvm.sweeps.status import main as status
from tests.faults import configs, prepared

PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<body onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<style>*{display:none}</style>",
    "</style><script>alert(1)</script>",
    "<link rel=stylesheet href=//evil>",
    "<meta http-equiv=refresh content=0;url=//evil>",
    "<base href=//evil>",
    "<form action=//evil><input name=x>",
    "<object data=//evil>",
    "<embed src=//evil>",
    "<math><mtext><script>alert(1)</script>",
    "<template><script>alert(1)</script></template>",
    "<!-- --><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><x/>",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "`onmouseover=alert(1)`",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)",
    "&amp;lt;b&amp;gt;",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "<script\n>alert(1)</script\n>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "{{7*7}}${7*7}<%=7*7%>",
    "$\\frac{1}{0}$ \\input{/etc/passwd}",
    "=cmd|'/c calc'!A1",
    "\u202e<b>drow\u2066",
    "</table></details></main><h1>mine</h1>",
    "<details open ontoggle=alert(1)>",
]


class Reader(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.comments.append(data)


def sweep_that_says(folder, words):
    """Make a sweep with a failed run for each of `words` and a sound run whose tags they are."""
    origin = provenance(configs(1)[0], [])
    plan = {}
    for k, word in enumerate(words):
        run = folder / f"run-{k}"
        run.mkdir(parents=True)
        told = {**origin, "overrides": [word], "version": word, "sweep": word}
        record.write_failure(run, told, ValueError(word))
        plan[run.name] = [word]
    (folder / "sound").mkdir()
    options = {**origin["options"], "head": words[0], "data": words[3]}
    told = {**origin, "options": options, "git_revision": words[1], "python": words[25]}
    record.write(folder / "sound", [prepared(configs(1)[0])], told)
    record.write_plan(folder, {**plan, "sound": []})
    return folder


@pytest.mark.full
def test_payloads_are_text(tmp_path):
    harmless = [f"word{k}" for k in range(len(PAYLOADS))]
    page, plain = (
        Reader(write_report(load(sweep_that_says(tmp_path / name, words))).html.read_text())
        for name, words in (("hostile", PAYLOADS), ("harmless", harmless))
    )
    assert page.elements == plain.elements
    assert page.comments == plain.comments
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    shown = "".join(page.text.split())
    for payload in PAYLOADS:
        letters = "".join(c for c in payload if c.isprintable())
        assert "".join(letters.split()) in shown, payload


@pytest.mark.full
def test_payloads_do_not_steer_a_terminal(tmp_path, capsys):
    folder = sweep_that_says(tmp_path / "sweep", [f"\x1b]0;{word}\r\x07" for word in PAYLOADS])
    assert status([str(folder)]) == 1
    assert main([str(folder)]) == 1
    told = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in told)
