"""Eviction in batches: closed forms of simple streams, and runs of core and specification."""

import numpy as np
import pytest
from kvcache_sim import _core
from kvcache_sim.spec.keys import Keys
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN
from support.agreement import agree_on
from support.spec_store import WholeStore
from support.tiered_scenario import run_with

FREE_BLOCKS, REQUESTS = 12, 50


def streams(batch):
    """Return the core's store and the plain one, of requests of one unshared block each."""
    numbers = np.arange(REQUESTS)
    arrays = (
        np.arange(REQUESTS + 1),
        numbers.astype(np.uint32),
        1,
        np.ones(REQUESTS, np.uint32),
        np.full(REQUESTS, NO_NEXT_TURN, np.uint32),
    )
    tiers, back = [FREE_BLOCKS, None], [True, False]
    native = _core.Store(_core.Keys(*arrays), tiers, back, eviction_batch_blocks=batch)
    return native, WholeStore(Keys(arrays), tiers, back, eviction_batch_blocks=batch)


def pass_through(store):
    """Let the requests pass one after the other; return the sizes of all copies down, and how often one
    waited."""
    copies, waited = [], 0
    for request in range(REQUESTS):
        lease = store.acquire(request, 0)
        waits = store.reserve(lease, 1, request)
        waited += bool(waits)
        for move, _, _, blocks, _ in store.take_orders():
            copies.append(blocks)
            store.finish_move(move)
        store.commit(lease, 1, (request, request))
        store.release(lease, request)
        store.check()
    return copies, waited


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 11, 12])
def test_a_stream_of_single_blocks_makes_a_batch_for_every_so_many_of_them(which, batch):
    store = streams(batch)[which]
    copies, waited = pass_through(store)
    # from the first request without a free block on: a batch leaves, and as many requests fit
    batches = -(-(REQUESTS - FREE_BLOCKS) // batch)
    assert copies == [batch] * batches
    assert waited == batches
    assert store.eviction_counts(0)[0] == batch * batches


@pytest.mark.parametrize("which", [0, 1])
def test_admission_waits_for_blocks_being_freed_before_evicting_more(which):
    store = streams(4)[which]
    for request in range(FREE_BLOCKS):
        lease = store.acquire(request, 0)
        assert store.reserve(lease, 1, 0) == []
        store.commit(lease, 1, (0, 0))
        store.release(lease, 0)
    leases = [store.acquire(request, 0) for request in range(FREE_BLOCKS, FREE_BLOCKS + 5)]
    first = store.reserve(leases[0], 1, 1)
    assert store.occupancy(0)[:4] == (0, 0, FREE_BLOCKS - 4, 4)
    assert [store.reserve(lease, 1, 1) for lease in leases[1:4]] == [first] * 3
    assert store.eviction_counts(0)[0] == 4
    [second] = store.reserve(leases[4], 1, 2)
    assert [second] != first, "the first batch is spoken for"
    store.finish_move(first[0])
    assert store.occupancy(0)[:4] == (0, 4, FREE_BLOCKS - 8, 4)
    store.finish_move(second)
    assert store.occupancy(0)[:4] == (3, 5, FREE_BLOCKS - 8, 0), "three blocks more than requested are free"
    store.check()


def digests(run):
    """Return what happened and what came of it."""
    return run.digest_events, run.digest_results


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("write.policy=through",),
        ("write.policy=selective", "cluster.machines=1"),
        ("fetch.exclusive=[cpu->gpu]",),
        ("cache.policy=lfu",),
        ("tiers.disk=null", "cache.touch=admission"),
        ("tiers.cpu=null", "tiers.disk=null"),
        ("channels.gpu-to-cpu.sharing=fair",),
        ("prefetch.policy=queued",),
        ("fetch.lookup=cluster", "router.policy=least-loaded"),
    ],
)
def test_core_and_specification_agree(settings):
    settings = ("workload.requests=60", *settings)
    run = agree_on("cache.eviction_batch_blocks=7", *settings)
    assert digests(run) != digests(run_with(*settings))


def test_a_batch_of_one_is_the_default():
    assert digests(run_with("cache.eviction_batch_blocks=1")) == digests(run_with())
