//! Parts of vLLM's pool with tiers below that only callers in the core use: spare blocks, and pending offers.

use super::chunk_order::{ChunkOrder, ChunkPolicy};
use super::lmcache_below::LmcacheBelow;
use super::offload_arc::OffloadArc;
use super::offload_below::OffloadBelow;
use super::offload_tier::OffloadTier;
use super::ranked_lru::RankedLru;
use super::tier_chunks::{TierBlocks, TierChunks};
use super::tiered_pool::TieredPool;
use super::used_tier::{SlotKey, UsedTier};
use crate::keys::BlockKeys;
use crate::store::contract::{BatchStore, BlockStore, MovingStore, OffersComputed};
use crate::store::{LeaseBlocks, LeaseId, MoveId, Reservation, Times};

/// Requests of three full blocks of two tokens and one more token: 0 and 1 are equal, 2 and 3 differ.
fn offloading(gpu: u32, cpu: usize) -> TieredPool {
    let keys = BlockKeys::of_rows(1, &[[0, 1, 2], [0, 1, 2], [3, 4, 5], [6, 7, 8]]);
    let tier = OffloadTier::new(Box::<RankedLru>::default(), cpu, 0);
    let chunks = TierChunks::new(
        1,
        TierBlocks {
            cpu: cpu as u64,
            disk: 0,
        },
    );
    let below = OffloadBelow::new(UsedTier::new(tier, cpu as u64, 4), chunks);
    TieredPool::new(keys, gpu, Box::new(below), vec![7; 4], 2).unwrap()
}

/// Admits a request without a hit, with capacity for four blocks.
fn admit(store: &mut TieredPool, request: u32) -> (LeaseId, Reservation) {
    let lease = store.acquire(request, 0).unwrap();
    (
        lease,
        store.reserve(&[LeaseBlocks::new(lease, 4)], 0).unwrap(),
    )
}

/// Computes a prompt and ends the step. Returns the moves started.
fn compute(store: &mut TieredPool, lease: LeaseId) -> Vec<MoveId> {
    store.commit(lease, 3, Times::default()).unwrap();
    store.step_computed(&[lease], 0).unwrap();
    store.take_orders().iter().map(|order| order.id).collect()
}

#[test]
fn a_computed_prompt_is_offered_until_the_tier_takes_it() {
    let mut store = offloading(8, 9);
    let (lease, _) = admit(&mut store, 0);
    assert!(store.is_to_offer(lease));
    assert_eq!(compute(&mut store, lease).len(), 1);
    assert!(!store.is_to_offer(lease), "all of the prompt is offered");
    let mut full = offloading(8, 2);
    let (lease, _) = admit(&mut full, 0);
    assert_eq!(compute(&mut full, lease), []);
    assert!(full.is_to_offer(lease));
}

#[test]
fn blocks_that_are_still_read_are_not_spare() {
    let mut store = offloading(4, 9);
    let (lease, _) = admit(&mut store, 0);
    let written = compute(&mut store, lease);
    store.release(lease, 0).unwrap();
    assert_eq!(store.spare_blocks(), 0, "batched steps take none of them");
    let (_, occupancy) = admit(&mut store, 2);
    assert_eq!(occupancy, Reservation::Pending(written));
}

/// Chunks of two blocks, of a prompt of three: the first chunk is copied once both of its blocks are computed.
#[test]
fn a_chunk_is_offered_once_it_is_whole_and_its_own_blocks_are_copied() {
    let keys = BlockKeys::of_rows(1, &[[0, 1, 2], [3, 4, 5]]);
    let orders = [ChunkPolicy::Lru; 2].map(ChunkOrder::new);
    let below = LmcacheBelow::new(
        orders,
        TierChunks::new(2, TierBlocks { cpu: 8, disk: 0 }),
        2,
    );
    let mut store = TieredPool::new(keys, 6, Box::new(below), vec![7; 2], 2).unwrap();
    let (lease, _) = admit(&mut store, 0);
    let mut compute = |to: u32| {
        store.commit(lease, to, Times::default()).unwrap();
        store.step_computed(&[lease], 0).unwrap();
        store
            .take_orders()
            .iter()
            .map(|order| order.blocks)
            .sum::<u64>()
    };
    assert_eq!([compute(1), compute(2), compute(3)], [0, 2, 0]);
    store.release(lease, 0).unwrap();
    // two blocks were never used, and the prompt's last two are not in the chunk
    let lease = store.acquire(1, 0).unwrap();
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, 4)], 0).unwrap(),
        Reservation::Ready
    );
    let waits = store.reserve(&[LeaseBlocks::new(lease, 1)], 0).unwrap();
    assert!(
        matches!(waits, Reservation::Pending(_)),
        "the chunk's last block is still read"
    );
}

#[test]
fn a_key_that_was_refused_and_then_stored_is_recent_when_its_request_ends() {
    let tier = OffloadTier::new(Box::new(OffloadArc::new(2)), 2, 0);
    let mut tier = UsedTier::new(tier, 2, 4);
    let offer = |tier: &mut UsedTier, request: u32, key: u64| {
        let stored = tier.offer(request, &[SlotKey { slot: 0, key }], &|_| true);
        stored.map(|stored| stored.evicted)
    };
    assert_eq!(
        (offer(&mut tier, 0, 1), offer(&mut tier, 1, 2)),
        (Some(vec![]), Some(vec![]))
    );
    tier.in_use.hold(&[1, 2]);
    assert_eq!(offer(&mut tier, 2, 3), None);
    tier.in_use.release_keys(&[1, 2]);
    assert_eq!(offer(&mut tier, 2, 3), Some(vec![1]), "1 leaves");
    tier.finish(1);
    tier.finish(2);
    assert_eq!(offer(&mut tier, 3, 4), Some(vec![2]), "2 leaves");
    assert!(tier.contains(3) && tier.check().is_ok());
}
