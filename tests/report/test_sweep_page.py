"""The page of a sweep's directory: its verdict first, cards of the best cell, a bar a cell."""

import json
import re

import pytest
from kvcache_sim.cli.main import run as kvsim

SCENARIO = """name: sizes
seed: 3
workload: {kind: conversational, requests: 120, arrivals: {process: poisson, rate_per_s: 4}, block_size: 16}
cache: {block_size: 16}
tiers: {gpu: {capacity: 400 blocks}}
replica: {max_num_batched_tokens: 2048, max_num_seqs: 32}
"""


@pytest.fixture
def swept(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    grid = "replica.step_overhead=0ms,5ms,20ms"
    command = ["sweep", "--scenario", str(tmp_path / "s.yaml"), "--grid", grid, "--repeats", "1", "-q"]
    assert kvsim([*command, "-o", str(tmp_path / "sweep"), "--report", str(tmp_path / "at-once.html")]) == 0
    return tmp_path


def test_a_sweeps_directory_has_the_page_of_the_sweep(swept):
    target = swept / "page.html"
    assert kvsim(["report", str(swept / "sweep"), "-o", str(target)]) == 0
    assert target.read_bytes() == (swept / "at-once.html").read_bytes()
    text = target.read_text()
    opening = text[text.index("<header>") : text.index("<section")]
    assert (
        0 < opening.index('class="verdict">Cell 0 has the lowest TTFT p99') < opening.index('class="cards"')
    )
    cards = dict(re.findall(r'data-figure="([^"]+)".*?class="value"[^>]*>([^<]+)<', opening))
    assert (cards["best cell"], cards["replica.step_overhead"]) == ("0", "0ms")
    specifications = json.loads(re.search(r'id="specifications">(.*?)</script>', text)[1])
    bars = specifications["bars"]["vega"]["data"][0]["values"]
    assert [row["cell"] for row in bars] == ["0: 0ms", "1: 5ms", "2: 20ms"]
    assert [row["group"] for row in bars] == ["best", "other", "other"]
    rows = [json.loads(path.read_text())["record"] for path in (swept / "sweep" / "cells").iterdir()]
    assert [row["value"] for row in bars] == sorted(r["summary"]["latency"]["ttft"]["p99"] for r in rows)
    assert all(row["low"] < row["value"] < row["high"] for row in bars)


def test_a_damaged_cell_is_named_and_a_folder_of_something_else_refused(swept, capsys):
    sweep, target = swept / "sweep", str(swept / "page.html")
    capsys.readouterr()
    assert kvsim(["report", str(sweep), str(sweep), "-o", target]) == 2
    assert "give it alone" in capsys.readouterr().err
    (sweep / "cells" / "0123.json").write_text("{}")
    assert kvsim(["report", str(sweep), "-o", target]) == 2
    assert "a search, not a sweep" in capsys.readouterr().err
    (sweep / "cells" / "0123.json").unlink()
    damaged = next((sweep / "cells").iterdir())
    damaged.write_text("{")
    assert kvsim(["report", str(sweep), "-o", target]) == 0
    assert f"damaged, left out: {damaged}" in " ".join(capsys.readouterr().err.split())
    (sweep / "plan.json").write_text("{")
    assert kvsim(["report", str(sweep), "-o", target, "--force"]) == 2
    assert "not a sweep directory" in capsys.readouterr().err
