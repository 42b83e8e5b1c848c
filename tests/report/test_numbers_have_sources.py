"""No headline number without its source, nor without the intervals that exist: every verb, every format."""

import html
import re
from pathlib import Path

import pytest
from kvcache_sim.cli.main import run as kvsim

SOURCE = re.compile(r"step times: fitted set h100-llama-3\.1-8b-tp1: ×\d\.\d\d–\d\.\d\d", re.I)
SMALL, LARGE = "tiers.gpu.capacity=48 blocks", "tiers.gpu.capacity=400 blocks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with 120 requests; runs with intervals (``certain``, ``other``) and without (``plain``)."""
    home = tmp_path_factory.mktemp("sources")
    trace = str(home / "t.jsonl")
    assert kvsim(["trace", "generate", "conversational", "--requests", "120", "-o", trace]) == 0
    for name, size, option in (
        ("certain", SMALL, "--sensitivity"),
        ("other", LARGE, "--sensitivity"),
        ("plain", SMALL, "--no-sensitivity"),
    ):
        assert kvsim(["simulate", trace, "--set", size, option, "-q", "-o", str(home / name)]) == 0
    base = "trace: {path: t.jsonl}\ncost: {gpu_hour: 2.0}\n"
    (home / "base.yaml").write_text(base)
    space = "random:\n  draws: 4\n  space: {tiers.gpu.capacity: {choice: [48 blocks, 400 blocks]}}\n"
    (home / "space.yaml").write_text(f"scenario: base.yaml\n{space}")
    return home


@pytest.fixture
def say(folder, monkeypatch, capsys):
    """Run a command in the folder and return what it printed, or the page it wrote, as one line of text."""

    def said(*arguments, page=""):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "100")
        capsys.readouterr()
        assert kvsim([str(one) for one in arguments]) == 0
        text = capsys.readouterr().out
        if page:
            marks = r"<script.*?</script>|<style.*?</style>|<[^>]*>"
            text = html.unescape(re.sub(marks, " ", Path(page).read_text(), flags=re.S))
        return re.sub(r"\s+", " ", text)

    return said


def test_the_report(say, tmp_path):
    page = tmp_path / "report.html"
    text = say("report", "certain", "-o", page, page=page)
    assert SOURCE.search(text)
    for card in ("TTFT p50", "TTFT p99", "TPOT mean", "throughput"):
        assert re.search(rf"{card} [\d.,]+ (?:ms|tok/s) requests [^a-z]+ %, model [^a-z]+ %", text), card
    text = say("report", "plain", "-o", page, "--force", page=page)
    assert SOURCE.search(text)
    assert "intervals: kvsim explain" in text
