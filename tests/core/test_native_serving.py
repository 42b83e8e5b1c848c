"""The life of a request in the core, as the specification has it: settings drawn at random."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.channels.settings import ChannelSettings, Slowdown
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import HandoverSettings, RouterSettings
from support.agreement import agree
from support.clusters import BLOCK, cluster, varied
from support.drawn_settings import NATIVE, engines, kinds, movements, replicas, trees
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.pools import pools
from support.recorded import assert_recording_changes_nothing
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


@examples(40)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    machines=st.sampled_from([1, 1, 3]),
    seed=st.integers(1, 9),
)
def test_lower_tiers_agree(replica, cache, movement, shape, machines, seed):
    plain = cluster(shape, machines, latency_occupies=seed % 2 == 0)
    settings = varied(plain, replica, cache=cache, movement=movement)
    trace = random_trace(seed, requests=40, sessions=7)
    agree(settings, trace)
    assert_recording_changes_nothing(settings, trace)


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


@examples(25)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    kind=kinds,
    shared=st.sampled_from(["none", "edges", "machines"]),
    buffers=st.sampled_from([None, None, 1, 4]),
    machines=st.sampled_from([1, 2, 3]),
    seed=st.integers(1, 10**6),
)
def test_channels_served_layer_by_layer_agree(
    replica, cache, movement, shape, kind, shared, buffers, machines, seed
):
    settings = cluster(shape, machines)
    unused = ChannelSettings("unused", 10**9, sharing="fair")
    channels = {name: replace(one, **kind) for name, one in settings.channels.items()}
    built = [replace(machine, replica=replica) for machine in settings.machines]
    if shared != "none":
        for at, machine in enumerate(built):
            name = f"all {at}" if shared == "edges" else "all"
            channels[name] = ChannelSettings(name, 3 * 10**9, **kind)
            built[at] = replace(machine, edge_channels=dict.fromkeys(machine.edge_channels, name))
    settings = replace(
        settings,
        cache=cache,
        movement=movement,
        machines=tuple(built),
        channels={**channels, "unused": unused},
    )
    if movement.layer_pipelining and buffers is not None:
        settings = replace(settings, movement=replace(movement, read_buffer_layers=buffers))
    agree(settings, random_trace(seed, requests=40, sessions=7))


@examples(12)
@given(
    replica=replicas,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    machines=st.sampled_from([1, 2]),
    slow=st.lists(
        st.tuples(st.integers(1, 400), st.integers(1, 400), st.sampled_from([0, 1_000, 100_000, 333_333])),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(1, 10**6),
)
def test_channels_that_are_slow_for_a_time_agree(replica, movement, shape, machines, slow, seed):
    settings, until, slowdowns = cluster(shape, machines), 0, []
    for after, lasts, share in slow:
        begin = until + after * 10**7
        until = begin + lasts * 10**7
        slowdowns.append(Slowdown(begin, until, share))
    channels = {name: replace(one, slowdowns=tuple(slowdowns)) for name, one in settings.channels.items()}
    reads = replace(movement, lookup="cluster" if seed % 3 == 0 and machines > 1 else "local")
    settings = varied(replace(settings, channels=channels), replica, movement=reads)
    agree(settings, random_trace(seed, requests=40, sessions=7))


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
