"""Losses while the machines stay: copies on a tier, a router's index, caches that are emptied."""

from dataclasses import replace

import numpy as np
import pytest
from fleet_runs import S, at_times, found
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.membership.plan import Flush, MembershipPlan
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster
from support.lookahead import by_the_clock
from support.pools import MS, pools, requests
from support.small_traces import trace_of
from support.tiered_scenario import SLOW_LINKS, load


def executed(*settings, **options):
    scenario = load(*settings)
    return execute(scenario, read_requests(scenario), RunOptions(**options))


# --- a tier ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu_blocks", "lost", "again"),
    [
        (99, 6 + 4, [6, 3]),  # all is on the GPU, too: the disk keeps its copies
        (
            9,
            6 + 4 + 2,
            [4, 3],
        ),  # the last two of the six are not: without the CPU's, no lookup reaches the disk's
    ],
)
def test_a_lost_tier_takes_what_no_lookup_reaches_without_it(tmp_path, gpu_blocks, lost, again):
    """Prompts of six and four blocks are written through to CPU and disk, whose copies on the CPU are lost at 8 s."""
    lower = "cpu: {capacity: 60 blocks}, disk: {capacity: 60 blocks}"
    tiers = f"tiers: {{gpu: {{capacity: {gpu_blocks} blocks}}, {lower}}}"
    rows = [(1, 0, 2, 6), (3, 20), (9, 0, 2, 7), (11, 20)]
    plan = "{plan: [{at: 8s, do: lose-tier, machine: 0, tier: cpu}]}"
    _, made = at_times(tmp_path, rows, plan, f"{tiers}\nwrite: {{policy: through}}")
    assert made.summary["fleet"] == {"tiers_lost": 1, "blocks_lost": lost, "index_lost": 0, "flushes": 0}
    assert found(made)[2:] == again
    assert found(made, "cached_gpu_tokens")[2] == again[0]


def test_a_tier_is_there_again():
    plan = "{at: 8s, do: lose-tier, machine: 0, tier: cpu}, {at: 8s, do: lose-tier, machine: 1, tier: cpu}"
    base = executed(*SLOW_LINKS).run.requests["cached_cpu_tokens"]
    made = executed(*SLOW_LINKS, f"fleet={{plan: [{plan}]}}", check="full")
    assert made.summary["fleet"]["tiers_lost"] == 2
    assert made.summary["fleet"]["blocks_lost"] > 100
    cached, rows = made.run.requests["cached_cpu_tokens"], made.run.requests
    early, late = rows["finish_ns"] < 8 * 10**9, rows["arrival_ns"] > 12 * 10**9
    assert np.array_equal(cached[early], base[early])
    assert 0 < cached[late].sum() < base.sum()


# --- the router's index ------------------------------------------------------------------------------------


def test_a_router_that_forgets_chooses_as_a_new_one():
    index = ("router.policy=longest-prefix", "router.index_blocks=100000")
    base = executed(*index).summary
    made = executed(*index, "fleet={plan: [{at: 8s, do: lose-index}]}").summary
    assert made["fleet"] == {"index_lost": 1, "tiers_lost": 0, "blocks_lost": 0, "flushes": 0}
    assert made["router"]["missed_hit_blocks"] > base["router"]["missed_hit_blocks"]


# --- caches emptied ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["tree", "vllm", "sglang"])
@pytest.mark.parametrize("machine", [None, 0, 1])
def test_emptied_caches_have_nothing(tmp_path, semantics, machine):
    """Two machines in turns; at 6 s the caches of one or both are emptied."""
    which = "" if machine is None else f", machine: {machine}"
    rows = [(1, 0), (2, 0), (3, 0), (4, 0), (7, 0), (8, 0), (9, 0), (10, 0)]
    more = f"cache: {{semantics: {semantics}}}\ncluster: {{machines: 2}}\nrouter: {{policy: round-robin}}"
    _, made = at_times(tmp_path, rows, f"{{plan: [{{at: 6s, do: flush{which}}}]}}", more)
    hits = [False, False, True, True, machine == 1, machine == 0, True, True]
    assert [blocks > 0 for blocks in found(made)] == hits
    assert made.summary["fleet"]["flushes"] == 1
    # vLLM's pool keeps two copies of a last block that was computed again
    each = 5 if semantics == "vllm" else 4
    assert made.summary["fleet"]["blocks_lost"] == each * (2 if machine is None else 1)


@pytest.mark.parametrize("block_tokens", [1, 4])
def test_nothing_is_left_of_a_cache_whose_engine_keeps_a_page_free(block_tokens):
    """SGLang's pool of pages has one that is never used, its pool of tokens has none; emptied at 3 s."""
    own = cluster((50,))
    own = replace(
        own,
        cache=replace(own.cache, semantics="sglang", block_size_tokens=block_tokens),
        membership=MembershipPlan(flushes=(Flush(3 * S, None),)),
    )
    rows = [[1, 2, 3], [1, 5, 6], [1, 7, 8], [1, 7, 9]]
    run = simulate(own, trace_of(rows, block_tokens, arrival_ns=[S, 2 * S, 4 * S, 5 * S]))
    assert run.requests["cached_prefix_length_used"].tolist() == [0, block_tokens, 0, 2 * block_tokens]
    assert run.counters["membership.blocks_lost"] == 5


@pytest.mark.parametrize("semantics", ["vllm", "sglang"])
def test_an_engine_at_work_refuses_to_be_emptied(tmp_path, semantics):
    more = f"cache: {{semantics: {semantics}}}"
    _, made = at_times(tmp_path, [(1, 0), (6, 8), (8, 0)], "{plan: [{at: 6001ms, do: flush}]}", more)
    assert made.summary["fleet"]["blocks_lost"] == 0
    assert found(made)[2] > 0


@pytest.mark.parametrize("machine", [0, 1])
@pytest.mark.parametrize(("at_ms", "emptied"), [(205, False), (300, True)])
def test_engines_refuse_to_be_emptied_while_they_hand_a_request_over(machine, at_ms, emptied):
    """Neither computes at 205 ms: the second prompt is on the wire, from 203 to 222 ms."""
    own = pools("pd", tiers=(60,))
    own = replace(
        own,
        cache=replace(own.cache, semantics="vllm"),
        membership=MembershipPlan(flushes=(Flush(at_ms * MS, machine),)),
    )
    trace = requests((0, 100, 5), (200, 300, 5), (400, 100, 5))
    trace.block_ids[-7:] = trace.block_ids[:7]
    run = simulate(own, trace, options=RunOptions(check="full"))
    assert (run.counters["membership.blocks_lost"] > 0) is emptied
    there = [[96, 1], [0, 1], [96, 7]][emptied * (1 + machine)]  # by machine 0, sent to machine 1
    assert [run.requests[name][2] for name in ("cached_prefix_length_used", "handover_blocks")] == there


def test_what_running_requests_hold_stays():
    few = "workload.requests=30"
    scenario = load("fleet={plan: [{at: 4s, do: flush}, {at: 8s, do: flush}]}", few)
    made = by_the_clock(lambda: execute(scenario, read_requests(scenario), RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    assert made[0].summary["tokens"]["cached"] < executed(few).summary["tokens"]["cached"]
