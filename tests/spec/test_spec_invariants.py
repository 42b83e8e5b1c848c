"""The plain store's recount detects errors: each count that it compares, made wrong alone, is named."""

import time
from collections.abc import Callable
from typing import Any

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.store import Times
from kvcache_sim.simulation.spec_invariants import violations
from kvcache_sim.spec.blocks import ABSENT, GPU, WAITING, Copy
from kvcache_sim.spec.keys import Keys
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN
from support.product.spec import Block, CheckedStore, Store


def used_store() -> CheckedStore:
    """Return a store of two tiers: one request runs, one has ended, and a copy to the CPU is in flight."""
    arrays = (
        np.array([0, 3, 5], np.int64),
        np.array([0, 1, 2, 0, 3], np.uint32),
        1,
        np.array([3, 2], np.uint32),
        np.array([NO_NEXT_TURN] * 2, np.uint32),
    )
    store = CheckedStore(Keys(arrays), [3, 4])
    first = store.acquire(0, 0)
    assert store.reserve(first, 3, 1) == []
    store.commit(first, 3, (1, 1))
    store.release(first, 2)
    second = store.acquire(1, 1)
    assert store.reserve(second, 1, 3)  # one block goes down, and its space is free when it is there
    store.take_orders()
    store.check()
    return store


def shared(store: Store) -> Block:
    """Return the first block of both requests, which the second one uses."""
    return next(iter(store.root.children.values()))


def copy_of(store: Store) -> Copy:
    return shared(store).copies[GPU]


def lease_of(store: Store) -> Any:
    return next(iter(store.leases.values()))


def bump(of: object, name: str, step: int = 1) -> None:
    setattr(of, name, getattr(of, name) + step)


def wait_unlisted(store: Store) -> None:
    shared(store).copies[1].state = WAITING


def lose_parent(store: Store) -> None:
    copy_of(store).state = ABSENT


def without_times(store: Store) -> None:
    copy_of(store).ready = None


def of_the_future(store: Store) -> None:
    copy_of(store).ready = Times(9, 9)


FAULTS: dict[str, tuple[str, Callable[[Store], None]]] = {
    "an active block too many": ("I2: tier 0 counts", lambda s: bump(s.tiers[GPU], "active")),
    "a cached block too many": ("I2: tier 0 counts", lambda s: bump(s.tiers[GPU], "cached")),
    "an evictable block too many": ("I2: tier 0 counts", lambda s: bump(s.tiers[GPU], "evictable")),
    "a block in flight too many": ("I2: tier 1 counts", lambda s: bump(s.tiers[1], "in_flight")),
    "a block that waits in no backlog": ("I2: 0 blocks wait for tier 1", wait_unlisted),
    "a free block too many": ("blocks free, ", lambda s: bump(s.tiers[GPU], "free")),
    "a reservation that is not counted": ("I2: tier 0", lambda s: bump(lease_of(s), "reserved")),
    "a lease that waits for more": ("I2: tier 0", lambda s: bump(lease_of(s), "pending")),
    "a user too many": ("I3: block", lambda s: bump(copy_of(s), "ref_count")),
    "a user too few": ("I3: block", lambda s: bump(copy_of(s), "ref_count", -1)),
    "a block in use that may leave": ("I3: block", lambda s: bump(copy_of(s), "evictable")),
    "a lease that is forgotten": ("I3: block", lambda s: s.leases.clear()),
    "a child too many": ("I4: block", lambda s: bump(copy_of(s), "children")),
    "a child without its parent": ("is on gpu, its parent is not", lose_parent),
    "a copy too many": ("I4: block", lambda s: bump(shared(s), "present")),
    "a copy without times": ("I7: block", without_times),
    "a copy of the future": ("I7: block", of_the_future),
    "a move that is forgotten": ("without a move", lambda s: s.moves.clear()),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_count_is_named(name):
    words, spoil = FAULTS[name]
    store = used_store()
    spoil(store)
    found = list(violations(store))
    assert any(words in line for line in found), found
    with pytest.raises(RuntimeError):
        store.check()


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_count_is_named_by_the_next_check_of_an_event_there(name):
    words, spoil = FAULTS[name]
    store = used_store()
    store.by_event = True
    store.check()
    store.check()
    spoil(store)
    try:
        store.acquire(1, 1)  # the shared block is touched
    except StoreError:
        store.release(next(iter(store.leases)), 4)
    with pytest.raises(RuntimeError):
        store.check()
    assert any(words in line for line in violations(store))


def test_a_full_check_of_a_run_costs_what_its_events_touch():
    """Every engine, with tiers that evict: the same digests, and at most ten times the time of the cheap check."""
    trace = kv.generate("conversational", requests=40, block_size=16)
    tiers = {"gpu": "900 blocks", "cpu": "0.5GiB", "disk": "0.5GiB"}
    for engine in ("native", "spec", "spec-plain"):
        spent, digests = {}, set()
        for check in ("cheap", "cheap", "full"):
            began_s = time.process_time()
            run = kv.simulate(trace, tiers=tiers, options=kv.RunOptions(check=check, engine=engine))
            spent[check] = time.process_time() - began_s
            digests.add(run.digests["results"])
        assert len(digests) == 1
        assert spent["full"] <= 10 * spent["cheap"] + 0.1, (engine, spent)


def test_a_block_without_copy_and_user_is_named():
    store = used_store()
    store.root.children[99] = Block(99, 1, store.root, 0, [Copy(tier) for tier in range(3)])
    with pytest.raises(RuntimeError, match="I4: block 99 has no copy and no user"):
        store.check()
