//! Runs that no longer differ are merged; runs that differ stay separate.

use super::*;
use crate::store::LeaseBlocks;

#[test]
fn blocks_written_one_by_one_are_one_run_with_their_own_times() {
    let mut store = store(&[4, 4]);
    let lease = reserved(&mut store, 0, 3, 1);
    for block in 0..3 {
        let at = 10 * u64::from(block);
        store.commit(lease, block + 1, Times::at(at)).unwrap();
        let write = store.write_through(lease, block, block + 1, at).unwrap();
        store.set_times(write.unwrap(), Times::at(at + 5)).unwrap();
        store.finish_move(write.unwrap()).unwrap();
        assert_eq!(store.runs(), 1);
        store.check().unwrap();
    }
    let reported = |copies: &[Residency]| copies.iter().map(|c| c.times.ready_ns).collect();
    let times: Vec<(u32, Vec<u64>)> = store
        .residency(0, 4)
        .iter()
        .map(|(end, copies)| (*end, reported(copies)))
        .collect();
    let one_by_one = [(1, vec![0, 5]), (2, vec![10, 15]), (3, vec![20, 25])];
    assert_eq!(times, one_by_one);
    store.release(lease, 30).unwrap();
}

#[test]
fn blocks_that_leave_one_by_one_are_one_run_where_they_went() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 4, 1);
    let lease = store.acquire(2, 0).unwrap();
    for _ in 0..3 {
        store.reserve(&[LeaseBlocks::new(lease, 1)], 2).unwrap();
        finish_all(&mut store);
        assert_eq!(store.runs(), 2, "one on each tier");
        store.check().unwrap();
    }
    let copies = [(1, vec![NO_MOVE, NO_COPY]), (4, vec![NO_COPY, NO_MOVE])];
    assert_eq!(store.copies(0, 4), copies);
}

#[test]
fn a_run_whose_end_is_held_stays_separate() {
    let mut store = store(&[4, 4]);
    cached(&mut store, 0, 4, 1);
    let held = store.protect(0, 2, GPU).unwrap();
    let lease = store.acquire(0, 4).unwrap();
    store.reserve(&[LeaseBlocks::new(lease, 0)], 2).unwrap();
    store.release(lease, 2).unwrap();
    assert_eq!(store.runs(), 2);
    store.unprotect(GPU, held).unwrap();
}

#[test]
fn runs_of_other_uses_stay_apart_and_those_of_equal_ones_join() {
    let mut store = store(&[8, 8]);
    cached(&mut store, 0, 4, 1);
    cached(&mut store, 1, 2, 2); // the first two have been used twice
    assert_eq!(store.runs(), 2);
    let lease = store.acquire(0, 4).unwrap();
    store.reserve(&[LeaseBlocks::new(lease, 0)], 3).unwrap();
    store.release(lease, 3).unwrap();
    assert_eq!(store.runs(), 2, "now three times and twice");
}

#[test]
fn blocks_that_were_written_leave_one_by_one_and_keep_their_times_below() {
    let mut store = store(&[4, 4]);
    let lease = reserved(&mut store, 0, 4, 1);
    for block in 0..4 {
        let at = 10 * u64::from(block);
        store.commit(lease, block + 1, Times::at(at)).unwrap();
        let write = store.write_through(lease, block, block + 1, at).unwrap();
        store.set_times(write.unwrap(), Times::at(at + 5)).unwrap();
        store.finish_move(write.unwrap()).unwrap();
    }
    store.release(lease, 50).unwrap();
    let taker = store.acquire(2, 0).unwrap();
    for left in [3, 2, 1] {
        assert_eq!(
            store.reserve(&[LeaseBlocks::new(taker, 1)], 60),
            Ok(Reservation::Ready)
        );
        assert_eq!(store.runs(), 2, "one on both tiers, one below");
        let copies = [(left, vec![NO_MOVE; 2]), (4, vec![NO_COPY, NO_MOVE])];
        assert_eq!(store.copies(0, 4), copies);
        store.check().unwrap();
    }
    let below = store.residency(0, 4);
    let below = below.iter().map(|(end, copies)| {
        let last = copies.last().expect("the lower tier has it");
        (*end, last.tier, last.times.ready_ns)
    });
    let ready = [(1, 1, 5), (2, 1, 15), (3, 1, 25), (4, 1, 35)];
    assert_eq!(below.collect::<Vec<_>>(), ready);
}
