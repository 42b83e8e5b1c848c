//! Each operation of a store in small examples.
//!
//! | file | contents |
//! |---|---|
//! | `leases` | look up, acquire, commit, release, abandon |
//! | `occupancy` | reserve: evict, demote, discard, refuse |
//! | `loads` | load, join, stage, protect, drop copies |
//! | `writes` | write-through, selective, onward; touch, discard, expire |
//! | `machines` | reads by and from other machines |
//! | `by_hand` | manual cache operations: claim, fill, release, remove |
//! | `joined` | merging runs that no longer differ |
//! | `times` | ready times |
//! | `model` | random walks against a naive model |

mod by_hand;
mod joined;
mod leases;
mod loads;
mod machines;
mod model;
mod reserving;
mod times;
mod writes;

use std::ops::{Deref, DerefMut};

use super::*;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::store::LeaseBlocks;

const CPU: usize = 1;
const DISK: usize = 2;

/// A store whose invariants are checked at the end of its test.
struct Checked(Store);

impl Deref for Checked {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.0
    }
}

impl DerefMut for Checked {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.0
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.check().unwrap();
        }
    }
}

/// Returns a store with the given number of blocks on each tier. Four requests have four blocks each: 0 and 1 share
/// their first two; 2 and 3 share nothing.
fn tiers(capacities: &[u64], write_back: bool) -> Store {
    let rows = [[0, 1, 2, 3], [0, 1, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13]];
    let tier = |&blocks: &u64| TierConfig {
        capacity_blocks: Some(blocks),
        write_back,
    };
    let tiers: Vec<TierConfig> = capacities.iter().map(tier).collect();
    Store::new(BlockKeys::of_rows(1, &rows), &tiers)
}

/// Returns such a store whose victims are written to the tier below, if there is one.
fn store(capacities: &[u64]) -> Checked {
    Checked(tiers(capacities, true))
}

/// Admits a request that finds nothing, and reserves blocks for it.
fn reserved(store: &mut Store, request: u32, blocks: u64, now_ns: u64) -> LeaseId {
    let lease = store.acquire(request, 0).unwrap();
    store
        .reserve(&[LeaseBlocks::new(lease, blocks)], now_ns)
        .unwrap();
    lease
}

/// Starts a request: computes its first blocks and keeps it running.
fn running(store: &mut Store, request: u32, blocks: u32, now_ns: u64) -> LeaseId {
    let found = store.peek(request, blocks).1;
    let lease = store.acquire(request, found).unwrap();
    let missing = u64::from(blocks - found);
    assert_eq!(
        store.reserve(&[LeaseBlocks::new(lease, missing)], now_ns),
        Ok(Reservation::Ready)
    );
    store.commit(lease, blocks, Times::at(now_ns)).unwrap();
    lease
}

/// Runs a request to its end: its first blocks are cached on the GPU, without a holder.
fn cached(store: &mut Store, request: u32, blocks: u32, now_ns: u64) {
    let lease = running(store, request, blocks, now_ns);
    store.release(lease, now_ns).unwrap();
}

/// Finishes every transfer, in the order of issue.
fn finish_all(store: &mut Store) {
    for order in store.take_orders() {
        store.finish_move(order.id).unwrap();
    }
}

/// Marks blocks of a request manually as ready on a tier.
fn put(store: &mut Store, tier: usize, request: u32, blocks: BlockRange) {
    let size = u64::from(blocks.len());
    let (claim, _) = store.claim(tier, size, 0).unwrap().unwrap();
    assert_eq!(store.fill_claim(claim, request, blocks, None), Ok(true));
    store.finish_move(claim).unwrap();
}

/// A tier's blocks: free, active, cached, in flight.
fn occupancy(store: &Store, tier: usize) -> [u64; 4] {
    let tier = store.tier(tier);
    [tier.free, tier.active, tier.cached, tier.in_flight]
}
