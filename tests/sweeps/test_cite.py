import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from attnsvm.config import ConfigError
from attnsvm.sweeps.cite import PAPER, citation

ROOT = Path(__file__).parents[2]
RUN = sorted((ROOT / "docs/records/rank_vs_d").glob("*/run.json"))[0].parent


def fields(entry):
    return dict(re.findall(r"^  (\w+) += \{(.*)\},?$", entry, re.MULTILINE))


def test_an_entry_names_what_the_record_says():
    entry, paper = citation([str(RUN)]).split("\n\n")
    content = (RUN / "run.json").read_bytes()
    run, digest = json.loads(content), sha256(content).hexdigest()
    assert paper == PAPER
    assert entry.startswith(f"@software{{attnsvm-{digest[:12]},")
    lines = fields(entry)
    for value in (run["signature"], digest, run["git_revision"], run["code"]):
        assert value in lines["note"]
    assert lines["version"] == run["version"]
    assert lines["title"].startswith(r"attnsvm: rank\_vs\_d (data=sphere")
    assert r"'data=\textbraceleft{}n:15,T:5\textbraceright{}'" in lines["note"]  # for a shell
    for value in lines.values():
        assert value.count("{") == value.count("}")


def test_the_paper_is_the_one_of_the_citation_file():
    citation_file = (ROOT / "CITATION.cff").read_text()
    names = re.findall(r"family-names: (.*)", citation_file)
    assert re.search("author  = {(.*)}", PAPER)[1].count(" and ") == len(names) - 1
    assert all(name in PAPER for name in names)
    assert re.search(r"arXiv:[\d.]+", citation_file)[0] in PAPER
    assert re.search(r"year: (\d+)", citation_file)[1] in PAPER


def test_a_sweep_is_one_entry_with_the_digest_of_all_its_runs():
    entry, _ = citation([str(RUN.parent)]).split("\n\n")
    names = sorted(path.parent.name for path in RUN.parent.glob("*/run.json"))
    assert len(names) > 1
    files = {name: (RUN.parent / name / "run.json").read_bytes() for name in names}
    printed = "".join(f"{sha256(files[name]).hexdigest()}  {name}/run.json\n" for name in names)
    lines = fields(entry)
    assert lines["title"] == r"attnsvm: rank\_vs\_d (a sweep)"
    assert lines["note"].endswith(sha256(printed.encode()).hexdigest())
    assert f"; {len(names)} runs; " in lines["note"]
    for content in files.values():
        assert json.loads(content)["git_revision"] in lines["note"]


def test_what_is_not_finished_is_not_cited(tmp_path):
    sweep, run = tmp_path / "sweep", tmp_path / "run"
    shutil.copytree(RUN.parent, sweep)
    shutil.rmtree(sweep / RUN.name)
    shutil.copytree(RUN, run)
    (run / "trials.parquet").write_bytes(b"0")
    messages = f"{RUN.name} is missing", "run is corrupt", "must be a finished run"
    for folder, message in zip((sweep, run, tmp_path), messages, strict=True):
        with pytest.raises(ConfigError, match=re.escape(message)):
            citation([str(folder)])
