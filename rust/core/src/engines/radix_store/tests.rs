use super::storage_tier::DISK;
use super::*;
use crate::store::contract::{
    BlockStore, LoadingStore, MachineStore, MovingStore, OffersComputed, PrefetchingStore,
};
use crate::store::{LeaseBlocks, Part, GPU, NO_MOVE, STAGING};

/// Two requests with three common pages of four tokens and a page of their own, and a request of three other
/// pages.
pub(super) fn store(write: WritePolicy, device_pages: u64, host_pages: u64) -> RadixStore {
    let keys = BlockKeys::of_rows(1, &[&[0, 1, 2, 3][..], &[0, 1, 2, 4], &[5, 6, 7]]);
    let config = RadixConfig {
        strategy: LeafStrategy::Lru,
        page: 4,
        device_pages,
        host: Some((host_pages, write)),
    };
    let lengths = Lengths {
        prompt_tokens: vec![16, 16, 12],
        total_tokens: vec![18, 18, 14],
    };
    RadixStore::new(keys, config, lengths).unwrap()
}

fn admitted(store: &mut RadixStore, request: u32, pages: u32) -> LeaseId {
    let (_, ready) = store.peek(request, pages).unwrap();
    let lease = store.acquire(request, ready).unwrap();
    let lacking = u64::from(pages - ready);
    assert_ne!(
        store
            .reserve(&[LeaseBlocks::new(lease, lacking)], 0)
            .unwrap(),
        Reservation::Refused
    );
    lease
}

/// Computes a request's whole prompt and ends the request.
pub(super) fn run(store: &mut RadixStore, request: u32, pages: u32) {
    let lease = admitted(store, request, pages);
    store.commit(lease, pages, Times::default()).unwrap();
    store.release(lease, 1).unwrap();
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn a_written_node_stays_on_the_device_until_its_copy_is_there() {
    let mut store = store(WritePolicy::Through, 6, 9);
    run(&mut store, 0, 4);
    let orders = store.take_orders();
    assert_eq!(
        (orders.len(), orders[0].to, orders[0].blocks),
        (1, STAGING, 4)
    );
    let (gpu, host) = (
        store.occupancy(GPU).unwrap(),
        store.occupancy(STAGING).unwrap(),
    );
    assert_eq!((gpu.free, gpu.held, gpu.cached), (2, 4, 0));
    assert_eq!((host.held, host.in_flight, host.cached), (0, 4, 0));
    let lease = store.acquire(2, 0).unwrap();
    store.peek(2, 3).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 3)], 2),
        Ok(Reservation::Refused)
    );
    store.finish_move(orders[0].id).unwrap();
    assert_eq!(store.finish_move(orders[0].id), Err(StoreError::NoSuchMove));
    assert_eq!(store.occupancy(STAGING).unwrap().in_flight, 0);
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 3)], 3),
        Ok(Reservation::Ready)
    );
    assert_eq!(store.eviction_counts(GPU).unwrap().evicted, 4);
    assert_eq!(store.duplicates(STAGING), 0);
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn under_write_back_the_next_owner_of_a_page_waits_for_the_copy() {
    let mut store = store(WritePolicy::Back, 6, 9);
    run(&mut store, 0, 4);
    assert!(!store.has_orders());
    assert_eq!(store.spare_blocks(), 2, "evicted pages are written first");
    let lease = store.acquire(2, 0).unwrap();
    store.peek(2, 3).unwrap();
    let occupancy = store.reserve(&[LeaseBlocks::new(lease, 3)], 2).unwrap();
    let sent: Vec<MoveId> = store.take_orders().iter().map(|order| order.id).collect();
    assert_eq!(occupancy, Reservation::Pending(sent));
}

/// A store in which request 0 computed `pages` pages, now only on the host since another request took the
/// device.
fn sent_down(pages: u32) -> RadixStore {
    let mut store = store(WritePolicy::Through, 6, 9);
    run(&mut store, 0, pages);
    for order in store.take_orders() {
        store.finish_move(order.id).unwrap();
    }
    let lease = admitted(&mut store, 2, 5);
    store.release(lease, 1).unwrap();
    assert_eq!(store.occupancy(GPU).unwrap().free, 6);
    store
}

#[test]
fn what_is_on_the_host_alone_is_loaded_and_others_wait_for_the_same_load() {
    let mut store = sent_down(4);
    assert_eq!(store.peek(1, 3), Ok((3, 0)));
    let lease = admitted(&mut store, 1, 4);
    assert_eq!(store.peek(1, 3), Ok((3, 3)), "the load is still to be sent");
    let load = store.load(lease, 3, &[7]).unwrap();
    assert_eq!(store.depth(lease), Ok(3));
    assert_eq!(store.peek(0, 3), Ok((3, 0)));
    let part = Part {
        tier: GPU,
        start: 0,
        end: 3,
        by: load,
    };
    assert_eq!(store.match_prefix(0, 3), [part]);
    assert_eq!(store.occupancy(GPU).unwrap().in_flight, 3);
    let order = store.take_orders().remove(0);
    assert_eq!((order.from, order.to, order.blocks), (STAGING, GPU, 3));
    assert_eq!(order.after, [7]);
    store.finish_move(load).unwrap();
    let ready = Part {
        by: NO_MOVE,
        ..part
    };
    assert_eq!(store.match_prefix(0, 3), [ready]);
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn too_few_tokens_on_the_host_are_computed_again() {
    assert_eq!(sent_down(2).peek(0, 3), Ok((0, 0)), "eight tokens");
    assert_eq!(sent_down(3).peek(0, 3), Ok((3, 0)), "twelve");
}

const STORAGE: StorageConfig = StorageConfig {
    pages: Some(20),
    least_pages: 1,
    share_tokens: 100,
};

/// A store above a storage that alone has the pages of request 0; the host has capacity for three of them.
fn stored() -> RadixStore {
    let mut store = store(WritePolicy::Through, 6, 6).above(STORAGE);
    for (request, pages) in [(0, 4), (2, 3)] {
        run(&mut store, request, pages);
        finish_all(&mut store);
    }
    store
}

pub(super) fn finish_all(store: &mut RadixStore) {
    while store.has_orders() {
        for order in store.take_orders() {
            store.finish_move(order.id).unwrap();
        }
        assert_eq!(store.check(), Ok(()));
    }
}

#[test]
fn a_host_page_is_written_to_the_storage_and_stays_until_then() {
    let mut store = store(WritePolicy::Through, 6, 4).above(STORAGE);
    run(&mut store, 0, 4);
    let down = store.take_orders().remove(0);
    store.finish_move(down.id).unwrap();
    let on = store.take_orders().remove(0);
    assert_eq!((on.from, on.to, on.blocks), (STAGING, DISK, 4));
    assert_eq!(store.check(), Ok(()));
    assert_eq!(store.occupancy(DISK).unwrap().cached, 0);
    store.finish_move(on.id).unwrap();
    assert_eq!(store.occupancy(DISK).unwrap().cached, 4);
    assert_eq!(store.duplicates(DISK), 4);
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn a_prefetch_brings_the_pages_that_the_host_can_hold() {
    let mut store = stored();
    assert_eq!(store.peek(0, 4), Ok((0, 0)));
    assert_eq!(store.start_prefetch(0, 4, 5), Ok(4));
    assert!(store.is_prefetching(0));
    assert_eq!(store.occupancy(STAGING).unwrap().in_flight, 3);
    let up = store.take_orders().remove(0);
    assert_eq!((up.from, up.to, up.blocks), (DISK, STAGING, 3));
    store.finish_move(up.id).unwrap();
    assert_eq!(store.prefetched_pages(), 3);
    assert!(!store.is_prefetching(0));
    assert_eq!(store.peek(0, 4), Ok((3, 0)));
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn a_stopped_prefetch_releases_its_pages_when_its_read_ends() {
    let mut store = stored();
    store.start_prefetch(0, 4, 5).unwrap();
    assert_eq!(store.stop_prefetch(0), Ok(()));
    assert_eq!(store.stop_prefetch(0), Err(StoreError::NoSuchMove));
    assert_eq!(store.occupancy(STAGING).unwrap().in_flight, 3);
    assert_eq!(store.check(), Ok(()));
    finish_all(&mut store);
    assert_eq!(store.occupancy(STAGING).unwrap().in_flight, 0);
    assert_eq!(store.prefetched_pages(), 0);
}

#[test]
fn a_prompt_is_offered_until_it_is_checked_in_whole() {
    let mut store = store(WritePolicy::Selective, 10, 9);
    let lease = admitted(&mut store, 0, 4);
    assert!(store.is_to_offer(lease));
    store.commit(lease, 2, Times::default()).unwrap();
    assert!(store.is_to_offer(lease));
    store.commit(lease, 4, Times::default()).unwrap();
    assert!(!store.is_to_offer(lease));
    store.release(lease, 1).unwrap();
    assert!(!store.is_to_offer(lease));
}

#[test]
fn what_two_requests_computed_at_once_is_kept_once() {
    let mut store = store(WritePolicy::Back, 10, 9);
    let leases = [admitted(&mut store, 0, 4), admitted(&mut store, 1, 4)];
    for lease in leases {
        store.commit(lease, 4, Times::default()).unwrap();
    }
    assert_eq!(store.merged_blocks(), 3);
    for lease in leases {
        store.release(lease, 1).unwrap();
    }
    let occupancy = store.occupancy(GPU).unwrap();
    assert_eq!(
        (occupancy.cached, occupancy.held, occupancy.free),
        (5, 0, 5)
    );
    assert_eq!(store.check(), Ok(()));
}

#[test]
fn wrong_counts_are_seen() {
    let mut store = store(WritePolicy::Through, 10, 9);
    run(&mut store, 0, 4);
    let order = store.take_orders().remove(0);
    store.pool.tree.lock(store.copies.kept().next().unwrap());
    assert!(store.check().unwrap_err().starts_with("I3"));
    store.finish_move(order.id).unwrap();
    assert!(store.check().unwrap_err().starts_with("I3"));
}
