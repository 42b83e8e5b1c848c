//! Making room: evict exactly the shortfall, write victims down or let them go.
//!
//! Victims are unheld runs without a child on the same tier, oldest access first, deepest first within one
//! release. A victim with a ready copy below just goes; one whose copy below is still being written waits for
//! it; one without a copy below is written there first, after room is made there in the same way. What the
//! tier below cannot take at all is let go, oldest first. On the lowest tier victims are discarded, and with
//! the last copy of a block all that depended on it.

use std::collections::{BTreeMap, BTreeSet};

use super::lease::LeaseId;
use super::moves::{Move, MoveId, Order, Waiting, NO_MOVE};
use super::node::{NodeId, State, NONE, ROOT};
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
type PendingRoom = Vec<(MoveId, u64)>;

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

    fn next_victim(&mut self, tier: usize, wanted: u64) -> Option<NodeId> {
        if self.has_order(tier) {
            return self.next_by_order(tier, wanted);
        }
        self.least_recent(tier)
    }

    pub(super) fn least_recent(&self, tier: usize) -> Option<NodeId> {
        self.tiers[tier].candidates.first().map(|&(_, _, id)| id)
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
        if !self.nodes[id as usize].computed.is_empty() {
            let (before, _, times) = self.cut_stretches(id, cut);
            self.nodes[id as usize].computed = before;
            self.copy_mut(id, GPU).times = times;
        }
        let end = std::mem::replace(&mut self.nodes[id as usize].end, cut);
        self.log_change(id, tier, false, (cut, end));
        self.tell(id, (cut, end), false);
        self.refresh(id);
    }

    /// The runs that `blocks` blocks of room cost, in eviction order, nothing changed but a cut of the last
    /// one. Fewer when there are not enough.
    fn select_victims(&mut self, tier: usize, blocks: u64) -> Vec<NodeId> {
        let victims = match self.least_recent(tier) {
            Some(id) if blocks > 0 && self.blocks_of(&[id]) >= blocks => vec![id],
            _ => self.select_several(tier, blocks),
        };
        let taken = self.blocks_of(&victims);
        if taken > blocks {
            let last = victims[victims.len() - 1];
            self.split(
                last,
                self.nodes[last as usize].start + (taken - blocks) as u32,
            );
        }
        victims
    }

    /// The runs that so many blocks of room cost, in eviction order; the last one may have too many.
    fn select_several(&self, tier: usize, blocks: u64) -> Vec<NodeId> {
        let mut victims = Vec::new();
        let mut left = blocks;
        let mut bared: BTreeMap<NodeId, u32> = BTreeMap::new(); // children taken so far, by parent
        let mut promoted: BTreeSet<(u64, u32, NodeId)> = BTreeSet::new();
        let mut listed = self.tiers[tier].candidates.iter().peekable();
        while left > 0 {
            let own = listed
                .peek()
                .is_some_and(|&next| promoted.first().is_none_or(|p| next < p));
            let next = if own {
                listed.next().copied()
            } else {
                promoted.pop_first()
            };
            let Some((_, _, id)) = next else {
                return victims;
            };
            victims.push(id);
            let node = &self.nodes[id as usize];
            left = left.saturating_sub(u64::from(node.blocks()));
            let parent = &self.nodes[node.parent as usize];
            let taken = bared.entry(node.parent).or_default();
            *taken += 1;
            let copy = self.copy(node.parent, tier);
            if copy.evictable > 0 && copy.children == *taken {
                promoted.insert((copy.access, u32::MAX - parent.end, node.parent));
            }
        }
        victims
    }

    fn blocks_of(&self, runs: &[NodeId]) -> u64 {
        let blocks = |&id: &NodeId| u64::from(self.nodes[id as usize].blocks());
        runs.iter().map(blocks).sum()
    }

    /// Evicts `shortfall` blocks from a tier that has one below; `None`, nothing done, when it has not as many.
    fn demote_victims(&mut self, tier: usize, shortfall: u64, now_ns: u64) -> Option<PendingRoom> {
        let below = tier + 1;
        let victims = self.select_victims(tier, shortfall);
        if self.blocks_of(&victims) < shortfall {
            return None;
        }
        let mut pending = PendingRoom::new();
        let mut to_write: Vec<NodeId> = Vec::new();
        let ordered = self.has_order(tier);
        let mut left = victims.len() as u64;
        for id in victims {
            // an order is asked one by one: each departure may bare the next
            let id = if ordered {
                self.next_by_order(tier, left)?
            } else {
                id
            };
            left -= 1;
            let blocks = u64::from(self.nodes[id as usize].blocks());
            let lower = *self.copy(id, below);
            if lower.state == State::Absent {
                self.hold(below, id);
                to_write.push(id);
            }
            self.take_off(tier, id, now_ns);
            match lower.state {
                State::Ready => self.tiers[tier].free += blocks,
                State::InFlight => pending.push((lower.by, blocks)),
                State::Absent => {}
            }
        }
        if !to_write.is_empty() {
            self.write_down(tier, to_write, &mut pending, now_ns);
        }
        Some(pending)
    }

    /// Takes a whole run off a tier; its room is the caller's business.
    fn take_off(&mut self, tier: usize, id: NodeId, now_ns: u64) {
        let node = &self.nodes[id as usize];
        let blocks = u64::from(node.blocks());
        self.note_evicted(tier, id, node.start, node.end, now_ns);
        self.set_state(id, tier, State::Absent, NO_MOVE);
        self.tiers[tier].cached -= blocks;
    }

    /// Sends held victims to the tier below in one transmission; what it cannot take is let go, oldest first.
    fn write_down(
        &mut self,
        tier: usize,
        victims: Vec<NodeId>,
        pending: &mut PendingRoom,
        now_ns: u64,
    ) {
        let below = tier + 1;
        let blocks_of = |store: &Self, id: NodeId| u64::from(store.nodes[id as usize].blocks());
        let wanted: u64 = victims.iter().map(|&id| blocks_of(self, id)).sum();
        let fits = if self.tiers[tier].write_back {
            self.tiers[below].available()
        } else {
            0
        };
        let mut excess = wanted.saturating_sub(fits);
        let written = wanted - excess;
        let mut kept: Vec<(NodeId, u32)> = Vec::new();
        for id in victims {
            let blocks = blocks_of(self, id);
            let start = self.nodes[id as usize].start;
            if excess == 0 {
                // Making room below may cut this run (a copy further down goes): keep its first block too.
                kept.push((id, start));
                continue;
            }
            if blocks > excess {
                let upper = self.split(id, self.nodes[id as usize].end - excess as u32);
                self.hold(below, upper);
                kept.push((upper, start));
            }
            excess -= blocks.min(excess);
            self.let_go(tier, id, self.nodes[id as usize].start);
        }
        let room = if written > 0 {
            self.make_room(below, written, now_ns)
        } else {
            None
        };
        let Some(room) = room else {
            kept.into_iter()
                .for_each(|(id, start)| self.let_go(tier, id, start));
            return;
        };
        self.tiers[below].in_flight += written;
        let mv = self.moves.insert(Move {
            to: below,
            blocks: written,
            ..Move::default()
        });
        for &(tail, start) in &kept {
            for run in self.runs_from(tail, start) {
                self.copy_mut(run, below).access = self.copy(run, tier).access;
                self.set_state(run, below, State::InFlight, mv);
            }
        }
        self.moves[mv].parts = kept;
        let after = room.iter().map(|r| r.0).collect();
        self.orders.push(Order {
            id: mv,
            from: tier,
            to: below,
            blocks: written,
            after,
        });
        pending.push((mv, written));
    }

    /// Gives up a held victim that the tier below cannot take.
    fn let_go(&mut self, tier: usize, tail: NodeId, start: u32) {
        self.unhold(tier + 1, tail);
        let mut above = tail;
        for run in self.runs_from(tail, start) {
            above = self.nodes[run as usize].parent;
            let blocks = u64::from(self.nodes[run as usize].blocks());
            self.tiers[tier].free += blocks;
            self.tiers[tier].overflowed += blocks;
            self.discard_if_gone(run);
        }
        // a run before it may be gone already, kept only for this one
        self.sweep_orphans(above);
    }

    /// Removes a run that has lost its last copy, and what hangs below it. What a reader or a write pins stays
    /// until it is let go ([`Store::sweep_orphans`]); until then nothing finds it.
    pub(super) fn discard_if_gone(&mut self, id: NodeId) {
        if !self.is_gone(id) {
            return;
        }
        let mut order = vec![id];
        let mut next = 0;
        while next < order.len() {
            let mut child = self.nodes[order[next] as usize].first_child;
            while child != NONE {
                order.push(child);
                child = self.nodes[child as usize].next;
            }
            next += 1;
        }
        for &node in order.iter().rev() {
            if self.nodes[node as usize].pins > 0 {
                continue;
            }
            for tier in 0..self.tiers.len() {
                if self.copy(node, tier).state == State::Ready {
                    let blocks = u64::from(self.nodes[node as usize].blocks());
                    self.set_state(node, tier, State::Absent, NO_MOVE);
                    self.tiers[tier].cached -= blocks;
                    self.tiers[tier].free += blocks;
                    self.tiers[tier].orphaned += blocks;
                }
            }
            self.unlink(node);
        }
    }

    /// After a hold has ended: discards what was left hanging below a run without copies.
    pub(super) fn sweep_orphans(&mut self, id: NodeId) {
        let mut highest = None;
        let mut at = if self.gone > 0 { id } else { ROOT };
        while at != ROOT {
            if self.is_gone(at) {
                highest = Some(at);
            }
            at = self.nodes[at as usize].parent;
        }
        if let Some(gone) = highest {
            self.discard_if_gone(gone);
        }
    }
}
