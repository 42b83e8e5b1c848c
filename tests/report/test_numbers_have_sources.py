"""No headline number without its source, nor without the intervals that exist: every verb, every format."""

import html
import json
import re
from pathlib import Path

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.certainty import CERTAIN, RATE

SOURCE = re.compile(r"step times: fitted set h100-llama-3\.1-8b-tp1: ×\d\.\d\d–\d\.\d\d", re.I)
WORDS = "|".join(own.words for own in CERTAIN.values())
#: A headline figure in print, with what stands behind it.
NUMBER = re.compile(rf"\b({WORDS}):? (?:[a-z]+ )?[\d,.]+ (?:ms|s|min|tokens/s)(.{{0,12}})")
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
            text = html.unescape(
                re.sub(
                    r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", Path(page).read_text(), flags=re.S
                )
            )
        return re.sub(r"\s+", " ", text)

    return said


def bare(text):
    """Return the headline figures in a text without an interval behind them."""
    return [found[0] for found in NUMBER.finditer(text) if not found[2].startswith(" (requests")]


def test_the_report(say, tmp_path):
    page = tmp_path / "report.html"
    text = say("report", "certain", "-o", page, page=page)
    assert SOURCE.search(text)
    for card in ("TTFT p50", "TTFT p99", "TPOT mean", "throughput"):
        assert re.search(rf"{card} [\d.,]+ (?:ms|tok/s) requests [^a-z]+ %, model [^a-z]+ %", text), card
    text = say("report", "plain", "-o", page, "--force", page=page)
    assert SOURCE.search(text)
    assert "intervals: kvsim explain" in text


def test_compare_json(say):
    (found,) = json.loads(say("compare", "certain", "other", "--format", "json"))
    assert all(SOURCE.search(line) for line in found["step_times"])
    for own in CERTAIN.values():
        number = found["numbers"][own.metric]
        assert None not in (number["low"], number["high"], number["model_low"], number["model_high"])


def test_sweep(say, tmp_path):
    page = tmp_path / "sweep.html"
    argv = [
        "sweep",
        "t.jsonl",
        "--grid",
        "tiers.gpu.capacity=48 blocks,400 blocks",
        "-q",
        "-j",
        "1",
        "-o",
        tmp_path / "o",
    ]
    for text in (say(*argv, "--report", page), say(*argv, "--report", page, page=page)):
        assert SOURCE.search(text)
        assert re.search(
            r"cell 1 has the lowest TTFT p99, [\d.]+ ms \(requests [^)]* %\): .* \(next is cell 0: [\d.]+ × \(",
            text,
        )
        assert "intervals are 95 % over 10 batches of time" in text.lower()
    assert " --sensitivity" in say(*argv).partition("next: kvsim simulate t.jsonl")[2]


@pytest.mark.parametrize("grid", [[], ["--grid", "replica.max_num_seqs=2,64"]])
def test_capacity(say, tmp_path, grid):
    argv = [
        "capacity",
        "t.jsonl",
        "--slo",
        "ttft=100ms,tpot=12ms",
        "--attain",
        "95%",
        "-q",
        "-j",
        "1",
        "-o",
        tmp_path / "o",
        *grid,
    ]
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


def test_a_run_in_which_no_time_passes_has_neither(say):
    text = say("simulate", "t.jsonl", "--set", SMALL, "--set", "replica.instant=true", "-q", "-o", "instant")
    assert "step times" not in text
    assert not NUMBER.search(text)
    assert RATE not in json.loads(say("explain", "instant", "--format", "json"))
