"""With service time switched off the run takes the decisions of a real engine's block manager, to the
integer.

The rows are vLLM's own KVCacheManager on the conversation trace (``../shared/oracles``), one request after
another. Prompts that end with a block and are cached whole are left out of the small cases: there vLLM keeps
two
copies of the last block where a tree keeps one.
"""

import hashlib
import json
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.simulation import RunOptions
from support.instant_runs import B, as_trace, chained_prompts, instant
from support.shared_files import shared


@pytest.mark.parametrize(
    ("block_size", "capacity_blocks", "output_mode"),
    [
        (512, 1024, "P"),
        (512, 1024, "PO1"),
        (512, 16384, "P"),
        (512, 16384, "PO1"),
        (512, 65536, "PO1"),
        (512, 262144, "PO1"),
        (16, 8192, "P"),
        (16, 8192, "PO1"),
        (16, 32_768, "P"),
        (16, 524_288, "PO1"),
    ],
)
def test_the_real_block_manager(block_size, capacity_blocks, output_mode):
    rows = json.loads(shared("oracles/vllm_kvcachemanager.json").read_text())
    (row,) = (
        row
        for row in rows
        if (row["trace"], row["window"], row["block_size"], row["capacity_blocks"], row["output_mode"])
        == ("conversation", 0, block_size, capacity_blocks, output_mode)
    )
    outputs = "workload: {output_tokens: 1}\n" if output_mode == "P" else ""
    done = instant(
        f"trace: {{path: {shared('traces/conversation_trace.jsonl')}}}\n{outputs}"
        f"cache: {{block_size: {block_size}}}\ntiers: {{gpu: {{capacity: {capacity_blocks} blocks}}}}\n"
    )
    summary = done.summary
    assert summary["tokens"]["cached"] == row["hit_tokens"]
    assert summary["cache"]["hit_blocks"] == row["hit_blocks"]
    assert summary["cache"]["block_refs"] == row["queried_full_blocks"]
    assert summary["cache"]["evictions"]["gpu"] == row["evictions"]
    assert summary["requests"]["rejected"] == row["rejected_requests"]
    cached = done.run.requests["cached_prefix_length_used"]
    text = "\n".join(map(str, cached.tolist()))
    assert hashlib.sha256(text.encode()).hexdigest() == row["per_request_hit_tokens_sha256"]
    assert summary["latency"]["ttft"]["max"] == 0


def test_an_unbounded_gpu_reaches_the_ceiling_and_evicts_nothing():
    path = shared("traces/conversation_trace.jsonl")
    summary = instant(f"trace: {{path: {path}}}\ntiers: {{gpu: {{capacity: unbounded}}}}\n").summary
    assert summary["tokens"]["cached"] == 54_063_104
    assert summary["cache"]["evictions"]["gpu"] == 0


def block_by_block(requests: list[tuple[list[int], int, int]], capacity: int) -> tuple[list[int], int]:
    """Return (hit tokens by request, evictions) of a plain LRU over full blocks, tail released first."""
    cache: OrderedDict[object, None] = OrderedDict()  # least recent first
    hits, evictions = [], 0
    for index, (ids, prompt, output) in enumerate(requests):
        hit = 0
        while hit < min(len(ids), (prompt - 1) // B) and ids[hit] in cache:
            hit += 1
        hits.append(hit * B)
        total = prompt + output - 1
        keys: list[object] = [*ids[: prompt // B]]
        keys += [(index, k) for k in range(len(keys), total // B)]
        private = -(-total // B) - len(keys)
        for key in keys[:hit]:
            del cache[key]  # held
        sizes = capacity - len(cache) - hit
        needed = len(keys) - hit + private
        while sizes < needed:
            cache.popitem(last=False)
            evictions += 1
            sizes += 1
        for key in reversed(keys):
            cache[key] = None
    return hits, evictions


#: Engines, and the semantics under which they serve.
ENGINES = [("native", "vllm"), ("native", "tree"), ("spec", "tree"), ("spec-plain", "tree")]


@given(chained_prompts(), st.integers(0, 60), st.sampled_from(ENGINES))
def test_a_plain_lru_block_by_block(requests, spare, engine):
    engine, semantics = engine
    longest = max(-(-(prompt + output - 1) // B) for _, prompt, output in requests)
    capacity = longest + spare
    done = instant(
        f"cache: {{block_size: {B}, semantics: {semantics}}}\ntiers: {{gpu: {{capacity: {capacity} blocks}}}}",
        as_trace(requests),
        RunOptions(engine=engine, check="full"),
    )
    hits, evictions = block_by_block(requests, capacity)
    assert done.run.requests["cached_prefix_length_used"].tolist() == hits
    assert done.summary["cache"]["evictions"]["gpu"] == evictions


def test_times_and_sessions_do_not_matter():
    text = """
workload: {kind: conversational, requests: 300, block_size: 16, first_input_tokens: 100, loop: %s}
cache: {block_size: 16}
tiers: {gpu: {capacity: 200 blocks}}
"""
    opened, closed = instant(text % "open"), instant(text % "closed")
    assert opened.summary["requests"]["finished"] == closed.summary["requests"]["finished"] == 300
    assert opened.summary["latency"]["e2e"]["max"] == 0
    assert closed.summary["latency"]["e2e"]["max"] == 0
