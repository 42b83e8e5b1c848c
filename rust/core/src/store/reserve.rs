//! Making room: a reservation evicts exactly its shortfall.
//!
//! On the lowest tier victims are discarded, and with the last copy of a block all that depended on it; on the
//! others they go down (`demotion`).

use super::lease::LeaseId;
use super::moves::{MoveId, Waiting, NO_MOVE};
use super::node::{NodeId, State, NONE};
use super::{Answer, Store, GPU};

/// What a reservation got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// Holders leave too little; nothing was changed.
    Refused,
    /// Free now.
    Ready,
    /// Reserved, and free when these moves have ended.
    Pending(Vec<MoveId>),
}

/// Blocks of a reservation whose room is free only when a move has ended.
pub(super) type PendingRoom = Vec<(MoveId, u64)>;

impl Store {
    /// Reserves private GPU blocks for several leases, all or nothing.
    pub fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        let mut blocks = 0u64;
        for &(lease, n) in wanted {
            self.lease(lease)?;
            blocks = blocks.saturating_add(n);
        }
        let Some(pending) = self.make_room(GPU, blocks, now_ns) else {
            return Ok(Room::Refused);
        };
        let late: u64 = pending.iter().map(|p| p.1).sum();
        self.tiers[GPU].active += blocks - late;
        self.tiers[GPU].in_flight += late;
        for &(lease, n) in wanted {
            self.leases[lease].reserved += n;
            self.admitted_at(lease, now_ns);
            self.admitted(lease);
        }
        self.join_loose();
        if pending.is_empty() {
            return Ok(Room::Ready);
        }
        self.assign_pending(wanted, &pending);
        let mut moves: Vec<MoveId> = pending.iter().map(|p| p.0).collect();
        moves.sort_unstable();
        moves.dedup();
        Ok(Room::Pending(moves))
    }

    fn assign_pending(&mut self, wanted: &[(LeaseId, u64)], pending: &PendingRoom) {
        let mut takers = wanted.iter().copied().filter(|w| w.1 > 0);
        let mut taker = takers.next();
        for &(mv, mut blocks) in pending {
            while blocks > 0 {
                let (lease, open) = taker.expect("pending room never exceeds what was asked for");
                let take = open.min(blocks);
                self.moves[mv].waiting.push(Waiting {
                    lease,
                    blocks: take,
                });
                self.leases[lease].pending += take;
                blocks -= take;
                taker = if take == open {
                    takers.next()
                } else {
                    Some((lease, open - take))
                };
            }
        }
    }

    /// Takes `blocks` out of a tier's free room, evicting the shortfall; the caller accounts for them.
    /// `None` refuses: nothing was taken.
    pub(super) fn make_room(
        &mut self,
        tier: usize,
        blocks: u64,
        now_ns: u64,
    ) -> Option<PendingRoom> {
        if self.tiers[tier].available() < blocks {
            return None;
        }
        self.tell_time(now_ns);
        let shortfall = blocks.saturating_sub(self.tiers[tier].free);
        let pending = if shortfall == 0 {
            PendingRoom::new()
        } else if tier + 1 == self.tiers.len() {
            self.discard_victims(tier, shortfall, now_ns);
            PendingRoom::new()
        } else {
            self.demote_victims(tier, shortfall, now_ns)?
        };
        let late: u64 = pending.iter().map(|p| p.1).sum();
        let room = &mut self.tiers[tier];
        if room.free + late < blocks {
            return None;
        }
        room.free -= blocks - late;
        Some(pending)
    }

    fn discard_victims(&mut self, tier: usize, shortfall: u64, now_ns: u64) {
        let mut left = shortfall;
        if self.has_order(tier) {
            // it is asked for no more than may go
            left = self.select_victims(tier, shortfall).len() as u64;
        }
        while left > 0 {
            let Some(id) = self.next_victim(tier, left) else {
                return;
            };
            let blocks = u64::from(self.nodes[id as usize].blocks());
            let take = blocks.min(left);
            let cut = self.nodes[id as usize].end - take as u32;
            left -= take;
            self.note_evicted(tier, id, cut, self.nodes[id as usize].end, now_ns);
            self.tiers[tier].cached -= take;
            self.tiers[tier].free += take;
            let node = &self.nodes[id as usize];
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
    }

    /// Shortens a run in place: its tail has no other copy and nothing below.
    fn trim(&mut self, tier: usize, id: NodeId, cut: u32) {
        debug_assert!(self.only_on(id, tier));
        let (_, times) = self.cut_stretches(id, tier, cut);
        self.copy_mut(id, tier).times = times;
        let end = std::mem::replace(&mut self.nodes[id as usize].end, cut);
        self.log_change(id, tier, false, (cut, end));
        self.tell(id, (cut, end), false);
        self.refresh(id);
    }
}
