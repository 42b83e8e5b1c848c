//! Manual cache operations: claim, fill, release, remove.

use super::*;
use crate::ids::BlockRange;

#[test]
fn claimed_blocks_are_neither_free_nor_cached() {
    let mut store = store(&[4]);
    let (claim, waits) = store.claim(GPU, 3, 0).unwrap().unwrap();
    assert!(waits.is_empty());
    assert_eq!(occupancy(&store, GPU), [1, 0, 0, 3]);
    assert_eq!(store.claim(GPU, 2, 0), Ok(None));
    assert_eq!(store.finish_move(claim), Err(StoreError::Unplaced));
    store.release_claim(claim).unwrap();
    assert_eq!(occupancy(&store, GPU), [4, 0, 0, 0]);
}

#[test]
fn placed_blocks_are_found_and_become_ready_when_the_claim_is_finished() {
    let mut store = store(&[4]);
    let (claim, _) = store.claim(GPU, 2, 0).unwrap().unwrap();
    let wrong = store.fill_claim(claim, 0, BlockRange::new(0, 3), None);
    assert_eq!(wrong, Err(StoreError::ClaimSize(2)));
    assert_eq!(
        store.fill_claim(claim, 0, BlockRange::new(0, 2), None),
        Ok(true)
    );
    assert_eq!(store.peek(0, 4), (2, 0));
    assert_eq!(store.release_claim(claim), Err(StoreError::NoClaim));
    store.finish_move(claim).unwrap();
    assert_eq!(store.peek(0, 4), (2, 2));
}

#[test]
fn blocks_follow_what_is_there_and_are_read_from_where_they_are() {
    let mut store = store(&[4, 4]);
    let (claim, _) = store.claim(CPU, 1, 0).unwrap().unwrap();
    assert_eq!(
        store.fill_claim(claim, 0, BlockRange::new(1, 2), None),
        Ok(false),
        "a gap"
    );
    let unread = store.fill_claim(claim, 0, BlockRange::new(0, 1), Some(GPU));
    assert_eq!(unread, Ok(false), "the gpu does not have it");
    cached(&mut store, 0, 1, 1);
    assert_eq!(
        store.fill_claim(claim, 0, BlockRange::new(0, 1), Some(GPU)),
        Ok(true)
    );
    assert_eq!(store.tier(GPU).evictable, 0, "held while it is read");
    store.finish_move(claim).unwrap();
    assert_eq!(store.tier(GPU).evictable, 1);
}

#[test]
fn remove_takes_blocks_off_one_tier_from_the_end_up_to_a_held_one() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 3, 1);
    put(&mut store, CPU, 0, BlockRange::new(0, 3));
    let lease = store.acquire(0, 1).unwrap();
    assert_eq!(store.remove(0, BlockRange::new(0, 3), GPU), Ok(2));
    assert_eq!(store.peek(0, 4), (3, 1), "the cpu still has them");
    store.release(lease, 2).unwrap();
    assert_eq!(
        store.remove(0, BlockRange::new(0, 3), GPU),
        Ok(0),
        "block 2 is not there"
    );
    assert_eq!(store.remove(0, BlockRange::new(0, 1), GPU), Ok(1));
    assert_eq!(store.remove(0, BlockRange::new(0, 9), CPU), Ok(3));
    assert_eq!((store.runs(), store.peek(0, 4)), (0, (0, 0)));
}

#[test]
fn what_is_placed_is_found_and_ready_when_its_move_ends() {
    let mut store = store(&[4, 2]);
    let (claim, waits) = store.claim(1, 2, 0).unwrap().unwrap();
    assert!(waits.is_empty());
    assert_eq!(
        store.fill_claim(claim, 0, BlockRange::new(0, 2), None),
        Ok(true)
    );
    assert_eq!(store.copies(1, 4), vec![(2, vec![NO_COPY, claim])]);
    assert_eq!(store.moved_paths(claim), Ok(vec![(0, 2)]));
    store.finish_move(claim).unwrap();
    assert_eq!(store.copies(0, 4), vec![(2, vec![NO_COPY, NO_MOVE])]);
    assert_eq!(store.remove(0, BlockRange::new(1, 2), 1), Ok(1));
    assert_eq!(store.peek(0, 4).0, 1);
}

#[test]
fn a_claim_evicts_and_unused_blocks_are_released() {
    let mut store = Checked(tiers(&[4, 2], true).with_overflow(Overflow::Drop));
    let (claim, _) = store.claim(0, 4, 0).unwrap().unwrap();
    assert_eq!(
        store.fill_claim(claim, 0, BlockRange::new(0, 4), None),
        Ok(true)
    );
    store.finish_move(claim).unwrap();
    let (claim, waits) = store.claim(0, 3, 1).unwrap().unwrap();
    // One victim is dropped, the CPU takes two of them.
    assert_eq!(store.tier(0).overflowed, 1);
    let [order] = &store.take_orders()[..] else {
        panic!("one write")
    };
    assert_eq!((order.blocks, &waits[..]), (2, &[order.id][..]));
    let placed = store.fill_claim(claim, 1, BlockRange::new(0, 3), None);
    assert_eq!(placed, Ok(false), "block 0 is there");
    assert_eq!(store.release_claim(claim), Err(StoreError::NotFree));
    store.finish_move(order.id).unwrap();
    store.release_claim(claim).unwrap();
    assert_eq!(store.release_claim(claim), Err(StoreError::NoClaim));
    assert_eq!(store.tier(0).free, 3);
}
