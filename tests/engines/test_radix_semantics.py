"""``cache.semantics: sglang`` and ``vllm`` in timed runs: the rules of tree and pool, to the integer."""

import json
from dataclasses import replace

import pytest
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from support.clusters import BLOCK, cluster
from support.instant_runs import instant
from support.product.models import zero_step_time
from support.shared_files import shared
from support.small_traces import trace_of
from support.traces import random_trace

#: SGLang's orders of leaves.
STRATEGIES = ("fifo", "filo", "hpt", "lfu", "lru", "mru", "slru")


def two_strangers(prompt: int, output: int) -> Trace:
    """Two requests at once that share nothing."""
    rows = [[f"{name}{k}" for k in range(prompt // 64)] for name in "ab"]
    return trace_of(rows, 64, [prompt] * 2, None, [output] * 2)


def sglang(
    tiers: tuple[int, ...], machines: int = 1, strategy: str = "lru", semantics: str = "sglang"
) -> ClusterSettings:
    settings = cluster(tiers, machines)
    return replace(settings, cache=replace(settings.cache, semantics=semantics, policy=strategy))


@pytest.mark.parametrize(
    ("strategy", "semantics"), [*((one, "sglang") for one in STRATEGIES), ("lru", "vllm")]
)
@pytest.mark.parametrize("seed", [1, 3])
def test_a_run_that_evicts_is_the_same_with_checks_and_with_lookahead(seed, strategy, semantics):
    settings, trace = sglang((160,), 2 if seed == 3 else 1, strategy, semantics), random_trace(seed)
    checked, lookahead = (simulate(settings, trace, options=RunOptions(check=c)) for c in ("full", "cheap"))
    assert checked.digest_events == lookahead.digest_events
    assert checked.digest_results == lookahead.digest_results
    assert checked.counters["evictions.gpu"] > 0


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_instant_run_decides_as_the_replay_does(strategy, page):
    trace, capacity = random_trace(4), 2304 // page
    settings = sglang((capacity,), 1, strategy)
    cache = replace(settings.cache, block_size_tokens=page)
    replica = replace(settings.machines[0].replica, max_num_batched_tokens=1 << 22, instant=True)
    still = replace(settings.machines[0], replica=replica, step_time=zero_step_time(1 << 22, 8))
    run = simulate(replace(settings, cache=cache, machines=(still,)), trace)
    replayed = simulate_cache(
        ReplayRequest(trace, page, capacity, outputs="computed", reuse_outputs=True), f"sglang:{strategy}"
    )
    assert run.counters["evictions.gpu"] * page == replayed["evicted_tokens"] > 0
    assert run.requests["cached_prefix_length_used"].sum() == replayed["hit_tokens"] > 0


def test_strategies_keep_different_leaves():
    trace = random_trace(5)
    runs = [simulate(sglang((160,), strategy=name), trace) for name in STRATEGIES]
    hits = {int(run.requests["cached_prefix_length_used"].sum()) for run in runs}
    assert len(hits) >= 4


def test_a_request_waits_until_its_whole_answer_and_a_spare_page_fit():
    # prompts of 8 blocks, answers of 4: the first takes 8, the second asks for 12 and the page
    trace = two_strangers(prompt=8 * BLOCK, output=4 * BLOCK + 1)
    for blocks, together in ((22, True), (21, True), (20, False), (16, False)):
        requests = simulate(sglang((blocks,)), trace).requests
        assert bool(requests["queue_ns"].max() == 0) is together
    finished = STATUSES.index("finished")
    assert (simulate(sglang((13,)), trace).requests["status"] == finished).all()
    assert (simulate(sglang((12,)), trace).requests["status"] != finished).all()


def test_a_block_is_found_from_its_scheduling_on_as_the_tree_finds_it_only_when_computed():
    trace = random_trace(2)
    found = {
        semantics: simulate(settings, trace).requests["cached_prefix_length_used"].sum()
        for semantics, settings in (("tree", cluster((5000,))), ("vllm", sglang((5000,), semantics="vllm")))
    }
    assert found["vllm"] > found["tree"]


@pytest.mark.parametrize(
    ("strategy", "page", "capacity_tokens", "mode"),
    [
        ("lru", 16, 2_097_152, "PO1"),
        ("lru", 16, 2_097_152, "P"),
        ("mru", 16, 2_097_152, "PO1"),
        ("slru", 16, 8_388_608, "PO1"),
        ("filo", 16, 8_388_608, "PO1"),
        ("lru", 64, 2_097_152, "PO1"),
    ],
)
def test_an_instant_replay_gives_the_real_trees_integers(strategy, page, capacity_tokens, mode):
    rows = json.loads(shared("oracles/sglang_radixcache.json").read_text())
    wanted = ("conversation", strategy, page, capacity_tokens, mode, 0)
    names = ("trace", "policy", "page_size", "capacity_tokens", "output_mode", "window")
    known = next(row for row in rows if tuple(row[name] for name in names) == wanted)
    # a chunk of a prompt is checked in by itself: the oracle computes prompts whole
    summary = instant(
        f"trace: {{path: {shared('traces/conversation_trace.jsonl')}}}\n"
        + ("workload: {output_tokens: 1}\n" if mode == "P" else "")
        + f"cache: {{semantics: sglang, block_size: {page}, policy: {strategy}}}\n"
        + f"tiers: {{gpu: {{capacity: {capacity_tokens // page} blocks}}}}\n"
    ).summary
    assert summary["tokens"]["cached"] == known["hit_tokens"]
    assert summary["cache"]["evictions"]["gpu"] * page == known["evicted_tokens"]
