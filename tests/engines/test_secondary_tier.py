"""A secondary tier below vLLM's CPU offloading: the chunks promoted, and the chunks evicted for them.

Key by key its rules stand in the core's own tests (``rust/core/src/engines/tiered_offload``); figures of vLLM's
``TieringOffloadingManager`` are among the rows of ``test_engine_streams.py``.
"""

from dataclasses import replace
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.replay.engine_requests import block_keys
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from replays import workloads
from support.examples import examples
from support.small_traces import trace_of


@given(workloads(), st.sampled_from(["lru", "arc"]), st.integers(0, 9))
@examples(60)
def test_a_secondary_tier_below_a_cpu_that_evicts_nothing_changes_nothing(request, policy, spare):
    """All that was stored is on the CPU as well."""
    blocks = int((request.trace.input_tokens // request.block_size_tokens).sum())
    request = replace(request, cpu_blocks=max(1, blocks) + spare, cpu_policy=policy)
    plain, tiered = (REPLAYERS["vllm"](replace(request, secondary=below), "") for below in (False, True))
    assert tiered["promoted_chunks"] == 0
    assert tiered["secondary_chunks"] == tiered["stored_chunks"] == tiered["final_cpu_chunks"]
    assert {name: tiered[name] for name in plain if name != "system"} == {
        name: plain[name] for name in plain if name != "system"
    }


@given(workloads(), st.sampled_from(["lru", "arc"]), st.integers(1, 40))
@examples(150)
def test_what_a_secondary_tier_was_given_is_loaded_again(request, policy, cpu_blocks):
    """A prompt loads the stored blocks behind the pool's hit, up to the CPU's capacity; larger offers are
    refused."""
    size = request.block_size_tokens
    request = replace(request, cpu_blocks=cpu_blocks, cpu_policy=policy, secondary=True, window=0)
    pool = REPLAYERS["vllm"](replace(request, cpu_blocks=0, secondary=False), "")
    got = REPLAYERS["vllm"](request, "")
    assert got["per_request_hit_tokens_sha256"] == pool["per_request_hit_tokens_sha256"]
    assert got["final_cpu_chunks"] == got["stored_chunks"] + got["promoted_chunks"] - got["evicted_chunks"]
    assert got["final_cpu_chunks"] <= cpu_blocks
    assert policy == "arc" or got["lookups_given_up"] == 0
    if got["lookups_given_up"]:
        return
    keys, below, served = block_keys(request), set(), []
    for number, hit in enumerate(pool["requests"]["hit_tokens"]):
        if hit < 0:
            served.append(hit)
            continue
        prompt = keys.keys(number, int(request.trace.input_tokens[number]) // size)
        behind = prompt[hit // size :]
        loaded = len(list(takewhile(below.__contains__, behind[:cpu_blocks])))
        served.append(hit + loaded * size)
        offered = behind[loaded:] if loaded else prompt
        if len(offered) <= cpu_blocks:
            below.update(offered)
    assert got["requests"]["hit_tokens"] == served
    assert got["secondary_chunks"] == len(below)


def test_promotions_evict_the_blocks_that_were_found():
    """With five chunks, c replaces b, the next look-up's b replaces a, and the third's a replaces another."""
    rows = [["a", "b", "c"], ["d", "e", "f"], ["a", "b", "c"]]
    trace = trace_of(rows, 4, [12, 12, 12])
    for cpu, loaded, promoted in ((6, 12, 0), (5, 12, 3), (4, 12, 3), (3, 12, 3), (2, 0, 0)):
        got = REPLAYERS["vllm"](ReplayRequest(trace, 4, 3, cpu_blocks=cpu, secondary=True), "")
        assert (got["hit_tokens"], got["loaded_tokens"], got["promoted_chunks"]) == (0, loaded, promoted), cpu


def test_what_is_more_than_the_cpu_takes_is_not_asked_for():
    """The last prompt finds a, loads b, which replaces c, and computes c, which the secondary tier has."""
    rows = [["a", "b"], ["d", "e", "f"], ["a", "b", "c"], ["d", "e", "f"], ["a", "b", "c"]]
    trace = trace_of(rows, 4, [8, 12, 12, 12, 12])
    got = REPLAYERS["vllm"](ReplayRequest(trace, 4, 3, cpu_blocks=2, secondary=True), "")
    assert (got["hit_tokens"], got["loaded_tokens"], got["promoted_chunks"]) == (0, 16, 1)
    assert (got["secondary_chunks"], got["lookups_given_up"]) == (3, 0)
