//! A request on the GPU: look up, acquire, commit, release, abandon.

use super::*;
use crate::ids::BlockRange;
use crate::store::LeaseBlocks;

#[test]
fn peek_counts_found_blocks_and_those_ready_on_the_gpu() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 2, 1);
    put(&mut store, CPU, 0, BlockRange::new(2, 3));
    assert_eq!(store.peek(0, 4), (3, 2));
    assert_eq!(store.peek(0, 1), (1, 1), "no further than the limit");
    assert_eq!(store.peek(1, 4), (2, 2), "another request, the same blocks");
    assert_eq!(store.peek(2, 4), (0, 0));
    assert_eq!(
        store.peek(99, 4),
        (0, 0),
        "an unknown request has no blocks"
    );
}

#[test]
fn match_prefix_returns_each_leading_block_on_its_fastest_tier() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 2, 1);
    put(&mut store, CPU, 0, BlockRange::new(1, 3)); // block 1 is on both
    let on = |tier, start, end| Part {
        tier,
        start,
        end,
        by: NO_MOVE,
    };
    assert_eq!(store.match_prefix(0, 4), [on(GPU, 0, 2), on(CPU, 2, 3)]);
}

#[test]
fn acquire_holds_blocks_which_then_cannot_be_evicted() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 4, 1);
    let lease = store.acquire(1, 2).unwrap();
    assert_eq!(store.tier(GPU).evictable, 2);
    let other = store.acquire(2, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(other, 3)], 2),
        Ok(Reservation::Refused)
    );
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(other, 2)], 2),
        Ok(Reservation::Ready)
    );
    assert_eq!(store.lease(lease).unwrap().depth, 2);
    assert_eq!(store.peek(0, 4), (2, 2));
}

#[test]
fn acquire_refuses_what_the_gpu_does_not_have() {
    let mut store = store(&[4, 4]);
    put(&mut store, CPU, 0, BlockRange::new(0, 1));
    assert_eq!(store.acquire(0, 1), Err(StoreError::NotOnTier));
    assert_eq!(store.acquire(0, 2), Err(StoreError::NotFound));
    assert_eq!(store.acquire(4, 0), Err(StoreError::NoSuchRequest(4)));
}

#[test]
fn two_leases_on_a_block_hold_it_until_the_second_is_released() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    let (first, second) = (store.acquire(0, 2).unwrap(), store.acquire(1, 2).unwrap());
    store.release(first, 2).unwrap();
    assert_eq!(store.tier(GPU).evictable, 0);
    store.release(second, 3).unwrap();
    assert_eq!(store.tier(GPU).evictable, 2);
}

#[test]
fn commit_turns_reserved_blocks_into_cached_ones_that_others_find() {
    let mut store = store(&[4]);
    let lease = reserved(&mut store, 0, 3, 1);
    assert_eq!(occupancy(&store, GPU), [1, 3, 0, 0]);
    assert_eq!(store.peek(1, 4), (0, 0), "reserved is not shared");
    store.commit(lease, 2, Times::at(2)).unwrap();
    assert_eq!(occupancy(&store, GPU), [1, 1, 2, 0]);
    assert_eq!(store.peek(1, 4), (2, 2));
}

#[test]
fn a_block_that_two_requests_compute_is_kept_once() {
    let mut store = store(&[8]);
    let (first, second) = (store.acquire(0, 0).unwrap(), store.acquire(1, 0).unwrap());
    store
        .reserve(
            &[LeaseBlocks::new(first, 3), LeaseBlocks::new(second, 3)],
            1,
        )
        .unwrap();
    store.commit(first, 3, Times::at(2)).unwrap();
    store.commit(second, 3, Times::at(3)).unwrap(); // its first two are cached already
    assert_eq!(store.merged_blocks, 2);
    assert_eq!(occupancy(&store, GPU), [4, 0, 4, 0]);
    store.release(first, 4).unwrap();
    assert_eq!(store.tier(GPU).evictable, 1, "the second holds the rest");
}

#[test]
fn what_one_request_computes_piece_by_piece_lies_in_one_run() {
    let mut store = store(&[4]);
    let lease = reserved(&mut store, 0, 3, 1);
    (1..=3).for_each(|to| store.commit(lease, to, Times::at(u64::from(to))).unwrap());
    assert_eq!(store.runs(), 1);
}

#[test]
fn commit_refuses_more_than_is_reserved() {
    let mut store = store(&[4]);
    let lease = reserved(&mut store, 0, 1, 1);
    let refused = store.commit(lease, 2, Times::at(1));
    assert_eq!(refused, Err(StoreError::NotReserved));
    store.commit(lease, 1, Times::at(1)).unwrap();
    assert_eq!(store.commit(lease, 1, Times::at(1)), Ok(()), "it has it");
}

#[test]
fn release_frees_what_was_never_computed_and_keeps_the_rest_cached() {
    let mut store = store(&[4]);
    let lease = reserved(&mut store, 0, 3, 1);
    store.commit(lease, 1, Times::at(2)).unwrap();
    store.release(lease, 3).unwrap();
    assert_eq!(occupancy(&store, GPU), [3, 0, 1, 0]);
    assert_eq!(store.tier(GPU).evictable, 1);
    assert_eq!(store.release(lease, 3), Err(StoreError::NoSuchLease));
}

#[test]
fn release_makes_what_was_held_the_most_recent() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    cached(&mut store, 2, 2, 2);
    let again = store.acquire(0, 2).unwrap();
    store.release(again, 3).unwrap();
    reserved(&mut store, 3, 2, 4);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (2, 0));
}

#[test]
fn abandon_takes_an_admission_back_recency_included() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    cached(&mut store, 2, 2, 2);
    let lease = store.acquire(0, 2).unwrap();
    store.abandon(lease).unwrap();
    assert_eq!(store.tier(GPU).evictable, 4);
    let new = reserved(&mut store, 3, 2, 3);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (0, 2));
    assert_eq!(store.abandon(new), Err(StoreError::Reserved));
}

/// Two blocks on the GPU: requests 0 and 2 compute one each, request 3 needs one more.
fn left_after_eviction(touch: Touch) -> (u32, u32) {
    let mut store = Checked(tiers(&[2], false).with_touch(touch));
    let first = running(&mut store, 0, 1, 1);
    let second = running(&mut store, 2, 1, 1);
    store.release(second, 1).unwrap(); // admitted later, released earlier
    store.release(first, 2).unwrap();
    reserved(&mut store, 3, 1, 3);
    (store.peek(0, 1).0, store.peek(2, 1).0)
}

#[test]
fn of_two_requests_the_later_admitted_ends_first() {
    assert_eq!(left_after_eviction(Touch::Release), (1, 0));
    assert_eq!(left_after_eviction(Touch::Admission), (0, 1));
}
