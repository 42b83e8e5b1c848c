//! Ready times: set for moves, known for computed blocks.

use super::*;
use crate::ids::BlockRange;

/// First layer, whole, last access of the only copy of each run, after the run's last block.
fn reported(store: &Store, request: u32) -> Vec<(u32, u64, u64, u64)> {
    let of = |(end, copies): (u32, Vec<Residency>)| {
        let Times {
            first_layer_ns,
            ready_ns,
        } = copies[0].times;
        (end, first_layer_ns, ready_ns, copies[0].last_access_ns)
    };
    store.residency(request, 4).into_iter().map(of).collect()
}

#[test]
fn computed_blocks_know_the_step_that_computed_them() {
    let mut store = store(&[4]);
    let lease = reserved(&mut store, 0, 3, 5);
    store.commit(lease, 2, Times::at(10)).unwrap();
    store.commit(lease, 3, Times::at(20)).unwrap();
    assert_eq!(reported(&store, 0), [(2, 10, 10, 5), (3, 20, 20, 5)]);
    store.release(lease, 30).unwrap();
    assert_eq!(reported(&store, 0), [(2, 10, 10, 30), (3, 20, 20, 30)]);
    assert_eq!(store.now_ns(), 30);
}

#[test]
fn a_move_has_the_times_of_its_transmission() {
    let mut store = store(&[4, 4]);
    let mv = store.receive(0, BlockRange::new(0, 2), 1).unwrap().unwrap();
    assert_eq!(reported(&store, 0)[0].2, NOT_YET);
    let times = Times {
        first_layer_ns: 4,
        ready_ns: 9,
    };
    store.set_times(mv, times).unwrap();
    assert_eq!(store.residency(0, 4)[0].1[0].by, mv);
    store.finish_move(mv).unwrap();
    assert_eq!(reported(&store, 0)[0].1..=reported(&store, 0)[0].2, 4..=9);
    assert_eq!(store.set_times(mv, times), Err(StoreError::NoSuchMove));
}

#[test]
fn no_copy_is_whole_before_its_first_layer() {
    let mut store = store(&[4, 4]);
    let mv = store.receive(0, BlockRange::new(0, 2), 1).unwrap().unwrap();
    let backwards = Times {
        first_layer_ns: 9,
        ready_ns: 4,
    };
    let refused = store.set_times(mv, backwards);
    assert_eq!(refused, Err(StoreError::LastLayerFirst));
    let lease = reserved(&mut store, 2, 1, 1);
    let refused = store.commit(lease, 1, backwards);
    assert_eq!(refused, Err(StoreError::LastLayerFirst));
}

#[test]
fn times_of_accesses_that_nothing_remembers_are_forgotten() {
    let mut store = store(&[4]);
    cached(&mut store, 0, 2, 1);
    let use_one = |store: &mut Store, request: u32, now_ns: u64| {
        let depth = store.peek(request, 2).1;
        let lease = store.acquire(request, depth).unwrap();
        store.release(lease, now_ns).unwrap();
    };
    for now_ns in 2..20_000 {
        use_one(&mut store, 2, now_ns);
    }
    assert_eq!(
        reported(&store, 0),
        [(2, 1, 1, 1)],
        "the run remembers its own"
    );
    for now_ns in 20_000..60_000 {
        use_one(&mut store, 0, now_ns);
        use_one(&mut store, 2, now_ns);
    }
    assert_eq!(reported(&store, 0), [(2, 1, 1, 59_999)]);
    assert!(store.clock.accessed_ns.len() < 100_000, "of 200,000");
}

/// A store of a ready and an arriving copy that a fault breaks, and what its check then says.
fn said(fault: impl FnOnce(&mut Store, NodeId)) -> String {
    let mut store = tiers(&[4, 4], true);
    cached(&mut store, 2, 1, 5);
    let mv = store.receive(0, BlockRange::new(0, 2), 5).unwrap().unwrap();
    store.set_times(mv, Times::at(9)).unwrap();
    assert_eq!(store.check(), Ok(()));
    let live = store.live_nodes();
    let ready = |&id: &NodeId| store.copy(id, GPU).state == State::Ready;
    let id = live.into_iter().find(ready).unwrap();
    fault(&mut store, id);
    store.check().unwrap_err()
}

#[test]
fn a_copy_that_is_ready_before_its_time_is_found() {
    let too_early = said(|store, id| store.copy_mut(id, GPU).times = Times::at(6));
    assert!(too_early.starts_with("I7"), "{too_early}");
    let backwards = said(|store, id| store.copy_mut(id, GPU).times.first_layer_ns = 6);
    assert!(backwards.starts_with("I7"), "{backwards}");
    let late = said(|store, _| store.clock.now_ns = 10);
    assert!(
        late.starts_with("I7"),
        "a move that should have ended: {late}"
    );
}
