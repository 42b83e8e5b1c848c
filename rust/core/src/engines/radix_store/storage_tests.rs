//! HiCache's store above a storage, step by step: writes, pages that stay meanwhile, and prefetches.

use std::ops::Range;

use super::storage_tier::DISK;
use super::tests::{finish_all, run, store};
use super::*;
use crate::engines::radix_tree::ROOT;
use crate::store::contract::{BlockStore, MachineStore, MovingStore, PrefetchingStore};
use crate::store::{LeaseBlocks, Order, STAGING};

fn above(write: WritePolicy, host_pages: u64, pages: u64) -> RadixStore {
    store(write, 6, host_pages).above(StorageConfig {
        pages: Some(pages),
        least_pages: 1,
        share_tokens: 100,
    })
}

/// Writes pages that no node keeps on the host. Returns the order, if any.
fn back_up(store: &mut RadixStore, keys: &[u64]) -> Option<Order> {
    let (mut orders, storage) = (Vec::new(), store.storage.as_mut().unwrap());
    let tree = &mut store.pool.tree;
    storage.back_up(tree, keys.to_vec(), None, &mut orders, Vec::new());
    orders.pop()
}

/// Writes pages of request 0, without nodes on the host, and ends the write.
fn keep_in_storage(store: &mut RadixStore, pages: Range<u32>) {
    let keys: Vec<u64> = pages.map(|page| store.keys().key(0, page)).collect();
    let written = back_up(store, &keys).unwrap();
    store.finish_move(written.id).unwrap();
}

fn recency(store: &RadixStore) -> Vec<u64> {
    store.storage.as_ref().unwrap().pages.recency()
}

/// The host nodes that stay until the storage has read or written their pages.
fn kept_nodes(store: &RadixStore) -> Vec<u32> {
    let kept = store.storage.as_ref().unwrap().kept();
    kept.map(|lock| lock.node).collect()
}

#[test]
fn stored_pages_become_recent_behind_writes_in_flight() {
    let mut store = above(WritePolicy::Through, 9, 99);
    let first = back_up(&mut store, &[1, 2]).unwrap();
    store.finish_move(first.id).unwrap();
    let moves = [10, 11].map(|key| back_up(&mut store, &[key]).unwrap().id);
    assert!(
        back_up(&mut store, &[1]).is_none(),
        "nothing is written again"
    );
    for id in moves {
        store.finish_move(id).unwrap();
    }
    assert_eq!(recency(&store), [2, 10, 11, 1]);
    back_up(&mut store, &[2]);
    assert_eq!(
        recency(&store),
        [10, 11, 1, 2],
        "at once if no write is in flight"
    );
}

/// The storage has nine of ten pages. j is the tenth. For k two pages are evicted, so that nine tenths are used
/// with it.
#[test]
fn only_what_the_storage_lacks_is_sent_and_what_it_loses_goes_when_the_write_ends() {
    let mut store = above(WritePolicy::Through, 9, 10);
    store.records.log_evictions();
    let [a, h, i, j, k] = [1, 8, 9, 10, 11];
    let first = back_up(&mut store, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    store.finish_move(first.id).unwrap();
    assert!(back_up(&mut store, &[a, i]).is_none());
    let order = back_up(&mut store, &[h, i, j, k]).unwrap();
    assert_eq!((order.from, order.to, order.blocks), (STAGING, DISK, 2));
    assert_eq!(store.records.take_evictions(), []);
    store.set_times(order.id, Times::at(7)).unwrap();
    store.finish_move(order.id).unwrap();
    assert_eq!(store.records.take_evictions(), [(7, DISK, 2)]);
    assert_eq!(recency(&store), [4, 5, 6, 7, 1, 8, 9, 10, 11]);
    let (occupancy, eviction_counts) = (
        store.occupancy(DISK).unwrap(),
        store.eviction_counts(DISK).unwrap(),
    );
    assert_eq!(
        (occupancy.free, occupancy.cached, eviction_counts.evicted),
        (1, 9, 2)
    );
}

#[test]
fn a_page_written_back_reaches_the_storage_after_the_host() {
    let mut store = above(WritePolicy::Back, 9, 20);
    run(&mut store, 0, 4);
    let lease = store.acquire(2, 0).unwrap();
    store.peek(2, 3).unwrap();
    store.reserve(&[LeaseBlocks::new(lease, 3)], 2).unwrap();
    let [down, on] = &store.take_orders()[..] else {
        panic!("two orders");
    };
    assert_eq!((down.to, down.after.len()), (STAGING, 0));
    assert_eq!((on.from, on.to, &on.after), (STAGING, DISK, &vec![down.id]));
    assert_eq!(on.blocks, down.blocks);
}

/// Pages of requests 0 and 1, whose first three are equal: a split puts them into a node of their own.
#[test]
fn a_written_page_stays_on_the_host_until_the_storage_has_it_though_its_node_is_split() {
    let mut store = above(WritePolicy::Through, 9, 20);
    run(&mut store, 0, 4);
    let down = store.take_orders().remove(0);
    store.finish_move(down.id).unwrap();
    let on = store.take_orders().remove(0);
    run(&mut store, 1, 4);
    assert_eq!(store.check(), Ok(()));
    let keys: Vec<u64> = (0..4).map(|page| store.keys().key(0, page)).collect();
    assert!(recency(&store).is_empty());
    store.finish_move(on.id).unwrap();
    assert_eq!(recency(&store), keys, "from the first on");
    assert_eq!(store.check(), Ok(()));
    assert_eq!(kept_nodes(&store), []);
}

/// The host holds four pages, all of request 0 and being written to the storage; request 2 needs three.
#[test]
fn pages_in_flight_to_the_storage_are_not_evicted_from_the_host() {
    let mut store = above(WritePolicy::Through, 4, 20);
    run(&mut store, 0, 4);
    let down = store.take_orders().remove(0);
    store.finish_move(down.id).unwrap();
    let on = store.take_orders().remove(0);
    run(&mut store, 2, 3);
    assert!(!store.has_orders(), "nothing is written");
    assert_eq!(store.eviction_counts(STAGING).unwrap().evicted, 0);
    store.finish_move(on.id).unwrap();
    assert_eq!(store.check(), Ok(()));
}

/// Three pages come from the storage; one of them is computed meanwhile, and the tree uses its host copy.
#[test]
fn what_was_computed_meanwhile_gets_the_copies_that_came() {
    for (write, spare, on_host) in [(WritePolicy::Selective, 0, 3), (WritePolicy::Back, 2, 1)] {
        let mut store = above(write, 9, 20);
        keep_in_storage(&mut store, 0..3);
        assert_eq!(store.start_prefetch(0, 4, 0), Ok(4));
        let up = store.take_orders().remove(0);
        assert_eq!((up.from, up.to, up.blocks), (DISK, STAGING, 3));
        run(&mut store, 0, 2);
        store.finish_move(up.id).unwrap();
        assert_eq!(store.prefetched_pages(), 3 - spare, "{write:?}");
        let host = store.occupancy(STAGING).unwrap();
        assert_eq!(
            (host.cached, host.free),
            (on_host, 9 - on_host),
            "{write:?}"
        );
        assert_eq!(store.check(), Ok(()));
    }
}

/// The host has a copy of the first page of three; the others come from the storage behind it.
#[test]
fn the_node_that_a_prefetch_follows_stays_on_the_host() {
    let mut store = above(WritePolicy::Through, 9, 20);
    run(&mut store, 0, 1);
    finish_all(&mut store);
    keep_in_storage(&mut store, 1..3);
    assert_eq!(store.start_prefetch(0, 4, 0), Ok(3));
    let kept = kept_nodes(&store);
    assert!(kept.len() == 1 && kept[0] != ROOT);
    assert_eq!(store.check(), Ok(()));
    finish_all(&mut store);
    assert_eq!(store.prefetched_pages(), 2);
    assert_eq!(kept_nodes(&store), []);
}

#[test]
fn a_prefetch_follows_the_root_or_a_node_on_the_host() {
    for (write, asked) in [
        (WritePolicy::Through, 3),
        (WritePolicy::Selective, 0),
        (WritePolicy::Back, 0),
    ] {
        let mut store = above(write, 9, 20);
        run(&mut store, 0, 1);
        finish_all(&mut store);
        keep_in_storage(&mut store, 1..3);
        assert_eq!(store.start_prefetch(0, 4, 0), Ok(asked), "{write:?}");
    }
}

#[test]
fn pages_of_the_storage_that_the_device_alone_has_count_twice() {
    let mut store = above(WritePolicy::Back, 9, 20);
    run(&mut store, 0, 4);
    keep_in_storage(&mut store, 0..3);
    assert_eq!(store.occupancy(STAGING).unwrap().cached, 0);
    assert_eq!(store.duplicates(DISK), 3);
}
