//! What a pool of several cache groups answers of the contract of all stores.

use super::GroupStore;
use crate::records::Records;
use crate::store::contract::{
    gpu_alone, BlockStore, GroupAdmission, MachineStore, MovingStore, OffersComputed, TierLosses,
    TierRoom,
};
use crate::store::newcomer::{Brought, Entry, Newcomer};
use crate::store::{Answer, LeaseId, Violation, STAGING};

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

impl BlockStore for GroupStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        GroupStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        GroupStore::have_same_block(self, a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        GroupStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        GroupStore::release(self, lease)
    }

    fn groups(&mut self) -> Option<&mut dyn GroupAdmission> {
        Some(self)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        self.tier_mut().map(|tier| tier as &mut dyn MovingStore)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        self.tier().is_some().then_some(self)
    }
}

impl GroupAdmission for GroupStore {
    fn max_num_batched_tokens(&self) -> u64 {
        GroupStore::max_num_batched_tokens(self)
    }

    fn admit(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry> {
        GroupStore::admit(self, asked, now_ns)
    }

    fn brought(&mut self, lease: LeaseId) -> Option<Brought> {
        self.tier_mut().map(|tier| tier.brought(lease))
    }
}
