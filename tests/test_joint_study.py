"""The joint study: each fleet is the run of its settings, and no fleet has more than the ceilings."""

from __future__ import annotations

import json

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.readers.read import read_trace

SETS = ["--set", "replica.max_num_seqs=32"]
ASKED = ["--machines", "3", "--capacity", "40", "--capacity", "200", "--policy", "lru", "--policy", "lfu",
         "--router", "round-robin", "--router", "cache-aware", *SETS]  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("joint") / "trace.jsonl"
    rows, base = [], [[0, 1]]
    for n in range(240):
        ids = [*base[n * 7 % len(base)], 1000 + n]
        base.append(ids[:9])
        row = {"timestamp": 150 * n, "input_length": 512 * len(ids), "output_length": 4, "hash_ids": ids}
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n")
    return path


def test_every_fleet_is_the_run_of_its_settings(trace, capsys):
    assert kvsim(["study", "joint", str(trace), *ASKED, "--format", "json", "-q"]) == 0
    study = json.loads(capsys.readouterr().out)
    assert len(study["cells"]) == 8
    requests = read_trace(trace)
    for cell in study["cells"]:
        sets = [SETS[1], "cluster.machines=3", f"tiers.gpu.capacity={cell['capacity_blocks']} blocks",
                f"router.policy={cell['router']}", f"cache.policy={cell['policy']}"]  # fmt: skip
        run = simulate(load_scenario(None, sets, trace).settings, requests)
        summary = summarize(run, 512)
        assert cell["hit_rate"] == summary["cache"]["token_hit_rate"]
        assert cell["ttft_ms"] == summary["latency"]["ttft"]["avg"]
        top = study["one_cache"]["belady"][str(cell["capacity_blocks"])]
        assert cell["hit_rate"] <= top + 1e-9 <= study["one_cache"]["unbounded"] + 2e-9
    rates = {(c["router"], c["policy"], c["capacity_blocks"]): c["hit_rate"] for c in study["cells"]}
    for router in ("round-robin", "cache-aware"):
        assert rates[router, "lru", 40] < rates[router, "lru", 200]
    assert len(set(rates.values())) >= 4


def test_one_table_and_one_picture(trace, tmp_path, capsys):
    pytest.importorskip("altair")
    asked = [*ASKED[:2], "--capacity", "40", "--router", "random", "--policy", "lru"]
    assert kvsim(["study", "joint", str(trace), *asked, "--plot", str(tmp_path / "joint.svg")]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("3 machines")
    assert lines[2].split()[:2] == ["random", "lru"]
    assert "*" in lines[2]
    assert lines[3].startswith("one cache, Belady")
    assert "40 blocks, random, lru" in err
    assert (tmp_path / "joint.svg").read_text().startswith("<svg")


def test_what_is_no_study_is_refused(trace, capsys):
    assert kvsim(["study", "other", str(trace)]) == 2
    assert kvsim(["study", "joint", str(trace), "--router", "nearest", "-q"]) == 2
    assert "no such router" in capsys.readouterr().err
