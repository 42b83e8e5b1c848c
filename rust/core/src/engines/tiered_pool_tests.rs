//! vLLM's pool with tiers below, narrated: what is stored, found, loaded, joined and waited for.

use std::sync::Arc;

use super::chunk_order::{ChunkOrder, ChunkPolicy};
use super::lmcache_below::LmcacheBelow;
use super::offload_below::OffloadBelow;
use super::offload_lru::OffloadLru;
use super::offload_tier::OffloadTier;
use super::tiered_pool::TieredPool;
use super::used_tier::UsedTier;
use crate::keys::{BlockKeys, NO_REQUEST};
use crate::store::contract::{BatchStore, LoadingStore, MachineStore, MovingStore, OffersComputed};
use crate::store::{LeaseId, MoveId, Part, Room, Times, GPU, NO_MOVE, STAGING};

/// Requests of three full blocks of two tokens and one token more: 0 and 1 are alike, 2 and 3 are others.
fn keys() -> Arc<BlockKeys> {
    let ids = vec![0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let keys = BlockKeys::new(
        vec![0, 3, 6, 9, 12],
        ids,
        1,
        vec![3; 4],
        vec![NO_REQUEST; 4],
    );
    Arc::new(keys.unwrap())
}

fn offloading(gpu: u32, cpu: usize) -> TieredPool {
    let tier = OffloadTier::new(Box::<OffloadLru>::default(), cpu, 0);
    let below = OffloadBelow(UsedTier::new(tier, cpu as u64, 4));
    TieredPool::new(keys(), gpu, Box::new(below), vec![7; 4], 2).unwrap()
}

fn lmcache(gpu: u32, cpu: u64, disk: u64) -> TieredPool {
    let orders = [ChunkPolicy::Lru; 2].map(ChunkOrder::new);
    let below = LmcacheBelow::new(orders, (cpu, disk), 4);
    TieredPool::new(keys(), gpu, Box::new(below), vec![7; 4], 2).unwrap()
}

/// Admits a request with nothing found, and room for four blocks.
fn admit(store: &mut TieredPool, request: u32) -> (LeaseId, Room) {
    let lease = store.acquire(request, 0).unwrap();
    (lease, store.reserve(&[(lease, 4)], 0).unwrap())
}

/// Computes a prompt and ends the step; the moves that it starts.
fn compute(store: &mut TieredPool, lease: LeaseId) -> Vec<MoveId> {
    store.commit(lease, 3, Times::default()).unwrap();
    store.step_computed(&[lease], 0).unwrap();
    store.take_orders().iter().map(|order| order.id).collect()
}

#[test]
fn a_computed_prompt_is_stored_at_the_end_of_its_step() {
    let mut store = offloading(8, 9);
    let (lease, room) = admit(&mut store, 0);
    assert_eq!(room, Room::Ready);
    assert!(store.is_to_offer(lease));
    let [written] = compute(&mut store, lease)[..] else {
        panic!("one copy of three blocks");
    };
    assert!(!store.is_to_offer(lease), "all of the prompt is offered");
    let cpu = MachineStore::room(&store, STAGING).unwrap();
    assert_eq!((cpu.cached, cpu.in_flight, cpu.evictable), (0, 3, 0));
    store.finish_move(written).unwrap();
    let cpu = MachineStore::room(&store, STAGING).unwrap();
    assert_eq!((cpu.cached, cpu.in_flight, cpu.evictable), (3, 0, 3));
    assert_eq!(store.duplicates(STAGING), Ok(3));
    store.check().unwrap();
}

#[test]
fn who_gets_blocks_that_are_still_read_waits_for_the_copy() {
    let mut store = offloading(4, 9);
    let (lease, _) = admit(&mut store, 0);
    let written = compute(&mut store, lease);
    store.release(lease).unwrap();
    assert_eq!(store.spare_blocks(), 0, "a stretch takes none of them");
    let (_, room) = admit(&mut store, 2);
    assert_eq!(room, Room::Pending(written));
}

#[test]
fn another_request_joins_a_load_that_is_under_way() {
    let mut store = offloading(5, 9);
    let (lease, _) = admit(&mut store, 0);
    for id in compute(&mut store, lease) {
        store.finish_move(id).unwrap();
    }
    store.release(lease).unwrap();
    for request in [2, 3] {
        let (other, _) = admit(&mut store, request);
        store.commit(other, 3, Times::default()).unwrap();
        store.release(other).unwrap();
    }
    assert_eq!(
        MachineStore::peek(&store, 0, 3),
        Ok((3, 0)),
        "on the CPU alone"
    );
    let first = store.acquire(0, 0).unwrap();
    store.reserve(&[(first, 4)], 0).unwrap();
    let load = store.load(first, 3, &[]).unwrap();
    let part = Part {
        tier: GPU,
        start: 0,
        end: 3,
        by: load,
    };
    assert_eq!(store.match_prefix(1, 3), [part]);
    let second = store.acquire(1, 0).unwrap();
    store.reserve(&[(second, 1)], 0).unwrap();
    store.join(second, 3).unwrap();
    assert_eq!(store.take_orders().len(), 1, "one load for both");
    assert_eq!(MachineStore::room(&store, GPU).unwrap().in_flight, 3);
    store.finish_move(load).unwrap();
    assert_eq!(MachineStore::peek(&store, 1, 3), Ok((3, 3)));
    store.check().unwrap();
}

#[test]
fn what_finds_no_room_in_the_tier_is_offered_again() {
    let mut store = offloading(8, 2);
    let (lease, _) = admit(&mut store, 0);
    assert_eq!(compute(&mut store, lease), []);
    assert!(store.is_to_offer(lease));
    assert_eq!(MachineStore::losses(&store, STAGING).unwrap().evicted, 0);
}

#[test]
fn lmcache_reads_from_the_disk_through_the_cpu() {
    let mut store = lmcache(4, 3, 9);
    for request in [0, 2] {
        let (lease, _) = admit(&mut store, request);
        let moves = compute(&mut store, lease);
        assert_eq!(moves.len(), 2, "to the CPU, then to the disk");
        moves.iter().for_each(|&id| store.finish_move(id).unwrap());
        store.release(lease).unwrap();
    }
    let (lease, _) = admit(&mut store, 3);
    store.commit(lease, 3, Times::default()).unwrap();
    store.release(lease).unwrap();
    let parts = store.match_prefix(0, 3);
    let tiers: Vec<(usize, MoveId)> = parts.iter().map(|part| (part.tier, part.by)).collect();
    assert_eq!(tiers, [(STAGING + 1, NO_MOVE)]);
    let lease = store.acquire(0, 0).unwrap();
    store.reserve(&[(lease, 4)], 0).unwrap();
    let load = store.load(lease, 3, &[]).unwrap();
    let orders = store.take_orders();
    assert_eq!((orders[0].from, orders[0].to), (STAGING + 1, STAGING));
    assert_eq!(
        (orders[1].id, &orders[1].after[..]),
        (load, &[orders[0].id][..])
    );
    assert_eq!(MachineStore::losses(&store, STAGING).unwrap().evicted, 6);
    for order in orders {
        store.finish_move(order.id).unwrap();
    }
    store.check().unwrap();
}
