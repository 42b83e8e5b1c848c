"""A shared pool: the core puts blocks there and reads them as the specification does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import MovementSettings, PoolSettings
from kvcache_sim.serving.membership.plan import Flush, MembershipPlan, PoolLoss
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree, columns
from support.clusters import cluster
from support.drawn_settings import NATIVE, pool_moves, shared_pools, wires
from support.examples import examples
from support.lookahead import assert_same_by_the_clock, packets_of
from support.shared_pool import sharing
from support.traces import only, random_trace, turns

lookups = st.sampled_from(["local", "local", "cluster"])


@examples(20)
@given(
    movement=pool_moves,
    lookup=lookups,
    pool=shared_pools,
    wire=wires,
    losses=st.lists(st.integers(1, 99), max_size=4, unique=True),
    seed=st.integers(1, 10**6),
)
def test_a_pool_that_is_lost_while_requests_are_served(movement, lookup, pool, wire, losses, seed):
    settings = replace(cluster((90, 60, 400), 3), movement=replace(movement, lookup=lookup))
    trace = turns(seed, closed_loop=False)
    span_ns = int(trace.arrival_ns.max())
    plan = MembershipPlan(pool_losses=tuple(PoolLoss(span_ns * at // 99) for at in sorted(losses)))
    settings = sharing(settings, pool, wire)
    lost = assert_same_by_the_clock(replace(settings, membership=plan), trace)
    if not losses:
        assert lost.digest_events == agree(settings, trace).digest_events


@pytest.mark.parametrize("lookup", ["local", "cluster"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_that_is_lost_at_rest_leaves_a_fresh_cluster(lookup, seed):
    settings = replace(cluster((110, 60, 400), 2), movement=MovementSettings(lookup=lookup))
    settings = sharing(settings, PoolSettings(300), (3 * 10**9, 30_000))
    trace = random_trace(seed, requests=40, sessions=5)
    arrivals = np.arange(40) // 4 * 10**11
    trace = replace(
        trace, arrival_ns=arrivals, session=np.full(40, -1, np.int32), turn=np.zeros(40, np.int32)
    )
    at_ns = int(arrivals[20]) - 10**9
    plan = MembershipPlan(pool_losses=(PoolLoss(at_ns),), flushes=(Flush(at_ns, None),))
    whole = simulate(settings, trace)
    lost = simulate(replace(settings, membership=plan), trace)
    alone = columns(simulate(settings, only(trace, list(range(20, 40)))).requests)
    for name, column in columns(lost.requests).items():
        assert column[:20] == columns(whole.requests)[name][:20], name
        if name != "request":
            assert column[20:] == alone[name], name
    hits = "cached_prefix_length_used"
    assert sum(columns(whole.requests)[hits][20:]) > sum(alone[hits])


@examples(25)
@given(
    movement=pool_moves,
    router=st.sampled_from(NATIVE),
    lookup=lookups,
    pool=shared_pools,
    machines=st.integers(2, 4),
    size=st.sampled_from([1, 7, 60]),
    seed=st.integers(1, 10**6),
)
def test_requests_of_a_batch_find_the_pool(movement, router, lookup, pool, machines, size, seed):
    movement = replace(movement, lookup=lookup)
    if movement.prefetch == "session":
        movement = replace(movement, prefetch="queued")
    settings = replace(cluster((90, 60, 400), machines), movement=movement, router=RouterSettings(router))
    with packets_of(size):
        settings, trace = sharing(settings, pool, (3 * 10**9, 30_000)), turns(seed, closed_loop=False)
        assert_same_by_the_clock(settings, trace, batches=True)
    agree(settings, trace)


@pytest.mark.parametrize(
    ("lookup", "blocks", "what"),
    [
        ("local", 40, ("put_blocks", "read_blocks", "refused_blocks", "evicted_blocks", "hit_tokens")),
        ("cluster", 2000, ("put_blocks", "read_blocks", "hit_tokens")),
    ],
)
def test_a_pool_has_something_to_give(lookup, blocks, what):
    """With settings as above blocks are put, read, refused and evicted, and first admissions are given
    some."""
    settings = cluster((90, 60, 100), 3, through=True)
    settings = replace(settings, movement=replace(settings.movement, lookup=lookup))
    settings = sharing(settings, PoolSettings(blocks), (3 * 10**9, 30_000))
    counters = agree(settings, turns(4, closed_loop=True, requests=120)).counters
    for name in what:
        assert counters[f"pool.{name}"] > 0, name
