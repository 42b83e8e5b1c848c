"""No headline number without its source, nor without the intervals that exist: every verb, every format."""

import html
import json
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


def test_sweep(say, tmp_path):
    page = tmp_path / "sweep.html"
    grid = ("--grid", "tiers.gpu.capacity=48 blocks,400 blocks")
    argv = ["sweep", "t.jsonl", *grid, "-q", "-j", "1", "-o", tmp_path / "o"]
    for text in (say(*argv, "--report", page), say(*argv, "--report", page, page=page)):
        assert SOURCE.search(text)
        assert re.search(
            r"lowest TTFT p99, [\d.]+ ms \(requests [^)]* %\): .* \(next is cell 0: [\d.]+ × \(", text
        )
        assert "intervals are 95 % over 10 batches of time" in text.lower()
    assert " --sensitivity" in say(*argv).partition("next: kvsim simulate t.jsonl")[2]


@pytest.mark.parametrize("grid", [[], ["--grid", "replica.max_num_seqs=2,64"]])
def test_capacity(say, tmp_path, grid):
    goal = ("--slo", "ttft=100ms,tpot=12ms", "--attain", "95%")
    argv = ["capacity", "t.jsonl", *goal, "-q", "-j", "1", "-o", tmp_path / "o", *grid]
    text = say(*argv, "--plot", tmp_path / "f.html")
    assert SOURCE.search(text)
    assert re.search(r"[\d.]+ requests/s \(requests [^)]* %\)", text)
    assert "if each step takes ×" in text
    found = json.loads(say(*argv, "--format", "json"))
    for row in found["candidates"]:
        assert row["step_times.source"]
        assert row["step_times.factor_low"] < 1 < row["step_times.factor_high"]
        assert row["requests_low_per_s"] < row["rate_per_s"] < row["requests_high_per_s"]
    assert SOURCE.search(html.unescape((tmp_path / "f.html").read_text()))


def test_optimize(say, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="pip install 'kvcache-sim[search]'")
    goals = {
        "ttft.p99": "lowest TTFT p99",
        "tpot.avg": "lowest TPOT mean",
        "token_hit_rate": "highest hit rate",
    }
    for goal, words in goals.items():
        option = "--maximize" if goal == "token_hit_rate" else "--minimize"
        text = say("optimize", "-c", "space.yaml", option, goal, "-j", "1", "-o", tmp_path / goal)
        assert SOURCE.search(text)
        model = "" if goal == "token_hit_rate" else ", model [^)]* %"
        assert re.search(rf"{words}, [\d.]+ (?:ms|%) \(requests [^)]*(?:%|points){model}\)", text)
