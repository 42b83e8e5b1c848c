//! Reads by other machines, and copies received from them.

use super::*;
use crate::ids::BlockRange;

#[test]
fn lent_blocks_stay_until_the_reader_is_done() {
    let mut store = store(&[4, 2]);
    put(&mut store, CPU, 0, BlockRange::new(0, 2));
    let read = store.lend(0, 1, CPU).unwrap();
    assert_eq!(store.tier(CPU).evictable, 1);
    store.finish_move(read).unwrap();
    assert_eq!(store.tier(CPU).evictable, 2);
    assert_eq!(store.lend(0, 1, GPU), Err(StoreError::NotOnTier));
}

#[test]
fn received_blocks_are_found_on_the_cpu_and_ready_when_they_have_arrived() {
    let mut store = store(&[4, 4]);
    let mv = store.receive(0, BlockRange::new(0, 2), 1).unwrap().unwrap();
    let [order] = &store.take_orders()[..] else {
        panic!("one transmission")
    };
    assert_eq!((order.from, order.to, order.blocks), (REMOTE, CPU, 2));
    assert_eq!(store.match_below(0, 0, 4)[0].by, mv);
    store.finish_move(mv).unwrap();
    assert_eq!(store.match_below(0, 0, 4)[0].by, NO_MOVE);
    assert_eq!(store.match_below(0, 1, 4)[0].start, 1);
    assert_eq!(
        store.receive(0, BlockRange::new(0, 2), 2),
        Ok(None),
        "they are here"
    );
    let gap = store.receive(0, BlockRange::new(3, 4), 2);
    assert_eq!(gap, Err(StoreError::NotFound));
}

#[test]
fn nothing_is_received_if_held_blocks_leave_too_few() {
    let mut store = store(&[4, 2]);
    put(&mut store, CPU, 2, BlockRange::new(0, 2));
    let hold = store.protect(2, 2, CPU).unwrap();
    assert_eq!(store.receive(0, BlockRange::new(0, 1), 1), Ok(None));
    store.unprotect(CPU, hold).unwrap();
    assert!(store
        .receive(0, BlockRange::new(0, 1), 1)
        .unwrap()
        .is_some());
    assert_eq!(store.peek(2, 4).0, 1, "one block went for it");
}
