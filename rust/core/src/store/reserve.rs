//! Reservations: each evicts exactly its shortfall, or a batch of blocks at once.
//!
//! On the lowest tier victims are discarded, and with a block's last copy all blocks after it. On the other
//! tiers victims are demoted (`demotion`).

use super::node::State;
use super::pending::{blocks_of, moves_of, PendingFree, Waiting};
use super::{Answer, Store, GPU};
use crate::convert::fit;
use crate::ids::{BlockRange, LeaseId, MoveId, NodeId, NONE, NO_MOVE};

/// Outcome of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Held blocks leave too few; nothing was changed.
    Refused,
    /// The blocks are free now.
    Ready,
    /// The blocks are reserved, and free when these moves have finished.
    Pending(Vec<MoveId>),
}

/// Private blocks that a lease asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBlocks {
    /// The lease.
    pub lease: LeaseId,
    /// Number of blocks.
    pub blocks: u64,
}

impl LeaseBlocks {
    /// Returns a lease's demand for blocks.
    pub fn new(lease: LeaseId, blocks: u64) -> Self {
        Self { lease, blocks }
    }
}

impl Store {
    /// Reserves private GPU blocks for several leases, all or nothing.
    pub fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let mut blocks = 0u64;
        for asked in wanted {
            self.lease(asked.lease)?;
            blocks = blocks.saturating_add(asked.blocks);
        }
        let Some(pending) = self.evict_for(GPU, blocks, now_ns) else {
            return Ok(Reservation::Refused);
        };
        let late = blocks_of(&pending);
        self.tiers[GPU].active += blocks - late;
        self.tiers[GPU].in_flight += late;
        for &LeaseBlocks { lease, blocks } in wanted {
            self.leases[lease].reserved += blocks;
            self.admitted_at(lease, now_ns);
            self.admitted(lease);
        }
        self.join_loose();
        if pending.is_empty() {
            return Ok(Reservation::Ready);
        }
        self.assign_pending(wanted, &pending);
        let mut moves = moves_of(&pending);
        moves.sort_unstable();
        moves.dedup();
        Ok(Reservation::Pending(moves))
    }

    fn assign_pending(&mut self, wanted: &[LeaseBlocks], pending: &[PendingFree]) {
        let mut takers = wanted.iter().copied().filter(|w| w.blocks > 0);
        let mut taker = takers.next();
        for &PendingFree { id, mut blocks } in pending {
            while blocks > 0 {
                let LeaseBlocks {
                    lease,
                    blocks: open,
                } = taker.expect("pending blocks never exceed the reserved ones");
                let take = open.min(blocks);
                self.moves[id].waiting.push(Waiting {
                    lease,
                    blocks: take,
                });
                self.leases[lease].pending += take;
                blocks -= take;
                taker = if take == open {
                    takers.next()
                } else {
                    Some(LeaseBlocks::new(lease, open - take))
                };
            }
        }
    }

    /// Sets the minimum number of blocks that an eviction frees at once.
    #[must_use]
    pub fn with_eviction_batch(mut self, blocks: u64) -> Self {
        self.rules.batch_blocks = blocks;
        self
    }

    /// Takes `blocks` blocks of a tier: first free ones, then blocks being freed, then those that an eviction
    /// of the shortfall frees. The caller accounts for them. `None` refuses: nothing was taken.
    pub(super) fn evict_for(
        &mut self,
        tier: usize,
        blocks: u64,
        now_ns: u64,
    ) -> Option<Vec<PendingFree>> {
        if self.tiers[tier].available() < blocks {
            return None;
        }
        self.notify_time(now_ns);
        let lacking = blocks.saturating_sub(self.tiers[tier].free);
        let shortfall = lacking.saturating_sub(blocks_of(&self.tiers[tier].coming));
        let freed = if shortfall > 0 {
            self.evict(tier, shortfall, now_ns)?
        } else {
            0
        };
        let target = &mut self.tiers[tier];
        let late = (lacking - shortfall.min(freed)).min(blocks_of(&target.coming));
        if target.free + late < blocks {
            return None;
        }
        target.free -= blocks - late;
        Some(target.take_coming(late))
    }

    /// Evicts the shortfall, or a batch if that is more. Returns how many of the evicted blocks are free now;
    /// the others are being freed. `None`, nothing done, if too few are evictable.
    fn evict(&mut self, tier: usize, shortfall: u64, now_ns: u64) -> Option<u64> {
        let wanted = shortfall.max(self.rules.batch_blocks);
        if tier + 1 == self.tiers.len() {
            return Some(self.discard_victims(tier, wanted, now_ns));
        }
        let (evicted, pending) = self.demote_victims(tier, shortfall, wanted, now_ns)?;
        let late = blocks_of(&pending);
        let target = &mut self.tiers[tier];
        target.in_flight += late;
        target.coming.extend(pending);
        Some(evicted - late)
    }

    /// Discards `wanted` blocks, or as many as are evictable; returns how many.
    fn discard_victims(&mut self, tier: usize, wanted: u64, now_ns: u64) -> u64 {
        let mut left = wanted;
        if self.has_order(tier) {
            // no more than the evictable blocks are requested
            left = self.select_victims(tier, wanted).len() as u64;
        }
        let mut discarded = 0;
        while left > 0 {
            let Some(id) = self.next_victim(tier, left) else {
                break;
            };
            let blocks = u64::from(self.trie.nodes[id as usize].blocks());
            let take = blocks.min(left);
            let cut = self.trie.nodes[id as usize].end - fit::<u32>(take);
            left -= take;
            discarded += take;
            self.note_evicted(tier, id, cut, self.trie.nodes[id as usize].end, now_ns);
            self.tiers[tier].cached -= take;
            self.tiers[tier].free += take;
            let node = &self.trie.nodes[id as usize];
            if take < blocks && node.first_child == NONE && self.only_on(id, tier) {
                self.trim(tier, id, cut);
                continue;
            }
            if take < blocks {
                self.split(id, cut);
            }
            self.set_state(id, tier, State::Absent, NO_MOVE);
            self.discard_if_gone(id);
        }
        discarded
    }

    /// Shortens a run in place: its tail has no other copy and no run below.
    fn trim(&mut self, tier: usize, id: NodeId, cut: u32) {
        debug_assert!(self.only_on(id, tier));
        let (_, times) = self.cut_time_spans(id, tier, cut);
        self.copy_mut(id, tier).times = times;
        let end = std::mem::replace(&mut self.trie.nodes[id as usize].end, cut);
        let blocks = BlockRange::new(cut, end);
        self.log_change(id, tier, false, blocks);
        self.notify(id, blocks, false);
        self.refresh(id);
    }
}
