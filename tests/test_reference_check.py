"""The reference's recount sees what it should: each count that it compares, made wrong alone, is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kvcache_sim.reference.store import ReferenceKeys, ReferenceStore
from kvcache_sim.reference.store.blocks import ABSENT, GPU, Block
from kvcache_sim.reference.store.check import violations
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN


def used_store() -> ReferenceStore:
    """A store of two tiers in which one request runs, one has ended, and a copy is on its way to the cpu."""
    keys = ReferenceKeys(
        np.array([0, 3, 5], np.int64),
        np.array([0, 1, 2, 0, 3], np.uint32),
        1,
        np.array([3, 2], np.uint32),
        np.array([NO_NEXT_TURN] * 2, np.uint32),
    )
    store = ReferenceStore(keys, [3, 4], [True, False], "release")
    first = store.acquire(0, 0)
    assert store.reserve(first, 3, 1) == []
    store.commit(first, 3, (1, 1))
    store.release(first, 2)
    second = store.acquire(1, 1)
    assert store.reserve(second, 1, 3)  # one block goes down, and its room comes when it is there
    store.take_orders()
    store.check()
    return store


def on_gpu(store: ReferenceStore) -> Block:
    return next(block for block in store.resident[GPU] if block.parent is store.root)


def lose_parent(store: ReferenceStore) -> None:
    parent = on_gpu(store)
    parent.state[GPU] = ABSENT
    parent.ready[GPU] = None
    del store.resident[GPU][parent]
    store.tiers[GPU].free += 1


FAULTS: dict[str, tuple[str, Callable[[ReferenceStore], None]]] = {
    "an active block too many": ("I2: leases reserve", lambda s: bump(s.tiers[GPU], "active")),
    "a free block too many": ("I2: tier 0 accounts for", lambda s: bump(s.tiers[GPU], "free")),
    "a block in flight too many": ("I2: tier 1", lambda s: bump(s.tiers[1], "in_flight")),
    "a lease that waits for more": (
        "I2: a lease waits for",
        lambda s: bump(next(lease for lease in s.leases.values() if lease.live), "pending"),
    ),
    "a block that its tier does not list": (
        "is wrongly counted on tier 0",
        lambda s: s.resident[GPU].pop(on_gpu(s)),
    ),
    "a holder too many": ("I3: block", lambda s: bump_at(on_gpu(s).holds, GPU)),
    "a child without its parent": ("is on the gpu, its parent is not", lose_parent),
    "a copy without times": ("I7: block", lambda s: clear(on_gpu(s).ready)),
    "a copy that is late": ("is late on tier 1", lambda s: in_the_past(s)),
    "a move that is forgotten": ("without a move", lambda s: s.moves.clear()),
}


def bump(of: object, name: str) -> None:
    setattr(of, name, getattr(of, name) + 1)


def bump_at(counts: list[int], place: int) -> None:
    counts[place] += 1


def clear(times: list) -> None:
    times[GPU] = None


def in_the_past(store: ReferenceStore) -> None:
    store.latest_ns = 100
    for move in store.moves.values():
        move.times = (50, 60)


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_count_is_named(name):
    words, spoil = FAULTS[name]
    store = used_store()
    spoil(store)
    told = list(violations(store))
    assert any(words in line for line in told), told
    with pytest.raises(RuntimeError):
        store.check()


def test_a_block_without_copy_and_holder_is_named():
    store = used_store()
    store.root.children[99] = Block(99, 1, store.root, len(store.tiers))
    with pytest.raises(RuntimeError, match="I4: block 99 has no copy and no holder"):
        store.check()
