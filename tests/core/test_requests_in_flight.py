"""Overlapping requests by hand: held blocks stay, and blocks that do not fit are not admitted.

``test_eviction_orders.py`` compares replays of every policy with the models, whatever overlaps.
"""

import json
from dataclasses import replace

import pytest
from kvcache_sim.cli import main
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from policy_variants import VARIANTS
from support.small_traces import trace_of


def run(request: ReplayRequest, variant: str, **changes):
    return REPLAYERS["prefix"](replace(request, **changes), variant)


def hits_of(request: ReplayRequest, variant: str):
    """Return the blocks that each request found."""
    policy = parse_variant(variant, request.block_size_tokens)
    return prefix_answer(request, blocks_of_prompts(request), policy).hits.tolist()


@pytest.mark.parametrize("variant", [v for v in VARIANTS if "7ns" not in v])
@pytest.mark.parametrize("discipline", ["prefix", "flat"])
def test_a_held_block_is_no_victim(variant, discipline):
    """Two blocks: a b are held when c d come, so c d are not admitted, and a b are found again."""
    trace = trace_of([["a", "b"], ["c", "d"], ["a", "b"]])
    request = ReplayRequest(trace, 4, 2, last_partial="keep", discipline=discipline)
    overlapping, alone = run(request, variant, window=2), run(request, variant)
    name = "hits" if discipline == "flat" else "hit_blocks"
    assert (overlapping[name], overlapping["evictions"], overlapping["not_admitted_blocks"]) == (2, 0, 2)
    assert alone["evictions"] > 0


def test_the_head_of_a_prompt_takes_the_free_blocks():
    """Three blocks: c fits in addition to a b, d does not."""
    trace = trace_of([["a", "b"], ["c", "d"], ["c", "d"]])
    request = ReplayRequest(trace, 4, 3, window=3, last_partial="keep")
    assert hits_of(request, "lru") == [0, 0, 1]
    assert run(request, "lru")["not_admitted_blocks"] == 2


def test_why_overlapping_requests_missed():
    """c d do not fit while a b are held; at 20 they evict a b, and 30 after that a b miss."""
    rows = [["a", "b"], ["c", "d"], ["c", "d"], ["c", "d"], ["a", "b"]]
    trace = trace_of(rows, arrival_ns=[0, 10, 20, 30, 50])
    result = run(ReplayRequest(trace, 4, 2, window=2, last_partial="keep", explain=True), "fifo")
    assert result["requests"]["never_seen_tokens"] == [8, 8, 0, 0, 0]
    assert result["requests"]["not_admitted_tokens"] == [0, 0, 8, 0, 0]
    assert result["requests"]["evicted_tokens"] == [0, 0, 0, 0, 8]
    assert result["misses"]["evicted_before_requests"]["max"] == 2
    assert result["misses"]["evicted_before_ns"]["max"] == 30


def test_a_held_block_outlives_its_time():
    """a lapses at 10 while its request runs; it leaves when that has ended."""
    rows, arrivals = [["a"], ["b"], ["a"], ["c"], ["d"], ["a"]], [0, 5, 12, 13, 14, 40]
    request = ReplayRequest(trace_of(rows, arrival_ns=arrivals), 4, 9, last_partial="keep")
    assert hits_of(request, "ttl:10ns") == [0, 0, 0, 0, 0, 0]
    assert hits_of(replace(request, window=3), "ttl:10ns") == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("policy", ["lru", "arc", "PLUGIN"])
def test_window_through_the_command_line(capsys, tmp_path, policy):
    """Two prompts in turn, of which two blocks count: a cache of two blocks keeps the one that is held."""
    row = '{{"timestamp": {}, "input_length": 17, "output_length": 1, "hash_ids": [{}, {}, {}]}}\n'
    rows = [row.format(k, 7 * k % 14, 7 * k % 14 + 1, 7 * k % 14 + 2) for k in range(4)]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    (tmp_path / "oldest.py").write_text("def oldest(b, now):\n    return b.last_use\n")
    policy = policy.replace("PLUGIN", f"{tmp_path}/oldest.py:oldest")
    asked = ["cachesim", str(tmp_path / "t.jsonl"), "--trace-block-size=8", "--capacity=2", "--format=json"]
    found = []
    for window in ([], ["--window=2"], ["--window=4"], [f"--window={2**40}"]):
        assert main.run([*asked, "--policy", policy, *window]) == 0
        document = json.loads(capsys.readouterr().out)
        found.append((document["hit_tokens"], document.get("not_admitted_blocks")))
    assert found[:2] == [(0, None), (16, 4)]
    assert found[2] == found[3]
