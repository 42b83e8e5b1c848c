//! Tier below a pool of several cache groups, in a timed run. Blocks of each group are stored under the pool's
//! keys.
//!
//! Under vLLM's rules (0.33.0, `OffloadingConnectorScheduler`, chunks of one or more blocks of a group) all groups are
//! looked up once more behind the pool's joint hit, in the tier alone. Blocks of a step are offered at its end, if they
//! are prompt blocks that are kept. The tier orders a request's blocks by their end in the prompt, across groups. Under
//! the tree's rules a prompt continues from where all groups can, block by block from pool or tier. Blocks go down when
//! they leave the pool (write-back) or are computed (write-through). A group loads the blocks that it will read.

/// Loads from the tier.
pub mod bring;
pub mod connector;
mod demote;
mod known;
pub mod look_up;
mod offer;
mod presence;
mod to_offer;

use std::collections::{BTreeMap, BTreeSet};

use super::copies::{Copies, Copy};
use super::groups::manager::GroupManager;
use super::groups::Found;
use super::tier_chunks::TierChunks;
use super::used_tier::UsedTier;
use crate::convert::fit;
use crate::records::Records;
use crate::store::contract::{MovingStore, TierOccupancy};
use crate::store::newcomer::Brought;
use crate::store::{Answer, LeaseId, MoveId, Order, Violation, STAGING};
use known::GroupConnector;
pub use known::Known;
pub use to_offer::GroupSlot;
use to_offer::ToOffer;

/// Time at which blocks are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupWrites {
    /// vLLM's rule: computed blocks of prompts are offered.
    Engine,
    /// The tree's write-back: blocks that leave the pool are written.
    Back,
    /// The tree's write-through: computed blocks of prompts are offered.
    Through,
}

/// Result of a look-up, with the hit of the pool alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundBelow {
    /// Hit in pool and tier together.
    pub found: Found,
    /// Tokens of the pool's own joint hit.
    pub pool_tokens: u64,
}

/// Tier, and the copies between it and the pool.
#[derive(Debug)]
pub struct GroupTier {
    tier: UsedTier,
    chunks: TierChunks,
    writes: GroupWrites,
    /// Copies in flight, and the blocks of each group that a move copies.
    pub copies: Copies,
    by_group: BTreeMap<MoveId, Vec<u64>>,
    prompt_tokens: Vec<u64>,
    /// For each running request, the prompt blocks that are still to be offered.
    to_offer: Vec<Option<ToOffer>>,
    /// Requests with blocks of a refused offer, or of a chunk that is not complete.
    watched: BTreeSet<u32>,
    /// For each lease, the loads of its admission, until they are taken.
    brought: BTreeMap<LeaseId, Brought>,
    /// Requests and copies of vLLM's own scheduler.
    pub connector: GroupConnector,
}

impl GroupTier {
    /// An empty tier below a pool of `capacity_blocks` blocks.
    pub fn new(
        tier: UsedTier,
        chunks: TierChunks,
        writes: GroupWrites,
        capacity_blocks: u32,
        prompt_tokens: Vec<u64>,
    ) -> Self {
        Self {
            tier,
            chunks,
            writes,
            copies: Copies::new(capacity_blocks),
            by_group: BTreeMap::new(),
            to_offer: vec![None; prompt_tokens.len()],
            watched: BTreeSet::new(),
            prompt_tokens,
            brought: BTreeMap::new(),
            connector: GroupConnector::default(),
        }
    }

    /// Returns true if a found block of the pool is still being written.
    pub fn is_arriving(&self, manager: &GroupManager, request: u32, looked: FoundBelow) -> bool {
        let tokens = match self.writes {
            GroupWrites::Engine => looked.pool_tokens,
            _ => looked.found.tokens,
        };
        let groups = 0..manager.groups().len();
        let tables = groups.map(|number| manager.table_with_gaps(request, number, tokens));
        let mut blocks = tables.flat_map(|table| table.blocks);
        blocks.any(|block| self.copies.is_arriving(block))
    }

    /// Takes the loads of a lease's admission; once.
    pub fn brought(&mut self, lease: LeaseId) -> Brought {
        self.brought.remove(&lease).unwrap_or_default()
    }

    /// Returns the moves that the blocks of an admission wait for.
    pub fn capacity_of(&self, lease: LeaseId) -> Vec<MoveId> {
        let brought = self.brought.get(&lease);
        brought.map_or_else(Vec::new, |brought| brought.freeing_moves.clone())
    }

    /// Returns true if part of a request's prompt is still to be offered, so that the end of its steps matters.
    pub fn is_to_offer(&self, request: u32) -> bool {
        self.writes != GroupWrites::Back && self.to_offer[request as usize].is_some()
    }

    /// Releases a request; the blocks of the tier that it used count as used once more.
    pub fn release(&mut self, lease: LeaseId, request: u32, was_admitted: bool) {
        self.to_offer[request as usize] = None;
        self.watched.remove(&request);
        self.brought.remove(&lease);
        if was_admitted {
            self.tier.finish(request);
        }
    }

    /// Returns true if the end of a request first releases the blocks that are no longer read, as vLLM's scheduler does
    /// before it asks its connector.
    pub fn frees_unread_first(&self) -> bool {
        self.writes == GroupWrites::Engine
    }

    /// Returns the slot of a group's block in the order of a request's blocks: under vLLM's rules from head to tail
    /// across groups, of equal ends the later group first; under the tree's rules group by group.
    fn slot(&self, manager: &GroupManager, slot: GroupSlot) -> u32 {
        let GroupSlot { group, block } = slot;
        let groups = manager.groups();
        if self.writes != GroupWrites::Engine {
            return fit::<u32>(group << 24) | block;
        }
        let end = fit::<u32>(u64::from(block + 1) * groups[group].block_size);
        end * fit::<u32>(groups.len()) + fit::<u32>(groups.len() - 1 - group)
    }

    /// Returns the last block of the chunk in which a block lies.
    fn chunk_end(&self, slot: GroupSlot) -> GroupSlot {
        let per = self.chunks.blocks;
        GroupSlot::new(slot.group, slot.block / per * per + per - 1)
    }

    /// Returns the key of the chunk in which a block lies: that of its last block.
    fn chunk_key(&self, manager: &GroupManager, request: u32, slot: GroupSlot) -> u64 {
        let end = self.chunk_end(slot);
        presence::key_of(manager, end.group, request, end.block)
    }

    /// Returns the use of the tier's blocks.
    pub fn occupancy(&self) -> TierOccupancy {
        let chunks = self.tier.counts(self.copies.writing_blocks());
        self.chunks.occupancy(STAGING, chunks)
    }

    /// Returns the number of blocks evicted so far.
    pub fn evicted(&self) -> u64 {
        self.tier.evicted() * u64::from(self.chunks.blocks)
    }

    /// Returns the number of the tier's blocks that the pool has too.
    pub fn duplicates(&self, manager: &GroupManager) -> u64 {
        let groups = manager.groups().len() as u64;
        let has = |key| {
            let (group, key) = presence::group_of(groups, key);
            manager.has(group, key)
        };
        let chunks = self.tier.keys();
        chunks.map(|chunk| self.chunks.in_pool(has, chunk)).sum()
    }

    /// Returns the moves that still read some blocks, ascending.
    pub fn readers(&self, blocks: impl Iterator<Item = u32>) -> Vec<MoveId> {
        let mut moves = BTreeSet::new();
        blocks.for_each(|block| self.copies.add_readers(block, &mut moves));
        moves.into_iter().collect()
    }

    /// Checks the tier and the copies against the reference counts of the pool's blocks (I2, I3, I9).
    pub fn check(&self, ref_counts: &[u32]) -> Result<(), Violation> {
        self.tier.check()?;
        self.copies.check(ref_counts)?;
        for (&id, counts) in &self.by_group {
            if self.copies.keys_of(id) != counts.iter().sum::<u64>() {
                return Err(format!(
                    "I9: move {id} copies blocks of groups under other keys"
                ));
            }
        }
        Ok(())
    }
}

/// Pool, records and time on which a tier's decisions act.
pub struct Site<'a> {
    /// Pool above.
    pub manager: &'a mut GroupManager,
    /// Records of the machine.
    pub records: &'a mut Records,
    /// Time of the decision.
    pub now_ns: u64,
}

impl MovingStore for GroupTier {
    fn has_orders(&self) -> bool {
        self.copies.has_orders()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        self.copies.take_orders()
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        if self.connector.jobs.arrives(id) {
            return Ok(());
        }
        let Copy { keys, .. } = self.copies.finish(id)?;
        self.by_group.remove(&id);
        self.tier.in_use.release_keys(&keys);
        Ok(())
    }

    fn blocks_of_move(&self, id: MoveId) -> Option<&[u64]> {
        self.by_group.get(&id).map(Vec::as_slice)
    }
}
