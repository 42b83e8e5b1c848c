"""The life of a request in the core, as the specification has it: settings drawn at random."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import HandoverSettings, RouterSettings
from support.agreement import agree
from support.clusters import BLOCK, cluster, varied
from support.drawn_settings import NATIVE, engines, movements, replicas, trees
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.pools import pools
from support.traces import random_trace, turns


@examples(60)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, engines),
    policy=st.sampled_from(["lru", "lfu", "ttl:2s"]),
    blocks=st.sampled_from([70, 110, 400]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_one_tier_agrees(replica, cache, policy, blocks, machines, seed):
    policy = "lru" if cache.semantics != "tree" else policy
    settings = cluster((blocks,), machines)
    tiers = tuple(replace(tier, policy=policy) for tier in settings.machines[0].tiers)
    settings = replace(
        settings,
        cache=replace(cache, policy=policy),
        machines=tuple(replace(m, replica=replica, tiers=tiers) for m in settings.machines),
    )
    agree_or_by_the_clock(settings, random_trace(seed, requests=50, sessions=7))


def agree_or_by_the_clock(settings, trace):
    """Check a run by the specification, or, over an engine's own cache, by runs without lookahead.

    Their caches are judged by the engines' own rows (``test_radix_semantics``, ``test_store_walks``).
    """
    if settings.cache.semantics == "tree":
        agree(settings, trace)
    else:
        assert_same_by_the_clock(settings, trace)


def waiting_for_duplicates(settings, seed, share=0.0):
    """Return settings whose requests wait for blocks of others, and arrivals ten times as dense.

    Prompts with a common beginning then meet before it is computed; a ``share`` of the clients abort.
    """
    built = tuple(
        replace(machine, replica=replace(machine.replica, duplicate_prefill="wait"))
        for machine in settings.machines
    )
    trace = random_trace(seed, requests=40, sessions=7)
    leaves = np.where(np.random.default_rng(seed).random(40) < share, 10**8, -1).astype(np.int64)
    trace = replace(trace, arrival_ns=trace.arrival_ns // 10, abort_after_ns=leaves)
    return replace(settings, machines=built), trace


@examples(40)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, st.just(CacheSettings(block_size_tokens=BLOCK, semantics="vllm"))),
    shape=st.sampled_from([(70,), (400,), (90, 200), (100, 40, 60)]),
    machines=st.sampled_from([1, 1, 2]),
    share=st.sampled_from([0.0, 0.0, 0.4]),
    seed=st.integers(1, 99),
)
def test_requests_that_wait_for_a_block_of_another_agree(replica, cache, shape, machines, share, seed):
    settings = cluster(shape if cache.semantics == "tree" else shape[:1], machines)
    settings = varied(settings, replica, cache=cache)
    agree_or_by_the_clock(*waiting_for_duplicates(settings, seed, share))


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("shape", [(90, 200), (100, 40, 60)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_requests_wait_for_a_block_of_one_that_loads(seed, shape, pipelined):
    settings, trace = waiting_for_duplicates(cluster(shape, pipelined=pipelined), seed)
    run = agree(settings, trace)
    assert run.requests["fetch_ns"].sum() > 0


@examples(12)
@given(
    movement=movements,
    lookup=st.sampled_from(["local", "cluster"]),
    router=st.sampled_from(NATIVE),
    machines=st.integers(2, 4),
    roles=st.sampled_from(["", "", "pbd", "ppd"]),
    seed=st.integers(1, 10**6),
)
def test_a_turn_without_a_pause_follows_the_boundaries_before_its_cause(
    movement, lookup, router, machines, roles, seed
):
    """Steps of one length end at the same times everywhere: machines before the one whose step ended the turn have
    started their next steps when the following turn arrives."""
    if roles:
        settings = pools(roles, HandoverSettings(), tiers=(80, 50, 400))
    else:
        settings = varied(cluster((90, 60, 400), machines), wire=(10**11, 0), router=RouterSettings(router))
        movement = replace(movement, lookup=lookup)
    even = load_step_time("linear:base=10ms")
    own = tuple(replace(machine, step_time=even) for machine in settings.machines)
    trace = turns(seed, closed_loop=True, requests=40)
    trace = replace(trace, think_ns=np.where(trace.turn > 0, 0, trace.think_ns))
    agree(replace(settings, machines=own, movement=movement), trace)
