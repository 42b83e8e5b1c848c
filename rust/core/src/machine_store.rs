//! What every store of a machine answers, whatever its rules: the tree of runs, vLLM's pool, SGLang's tree.

use crate::batch::BatchStore;
use crate::engines::group_store::GroupStore;
use crate::engines::pool_store::PoolStore;
use crate::engines::radix_store::RadixStore;
use crate::records::Records;
use crate::store::{Answer, Store, StoreError, Violation, GPU, STAGING};

/// How the blocks of a tier are used: the first four sum to its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierRoom {
    /// Used by nothing.
    pub free: u64,
    /// Private to running requests.
    pub active: u64,
    /// Shared, whether held or not.
    pub cached: u64,
    /// Being written, or not to be used before a write has ended.
    pub in_flight: u64,
    /// Of the cached blocks those that nobody holds.
    pub evictable: u64,
}

/// Blocks that have left a tier so far, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierLosses {
    /// Evicted to make room.
    pub evicted: u64,
    /// Evicted from the tier above, and not taken by this one.
    pub overflowed: u64,
    /// Gone because the blocks that they follow went.
    pub orphaned: u64,
}

/// The blocks of a machine: what routing, metrics and checks ask beyond what a batch does.
pub trait MachineStore: BatchStore {
    /// Refuses a request that the trace does not have.
    fn known_request(&self, request: u32) -> Answer<()>;
    /// How many of the first `limit` blocks are found, and how many are ready on the GPU; changes nothing.
    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)>;
    /// How a tier's blocks are used.
    fn room(&self, tier: usize) -> Answer<TierRoom>;
    /// What a tier has lost.
    fn losses(&self, tier: usize) -> Answer<TierLosses>;
    /// Blocks computed twice and merged.
    fn merged_blocks(&self) -> u64;
    /// The digest and the evictions.
    fn records(&self) -> &Records;
    /// The same, to add to.
    fn records_mut(&mut self) -> &mut Records;
    /// Recomputes everything from scratch; the first violated invariant is the error.
    fn check(&self) -> Result<(), Violation>;
}

impl MachineStore for Store {
    fn known_request(&self, request: u32) -> Answer<()> {
        Store::known_request(self, request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        Store::known_request(self, request)?;
        Ok(Store::peek(self, request, limit))
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(TierRoom {
            free: tier.free,
            active: tier.active,
            cached: tier.cached,
            in_flight: tier.in_flight,
            evictable: tier.evictable,
        })
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(TierLosses {
            evicted: tier.evictions,
            overflowed: tier.overflowed,
            orphaned: tier.orphaned,
        })
    }

    fn merged_blocks(&self) -> u64 {
        self.merged_blocks
    }

    fn records(&self) -> &Records {
        &self.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }

    fn check(&self) -> Result<(), Violation> {
        Store::check(self)
    }
}

/// Refuses every tier but the GPU.
pub(crate) fn gpu_alone(tier: usize) -> Answer<()> {
    if tier == GPU {
        return Ok(());
    }
    Err(StoreError::NoSuchTier(1))
}

/// What the stores of engines answer alike: a GPU alone, where what is found is ready.
macro_rules! engine_store {
    ($store:ident, room: $room:expr, merged: $merged:expr) => {
        impl MachineStore for $store {
            fn known_request(&self, request: u32) -> Answer<()> {
                $store::known_request(self, request)
            }

            fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
                $store::known_request(self, request)?;
                let found = $store::peek(self, request, limit);
                Ok((found, found))
            }

            fn room(&self, tier: usize) -> Answer<TierRoom> {
                gpu_alone(tier)?;
                let (free, active, cached, evictable) = $room(self);
                Ok(TierRoom {
                    free,
                    active,
                    cached,
                    in_flight: 0,
                    evictable,
                })
            }

            fn losses(&self, tier: usize) -> Answer<TierLosses> {
                gpu_alone(tier)?;
                Ok(TierLosses {
                    evicted: self.evictions(),
                    ..TierLosses::default()
                })
            }

            fn merged_blocks(&self) -> u64 {
                $merged(self)
            }

            fn records(&self) -> &Records {
                &self.records
            }

            fn records_mut(&mut self) -> &mut Records {
                &mut self.records
            }

            fn check(&self) -> Result<(), Violation> {
                $store::check(self)
            }
        }
    };
}

engine_store!(PoolStore, room: PoolStore::room, merged: |_: &PoolStore| 0);
impl MachineStore for GroupStore {
    fn known_request(&self, request: u32) -> Answer<()> {
        GroupStore::known_request(self, request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        GroupStore::known_request(self, request)?;
        Ok(GroupStore::peek(self, request, limit))
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        let below = self.tier();
        if let (STAGING, Some(below)) = (tier, below) {
            return Ok(below.tier().room(below.copies.writing_blocks()));
        }
        gpu_alone(tier)?;
        let (free, active, cached, evictable) = GroupStore::room(self);
        let arriving = below.map_or(0, |below| below.copies.arriving_blocks());
        Ok(TierRoom {
            free,
            active: active - arriving,
            cached,
            in_flight: arriving,
            evictable,
        })
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        let evicted = match (tier, self.tier()) {
            (STAGING, Some(below)) => below.tier().evicted(),
            _ => {
                gpu_alone(tier)?;
                self.evictions()
            }
        };
        Ok(TierLosses {
            evicted,
            ..TierLosses::default()
        })
    }

    fn merged_blocks(&self) -> u64 {
        GroupStore::merged_blocks(self)
    }

    fn records(&self) -> &Records {
        &self.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }

    fn check(&self) -> Result<(), Violation> {
        GroupStore::check(self)
    }
}

engine_store!(RadixStore, room: RadixStore::room, merged: RadixStore::merged_pages);
