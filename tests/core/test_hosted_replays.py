"""Providers' prompt caches on a trace: values that a reader can work out."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.hosted import hit_rates_by_lifetime
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers import ReadSettings, read_trace


def request(tmp_path, rows, block=100):
    """Return a replay of rows of (seconds, tokens, ids, segments)."""
    text = ""
    for at_s, tokens, ids, segments in rows:
        row = {"timestamp": at_s * 1000, "input_length": tokens, "output_length": 1, "hash_ids": ids}
        text += json.dumps(row | ({"segments": segments} if segments else {})) + "\n"
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    trace = read_trace(str(path), settings=ReadSettings(block_size=block, keep_unknown=True))
    return ReplayRequest(trace, block, 0)


def found(asked, policy):
    result = simulate_cache(asked, policy)
    return result["hit_tokens"], result["written_tokens"]


def ids(count, own=0, same=0):
    """Return ids of blocks: the first ``same`` are everyone's."""
    return [*range(1, same + 1), *(own * 1000 + k for k in range(same, count))]


def test_openai_reads_steps_of_128_after_1024(tmp_path):
    rows = [(0, 1500, ids(15, 1, 14), None), (1, 2300, ids(23, 2, 14), None), (2, 2300, ids(23, 3, 11), None)]
    rows.append((3, 1900, ids(19, 4, 10), None))
    assert found(request(tmp_path, rows), "openai") == (1280 + 1024, 0)
    assert found(request(tmp_path, rows), "openai:5m,0") == (0, 0)
    many = request(tmp_path, [(at, 2000, ids(20), None) for at in range(200)])
    reads = [found(many, f"openai:5m,0.5,{seed}")[0] for seed in (0, 0, 1)]
    assert reads[:2] == [found(many, "openai:5m,0.5")[0]] * 2
    assert reads[2] != reads[0]
    assert all(0.3 < read / (199 * 1920) < 0.7 for read in reads)


def test_deepseek_reads_a_common_prefix_once_it_has_been_seen_twice(tmp_path):
    rows = [(at, 2000, ids(20, at + 1, 10), None) for at in range(3)]
    assert found(request(tmp_path, rows), "deepseek") == (1000, 0)


def test_anthropic_reads_marked_prefixes_of_segments_within_their_lifetime(tmp_path):
    head = [["tools", 3000], ["system", 2000]]
    turns = [(100, [["user", 100]]), (1900, [["assistant", 400], ["tool_result", 1500]])]
    turns += [(1000, [["assistant", 300], ["tool_result", 700]]), (250, [["assistant", 200], ["user", 50]])]
    rows, tokens, segments = [], 5000, head
    for at_s, (added, more) in zip((0, 20, 200, 501), turns, strict=True):
        tokens, segments = tokens + added, [*segments, *more]
        rows.append((at_s, tokens, [*range(1, -(-tokens // 50) + 1)], segments))
    asked = request(tmp_path, rows, 50)
    assert found(asked, "anthropic") == (12_100, 16_250)
    assert found(asked, "anthropic:1h") == (20_100, 8_250)
    rates = hit_rates_by_lifetime(asked, "anthropic")
    assert rates["5m"] == 12_100 / 28_350
    assert rates["1h"] == rates["24h"] == 20_100 / 28_350


def test_what_has_no_effect_is_refused(tmp_path):
    asked = request(tmp_path, [(0, 100, [1], None)])
    with pytest.raises(UsageError, match="not understood"):
        simulate_cache(asked, "anthropic:soon")
    with pytest.raises(UsageError, match="not understood"):
        simulate_cache(asked, "deepseek:1h,0.5")
    with pytest.raises(UsageError, match="over lifetimes"):
        hit_rates_by_lifetime(asked, "anthropic:1h")


def test_a_machine_has_no_cache_of_a_provider():
    with pytest.raises(UsageError, match="no eviction policy") as refused:
        choose_eviction("openai:5m", 16)
    assert "machines are not known" in str(refused.value)
