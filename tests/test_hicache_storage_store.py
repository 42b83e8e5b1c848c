"""HiCache's store above a storage by hand: what is written when, what stays meanwhile, and what a prefetch counts."""

from __future__ import annotations

import numpy as np
import pytest
from kvcache_sim.reference.engines.hicache_storage import Storage
from kvcache_sim.reference.engines.hicache_storage_store import DISK, StoredHiCacheStore
from kvcache_sim.reference.engines.hicache_store import Copy, HiCacheSettings
from kvcache_sim.reference.engines.unified_tree import Node
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.tiers import COMPUTE, STAGING
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN


def store_of(
    *prompts: list[int], write: str = "write_through", storage: int = 99, **rooms
) -> StoredHiCacheStore:
    """A store of prompts of single-token pages, each with an answer of one token; one page is worth a prefetch."""
    lengths = [len(prompt) for prompt in prompts]
    offsets = np.cumsum([0, *lengths])
    ids = np.array([page for prompt in prompts for page in prompt], np.uint32)
    alone = np.full(len(prompts), NO_NEXT_TURN, np.uint32)
    keys = ReferenceKeys(offsets, ids, 1, np.array(lengths, np.uint32), alone)
    rooms = {"device_pages": 50, "host_pages": 50, **rooms}
    settings = HiCacheSettings(
        "lru",
        1,
        write_policy=write,
        storage_pages=storage,
        prefetch_threshold_tokens=1,
        prefetch_share=1.0,
        **rooms,
    )
    return StoredHiCacheStore(keys, settings, (lengths, [n + 1 for n in lengths]))


def known(store: StoredHiCacheStore, keys: list) -> Node:
    """Let the device have some pages; return the node that ends with them."""
    node, found = store.tree.insert(keys, 0, 0, 0)
    store.device.free -= len(keys) - found
    return node


def orders_of(store: StoredHiCacheStore) -> list[tuple[int, int, int, int, list[int]]]:
    store.check()
    return store.take_orders()


def test_what_the_storage_has_becomes_recent_behind_what_is_on_its_way():
    store = store_of()
    store._back_up(["a", "b"], [], [])
    [(move, *_)] = orders_of(store)
    store.finish_move(move)
    store._back_up(["x"], [], [])
    store._back_up(["y"], [], [])
    store._back_up(["a"], [], [])  # nothing is written again
    moves = [order[0] for order in orders_of(store)]
    assert len(moves) == 2
    for move in moves:
        store.finish_move(move)
    assert list(store.storage.pages) == ["b", "x", "y", "a"]
    store._back_up(["b"], [], [])  # and at once where nothing is on its way
    assert list(store.storage.pages) == ["x", "y", "a", "b"]


def test_only_what_the_storage_lacks_is_sent_and_what_it_loses_is_told_when_the_write_ends():
    store = store_of(storage=10)
    store.log_evictions()
    store._back_up([*"abcdefghi"], [], [])
    [(move, *_)] = orders_of(store)
    store.finish_move(move)
    store._back_up([*"ai"], [], [])
    store._back_up([*"hijk"], [], [])
    [(move, from_tier, to_tier, pages, after)] = orders_of(store)
    assert (from_tier, to_tier, pages, after) == (STAGING, DISK, 2, [])
    store.set_times(move, 5, 7)
    store.finish_move(move)
    # j is the tenth page; k finds no room, and goes in when nine tenths are taken with it: two of ten go
    assert store.take_evictions() == [(7, DISK, 2)]
    assert [*store.storage.pages] == [*"defgahijk"]
    assert store.losses(DISK).evicted_blocks == 2
    assert store.room(DISK) == (1, 0, 9, 0, 9)


def test_a_page_that_is_written_back_goes_on_when_it_is_on_the_host():
    store = store_of(write="write_back")
    node = known(store, ["a"])
    host = store._start(Copy(("a",), False, None, node), (COMPUTE, STAGING, 1), [])
    first, second = orders_of(store)
    assert first == (host, COMPUTE, STAGING, 1, [])
    assert second[1:] == (STAGING, DISK, 1, [host])


def test_pages_of_the_storage_that_the_device_alone_has_count_twice():
    store = store_of(write="write_back")
    stored(store, [*"abc"])
    node = known(store, [*"ab"])
    assert not node.host
    assert store.duplicates(DISK) == 2


@pytest.mark.parametrize("splits", [False, True])
def test_a_written_page_stays_on_the_host_until_the_storage_has_it(splits):
    store = store_of()
    node = known(store, [*"abc"])
    store._written(node, 3)
    [(move, *rest)] = orders_of(store)
    assert rest == [STAGING, DISK, 3, []]
    if splits:  # what two prompts share gets a node of its own: both parts stay
        known(store, [*"abz"])
    parts = node.path()
    assert [len(part.key) for part in parts] == ([1, 2] if splits else [3])
    assert [part.host_locks for part in parts] == [1] * len(parts)
    store.check()
    store.finish_move(move)
    assert [part.host_locks for part in parts] == [0] * len(parts)
    assert [*store.storage.pages] == [*"abc"]


def test_pages_of_several_nodes_are_written_from_the_first_on():
    store = store_of()
    known(store, [*"ab"])
    node = known(store, [*"abcd"])
    store._written(node, 4)
    [(move, *_)] = orders_of(store)
    store.finish_move(move)
    assert [*store.storage.pages] == [*"abcd"]


def stored(store: StoredHiCacheStore, keys: list) -> None:
    store._back_up(keys, [], [])
    [(move, *_)] = orders_of(store)
    store.finish_move(move)


def test_a_prefetch_brings_what_the_storage_has_of_what_it_asks_for():
    store = store_of([1, 2, 3, 4, 5])
    stored(store, store._names(0, 5)[:3])
    assert store.start_prefetch(0, 5, 0) == 5
    [(move, from_tier, to_tier, pages, _)] = orders_of(store)
    assert (from_tier, to_tier, pages) == (DISK, STAGING, 3)
    assert (store._asked, store._reserved, store.room(STAGING).in_flight_blocks) == (5, 3, 3)
    assert store.is_prefetching(0)
    store.finish_move(move)
    assert (store._asked, store._reserved, store.prefetched_blocks) == (0, 0, 3)
    assert not store.is_prefetching(0)
    assert store.room(STAGING) == (47, 0, 3, 0, 3)
    assert store.duplicates(DISK) == 3
    store.check()


def test_what_was_computed_meanwhile_is_not_prefetched():
    store = store_of([1, 2, 3, 4, 5])
    names = store._names(0, 5)
    stored(store, names[:3])
    store.start_prefetch(0, 5, 0)
    [(move, *_)] = orders_of(store)
    known(store, names[:2])
    store.finish_move(move)
    assert store.prefetched_blocks == 1
    assert store.room(STAGING) == (47, 0, 3, 0, 3)
    store.check()


def test_a_prefetch_that_is_stopped_gives_back_the_room_of_what_it_does_not_use():
    store = store_of([1, 2, 3, 4, 5])
    stored(store, store._names(0, 5)[:3])
    store.start_prefetch(0, 5, 0)
    [(move, *_)] = orders_of(store)
    store.stop_prefetch(0)
    assert (store.is_prefetching(0), store._asked, store._reserved) == (False, 0, 3)
    store.check()
    store.finish_move(move)
    assert (store._reserved, store.tree.host_free, store.prefetched_blocks) == (0, 50, 0)
    store.check()


def test_the_node_that_a_prefetch_follows_stays_on_the_host():
    store = store_of([1, 2, 3, 4, 5])
    names = store._names(0, 5)
    stored(store, names)
    node = known(store, names[:2])
    assert node.host
    assert store.start_prefetch(0, 5, 0) == 3
    assert node.host_locks == 1
    [(move, *_)] = orders_of(store)
    store.finish_move(move)
    assert node.host_locks == 0
    assert store.prefetched_blocks == 3


def test_a_full_folder_is_emptied_to_nine_tenths():
    storage = Storage(20)
    assert storage.write(range(20)) == []
    assert storage.write([5, 20]) == [0, 1, 2]  # 17 stay, and with the new one nine tenths are taken
    assert len(storage.pages) == 18
    assert (storage.written, storage.evicted) == (21, 3)
    assert [*storage.pages][-2:] == [5, 20]
