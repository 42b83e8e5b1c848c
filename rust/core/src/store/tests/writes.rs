//! Copies to lower tiers that keep the upper copy; and touch, discard and expire, which need no request.

use super::*;
use crate::ids::BlockRange;
use crate::policies::order::Keyed;
use crate::policies::ttl::Ttl;
use crate::store::LeaseBlocks;

#[test]
fn write_through_copies_what_is_missing_below() {
    let mut store = store(&[4, 4]);
    let lease = running(&mut store, 0, 2, 1);
    let write = store.write_through(lease, 0, 2, 1).unwrap().unwrap();
    assert_eq!(store.peek(0, 4), (2, 2), "the upper copy stays ready");
    assert_eq!(store.write_through(lease, 0, 2, 1), Ok(None), "running");
    store.finish_move(write).unwrap();
    assert_eq!(store.copies(0, 4), [(2, vec![NO_MOVE, NO_MOVE])]);
    let beyond = store.write_through(lease, 0, 3, 1);
    assert_eq!(beyond, Err(StoreError::NotHeld));
}

#[test]
fn write_through_is_skipped_if_no_block_below_can_be_freed() {
    let mut store = store(&[4, 1]);
    let lease = running(&mut store, 0, 2, 1);
    assert_eq!(store.write_through(lease, 0, 2, 1), Ok(None));
    assert_eq!(occupancy(&store, CPU), [1, 0, 0, 0]);
}

#[test]
fn a_victim_whose_copy_is_being_written_waits_for_that_write() {
    let mut store = store(&[2, 2]);
    let lease = running(&mut store, 0, 1, 1);
    let write = store.write_through(lease, 0, 1, 1).unwrap().unwrap();
    store.release(lease, 2).unwrap();
    let new = store.acquire(2, 0).unwrap();
    let got = store.reserve(&[LeaseBlocks::new(new, 2)], 3);
    // The write holds its source: nothing is evictable before it finishes.
    assert_eq!(got, Ok(Reservation::Refused));
    store.finish_move(write).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(new, 2)], 3),
        Ok(Reservation::Ready)
    );
}

#[test]
fn write_selected_copies_what_enough_requests_have_used() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 3, 1);
    let second = store.acquire(1, 2).unwrap();
    assert_eq!(store.write_selected(second, GPU, 3, 2), Ok(None));
    let write = store.write_selected(second, GPU, 2, 2).unwrap().unwrap();
    assert_eq!(store.moved_paths(write), Ok(vec![(0, 2)]));
    let bottom = store.write_selected(second, CPU, 2, 2);
    assert_eq!(bottom, Err(StoreError::WrongTier));
    finish_all(&mut store);
}

#[test]
fn write_on_passes_a_write_to_the_tier_after_the_next() {
    let mut store = store(&[4, 4, 4]);
    let lease = running(&mut store, 0, 2, 1);
    let first = store.write_through(lease, 0, 2, 1).unwrap().unwrap();
    let second = store.write_on(first, 2).unwrap().unwrap();
    store.finish_move(first).unwrap();
    store.finish_move(second).unwrap();
    let everywhere = vec![NO_MOVE; 3];
    assert_eq!(store.copies(0, 4), [(2, everywhere)]);
}

#[test]
fn touch_makes_blocks_recent_without_a_request() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    cached(&mut store, 2, 2, 2);
    store.touch(0, 2).unwrap();
    reserved(&mut store, 3, 2, 3);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (2, 0));
    assert_eq!(store.touch(2, 1), Err(StoreError::NotFound));
}

#[test]
fn discard_takes_blocks_off_every_tier_from_the_last_up_to_a_held_one() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 4, 1);
    put(&mut store, CPU, 0, BlockRange::new(0, 4));
    let lease = store.acquire(0, 1).unwrap();
    store.discard(0, 0, 4).unwrap();
    assert_eq!(store.peek(0, 4), (1, 1));
    assert_eq!(
        (occupancy(&store, GPU), occupancy(&store, CPU)),
        ([3, 0, 1, 0], [3, 0, 1, 0])
    );
    store.release(lease, 2).unwrap();
}

#[test]
fn discard_stops_below_what_another_request_continues() {
    let mut store = store(&[8]);
    cached(&mut store, 0, 4, 1);
    cached(&mut store, 1, 4, 2);
    store.discard(0, 0, 4).unwrap();
    assert_eq!((store.peek(0, 4).0, store.peek(1, 4).0), (2, 4));
}

#[test]
fn expire_discards_what_has_lapsed_by_the_tiers_policy() {
    let policy = Keyed::new(Box::new(Ttl { ttl_ns: 10 }));
    let orders = [Some(Box::new(policy) as _)];
    let mut store = Checked(tiers(&[4], true).with_orders(orders));
    cached(&mut store, 0, 2, 0);
    cached(&mut store, 2, 2, 5);
    store.expire(10);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (0, 2));
    store.expire(15);
    assert_eq!(occupancy(&store, GPU), [4, 0, 0, 0]);
}
