//! Reservations: free blocks first, then exactly as many victims as are missing.

use super::*;
use crate::ids::BlockRange;
use crate::store::LeaseBlocks;

#[test]
fn free_blocks_are_taken_before_any_is_evicted() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    let lease = store.acquire(2, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 2)], 2),
        Ok(Reservation::Ready)
    );
    assert_eq!(occupancy(&store, GPU), [0, 2, 2, 0]);
    assert_eq!(store.tier(GPU).evictions, 0);
}

#[test]
fn the_least_recently_released_goes_its_deepest_block_first() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    cached(&mut store, 2, 2, 2);
    let lease = reserved(&mut store, 3, 1, 3);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (1, 2));
    store.reserve(&[LeaseBlocks::new(lease, 2)], 3).unwrap();
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4).0), (0, 1));
    assert_eq!(store.tier(GPU).evictions, 3);
}

#[test]
fn a_common_beginning_outlives_both_of_its_ends() {
    let mut store = store(&[6]);
    cached(&mut store, 0, 4, 1);
    cached(&mut store, 1, 4, 2); // renews blocks 0 and 1 as well
    reserved(&mut store, 2, 3, 3);
    assert_eq!((store.peek(0, 4).0, store.peek(1, 4).0), (2, 3));
}

#[test]
fn a_reservation_is_refused_whole_and_changes_nothing() {
    let mut store = store(&[4]);
    let held = running(&mut store, 0, 2, 1);
    cached(&mut store, 2, 1, 2);
    let lease = store.acquire(3, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 3)], 3),
        Ok(Reservation::Refused)
    );
    assert_eq!(occupancy(&store, GPU), [1, 0, 3, 0]);
    assert_eq!(store.lease(lease).unwrap().reserved, 0);
    store.release(held, 4).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 3)], 4),
        Ok(Reservation::Ready)
    );
}

#[test]
fn several_leases_reserve_all_or_nothing() {
    let mut store = store(&[4]);
    let (a, b) = (store.acquire(0, 0).unwrap(), store.acquire(2, 0).unwrap());
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(a, 2), LeaseBlocks::new(b, 3)], 1),
        Ok(Reservation::Refused)
    );
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(a, 2), LeaseBlocks::new(b, 2)], 1),
        Ok(Reservation::Ready)
    );
    assert_eq!(store.tier(GPU).active, 4);
}

#[test]
fn a_victims_blocks_are_pending_until_it_is_written_down() {
    let mut store = store(&[2, 2]);
    cached(&mut store, 0, 2, 1);
    let lease = store.acquire(2, 0).unwrap();
    let Ok(Reservation::Pending(waits)) = store.reserve(&[LeaseBlocks::new(lease, 1)], 2) else {
        panic!("block 1 is to be written first")
    };
    let [order] = &store.take_orders()[..] else {
        panic!("one write")
    };
    assert_eq!((order.from, order.to, order.blocks), (GPU, CPU, 1));
    assert_eq!(waits, [order.id]);
    assert_eq!(store.lease(lease).unwrap().pending, 1);
    let early = store.commit(lease, 1, Times::at(2));
    assert_eq!(early, Err(StoreError::NotReserved));
    store.finish_move(order.id).unwrap();
    store.commit(lease, 1, Times::at(3)).unwrap();
    assert_eq!(store.peek(0, 4), (2, 1), "found below");
}

#[test]
fn a_victim_with_a_copy_below_just_goes() {
    let mut store = store(&[2, 2]);
    cached(&mut store, 0, 2, 1);
    put(&mut store, CPU, 0, BlockRange::new(0, 2));
    let lease = store.acquire(2, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 2)], 2),
        Ok(Reservation::Ready)
    );
    assert!(store.take_orders().is_empty());
    assert_eq!(store.peek(0, 4), (2, 0));
}

#[test]
fn a_lease_released_with_pending_blocks_frees_them_when_the_write_finishes() {
    let mut store = store(&[2, 2]);
    cached(&mut store, 0, 2, 1);
    let lease = reserved(&mut store, 2, 2, 2);
    store.release(lease, 3).unwrap();
    assert_eq!(occupancy(&store, GPU), [0, 0, 0, 2]);
    finish_all(&mut store);
    assert_eq!(occupancy(&store, GPU), [2, 0, 0, 0]);
}

#[test]
fn victims_that_do_not_fit_below_are_dropped_oldest_first() {
    let mut store = Checked(tiers(&[4, 1], true).with_overflow(Overflow::Drop));
    cached(&mut store, 0, 2, 1);
    cached(&mut store, 2, 2, 2);
    reserved(&mut store, 3, 3, 3);
    assert_eq!(store.tier(GPU).overflowed, 2);
    assert_eq!((store.peek(0, 4).0, store.peek(2, 4)), (0, (2, 1)));
    finish_all(&mut store);
}

#[test]
fn without_write_back_victims_are_discarded() {
    let mut store = Checked(tiers(&[2, 2], false));
    cached(&mut store, 0, 2, 1);
    let lease = store.acquire(2, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 1)], 2),
        Ok(Reservation::Ready)
    );
    assert_eq!(store.tier(GPU).overflowed, 1);
    assert_eq!(store.peek(0, 4), (1, 1));
}

#[test]
fn blocks_below_are_freed_in_the_same_manner() {
    let mut store = store(&[1, 1, 1]);
    put(&mut store, CPU, 0, BlockRange::new(0, 1));
    cached(&mut store, 2, 1, 1);
    reserved(&mut store, 3, 1, 2);
    let [below, above] = &store.take_orders()[..] else {
        panic!("two writes")
    };
    assert_eq!((below.from, below.to), (CPU, DISK));
    assert_eq!((above.from, above.to), (GPU, CPU));
    assert_eq!(above.after, [below.id]);
    store.finish_move(below.id).unwrap();
    store.finish_move(above.id).unwrap();
}

#[test]
fn with_the_last_copy_of_a_block_goes_what_follows_it() {
    let mut store = Checked(tiers(&[1, 1, 4], false));
    put(&mut store, CPU, 0, BlockRange::new(0, 1));
    put(&mut store, DISK, 0, BlockRange::new(1, 3));
    store.claim(CPU, 1, 1).unwrap().unwrap(); // block 0 has no copy any more
    assert_eq!(store.tier(DISK).orphaned, 2);
    assert_eq!(store.peek(0, 4), (0, 0));
}

#[test]
fn of_two_equally_recent_blocks_the_deeper_goes_first_though_the_other_is_bared_before() {
    let mut store = store(&[8, 4, 4]);
    put(&mut store, CPU, 1, BlockRange::new(0, 3));
    let lease = running(&mut store, 0, 4, 1);
    store.write_through(lease, 3, 4, 1).unwrap();
    finish_all(&mut store);
    store.release(lease, 2).unwrap(); // makes blocks 0, 1 and 3 equally recent on the CPU
    store.claim(CPU, 2, 3).unwrap().unwrap();
    finish_all(&mut store);
    // Block 2 of request 1 is the oldest and would expose block 1, but block 3 of request 0 is evicted before
    // that.
    let (ready, none) = (NO_MOVE, NO_COPY);
    let right = [
        (2, vec![ready, ready, none]),
        (3, vec![ready, none, none]),
        (4, vec![ready, none, ready]),
    ];
    assert_eq!(store.copies(0, 4), right);
}
