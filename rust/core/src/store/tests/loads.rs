//! Copies to faster tiers: load, join, stage; and the protection or removal of the lower copies.

use super::*;
use crate::ids::BlockRange;

/// Returns a store with two blocks of request 0 on the CPU, and a lease of it that has reserved GPU blocks
/// for them.
fn about_to_load() -> (Checked, LeaseId) {
    let mut store = store(&[4, 4, 4]);
    put(&mut store, CPU, 0, BlockRange::new(0, 2));
    let lease = reserved(&mut store, 0, 2, 1);
    (store, lease)
}

#[test]
fn a_load_lands_in_reserved_blocks_and_keeps_its_source() {
    let (mut store, lease) = about_to_load();
    let load = store.load(lease, 2, &[]).unwrap();
    assert_eq!(store.peek(0, 4), (2, 0), "found, not ready");
    assert_eq!(store.tier(CPU).evictable, 0, "held while it is read");
    assert_eq!(store.release(lease, 2), Err(StoreError::Loading));
    store.finish_move(load).unwrap();
    assert_eq!(store.peek(0, 4), (2, 2));
    assert_eq!(occupancy(&store, GPU), [2, 0, 2, 0]);
    assert_eq!(store.tier(CPU).evictable, 2);
    let again = store.finish_move(load);
    assert_eq!(again, Err(StoreError::NoSuchMove));
}

#[test]
fn load_refuses_what_is_not_reserved_not_below_or_here_already() {
    let (mut store, lease) = about_to_load();
    assert_eq!(store.load(lease, 3, &[]), Err(StoreError::NotReserved));
    assert_eq!(store.load(lease, 0, &[]), Err(StoreError::NoBlocks));
    assert_eq!(store.load(lease, 1, &[7]), Err(StoreError::NoSuchMove));
    store.commit(lease, 1, Times::at(1)).unwrap();
    let other = reserved(&mut store, 1, 1, 1);
    let here = store.load(other, 1, &[]);
    assert_eq!(here, Err(StoreError::OnTierAlready));
}

#[test]
fn join_holds_what_another_request_is_loading() {
    let (mut store, lease) = about_to_load();
    let load = store.load(lease, 2, &[]).unwrap();
    let other = store.acquire(1, 0).unwrap();
    store.join(other, 2).unwrap();
    store.finish_move(load).unwrap();
    store.release(lease, 2).unwrap();
    assert_eq!(store.tier(GPU).evictable, 0, "the other still holds it");
    store.release(other, 3).unwrap();
    assert_eq!(store.tier(GPU).evictable, 2);
}

#[test]
fn stage_brings_blocks_one_tier_up() {
    let mut store = store(&[4, 4, 4]);
    put(&mut store, DISK, 0, BlockRange::new(0, 2));
    let staged = store
        .stage(0, BlockRange::new(0, 2), CPU, None, 1)
        .unwrap()
        .unwrap();
    assert_eq!(store.match_prefix(0, 4)[0].by, staged);
    store.finish_move(staged).unwrap();
    assert_eq!(store.copies(0, 4), [(2, vec![NO_COPY, NO_MOVE, NO_MOVE])]);
    let to_gpu = store.stage(0, BlockRange::new(0, 2), GPU, None, 1);
    assert_eq!(to_gpu, Err(StoreError::WrongTier));
}

#[test]
fn stage_is_refused_if_held_blocks_leave_too_few() {
    let mut store = store(&[4, 1, 4]);
    put(&mut store, DISK, 0, BlockRange::new(0, 1));
    put(&mut store, CPU, 2, BlockRange::new(0, 1));
    let hold = store.protect(2, 1, CPU).unwrap();
    assert_eq!(
        store.stage(0, BlockRange::new(0, 1), CPU, None, 1),
        Ok(None)
    );
    store.unprotect(CPU, hold).unwrap();
    assert!(store
        .stage(0, BlockRange::new(0, 1), CPU, None, 1)
        .unwrap()
        .is_some());
}

#[test]
fn protected_blocks_stay_until_the_hold_ends() {
    let mut store = store(&[2, 2]);
    put(&mut store, CPU, 0, BlockRange::new(0, 2));
    let hold = store.protect(0, 1, CPU).unwrap();
    assert_eq!(store.tier(CPU).evictable, 1);
    assert_eq!(store.claim(CPU, 2, 1), Ok(None));
    assert_eq!(store.unprotect(GPU, hold), Err(StoreError::NoSuchHold));
    store.unprotect(CPU, hold).unwrap();
    assert_eq!(store.unprotect(CPU, hold), Err(StoreError::NoSuchHold));
    assert_eq!(store.tier(CPU).evictable, 2);
}

#[test]
fn drop_copy_gives_up_the_copy_below_but_never_the_last_one() {
    let (mut store, lease) = about_to_load();
    store.drop_copy(0, 0, 2, CPU).unwrap();
    assert_eq!(store.tier(CPU).cached, 2, "there is no other");
    let load = store.load(lease, 2, &[]).unwrap();
    store.finish_move(load).unwrap();
    assert_eq!(store.duplicates(CPU), 2);
    store.drop_copy(0, 0, 2, CPU).unwrap();
    assert_eq!((store.tier(CPU).cached, store.duplicates(CPU)), (0, 0));
    assert_eq!(store.peek(0, 4), (2, 2));
}
