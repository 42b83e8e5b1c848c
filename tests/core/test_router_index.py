"""The router's own index: late and bounded, its errors counted, the same run with and without lookahead."""

from dataclasses import replace

import pytest
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import simulate
from support.clusters import cluster
from support.engine_caches import CACHES
from support.lookahead import agree_or_by_the_clock, assert_same_by_the_clock
from support.pools import MS, TOKEN_NS, pools, requests
from support.tiered_scenario import BASE, run_with
from support.traces import random_trace


def counters(gpu_blocks, **index):
    settings = replace(cluster((gpu_blocks,), 3), router=RouterSettings("longest-prefix", **index))
    run = simulate(settings, random_trace(6))
    return run.counters["router.false_hit_blocks"], run.counters["router.missed_hit_blocks"]


def test_lookahead_changes_no_index():
    router = RouterSettings("prefill-cost", index_blocks=60, index_delay_ns=300_000_000)
    assert_same_by_the_clock(replace(cluster((90, 60), 3), router=router), random_trace(6))


def test_without_eviction_nothing_believed_is_false():
    false, missed = counters(100_000, index_blocks=100_000)
    assert false == 0
    assert missed > 0  # outputs and prompts still being computed are never reported


def test_what_a_machine_evicted_is_believed_still():
    assert counters(90, index_blocks=100_000)[0] > 0


def test_a_later_or_smaller_index_misses_more():
    prompt = counters(100_000, index_blocks=100_000)[1]
    assert counters(100_000, index_blocks=100_000, index_delay_ns=10**15)[1] > prompt
    assert counters(100_000, index_blocks=4)[1] > prompt


@pytest.mark.parametrize(("late_ns", "missed"), [(0, 0), (-1, 4)])
def test_news_that_are_due_now_are_known_now(late_ns, missed):
    delay_ns = 7 * MS
    computed_ns = 64 * TOKEN_NS
    arrival_ms = (computed_ns + delay_ns + late_ns) / MS
    # the second prompt continues from the first one's four blocks
    trace = requests((0, 64, 1), (arrival_ms, 80, 1), shared=4)
    router = RouterSettings("longest-prefix", index_blocks=100, index_delay_ns=delay_ns)
    run = simulate(replace(pools("b"), router=router), trace)
    assert run.counters["router.missed_hit_blocks"] == missed


#: Three small machines behind an index of 20 blocks.
ONE_TIER = BASE.replace(", cpu: {capacity: 500 blocks}, disk: {capacity: 9000 blocks}", "")
INDEX = ("cluster.machines=3", "router.policy=longest-prefix", "router.index_blocks=20")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-oss-20b"])
def test_any_engine_cache_has_an_index(cache, model):
    settings = [setting.format(cpu=500) for setting in CACHES[cache]]
    agree_or_by_the_clock(f"model={model}", "workload.requests=60", *INDEX, *settings, text=ONE_TIER)


@pytest.mark.parametrize("cache", ["vllm", "sglang", "vllm, offloading", "sglang, HiCache"])
def test_an_ample_index_of_an_engine_cache_believes_nothing_false(cache):
    settings = [setting.format(cpu=500) for setting in CACHES[cache]]
    ample = ("router.index_blocks=100000", "tiers.gpu.capacity=100000 blocks")
    counted = run_with("model=llama-3-8b", *INDEX, *ample, *settings, text=ONE_TIER).counters
    assert counted["router.false_hit_blocks"] == 0
    assert counted["router.missed_hit_blocks"] > 0
