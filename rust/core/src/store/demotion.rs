//! Eviction from a tier that has one below it.
//!
//! A victim with a ready copy below is dropped; a victim whose copy below is still being written waits for
//! it. A victim without a copy below is written there first, into blocks freed there in the same manner.
//! Victims that the tier below cannot take now wait ([`super::backlog`]), or are dropped, oldest first.

use super::moves::Move;
use super::node::{Copy, PathPart, State};
use super::pending::{moves_of, PendingFree};
use super::{Overflow, Store};
use crate::convert::fit;
use crate::ids::{NodeId, NO_MOVE};
use crate::tiers::Route;

impl Store {
    /// Sets that a victim which any lower tier has is not written again; without, the next tier must have it.
    #[must_use]
    pub fn with_write_once(mut self, write_once: bool) -> Self {
        self.rules.write_once = write_once;
        self
    }

    /// Evicts `wanted` blocks, or as many as are evictable, from a tier that has one below. Returns how many,
    /// and which of them are freed only by moves. `None`, nothing done, if they are fewer than `least`.
    pub(super) fn demote_victims(
        &mut self,
        tier: usize,
        least: u64,
        wanted: u64,
        now_ns: u64,
    ) -> Option<(u64, Vec<PendingFree>)> {
        if self.evict_to_child(tier, wanted, now_ns) {
            return Some((wanted, Vec::new()));
        }
        let below = tier + 1;
        let victims = self.select_victims(tier, wanted);
        let evicted = self.blocks_of(&victims);
        if evicted < least {
            return None;
        }
        let mut pending = Vec::new();
        let mut to_write: Vec<NodeId> = Vec::new();
        let ordered = self.has_order(tier);
        let mut left = victims.len() as u64;
        for id in victims {
            // an order is queried block by block: each eviction may expose the next block
            let id = if ordered {
                self.next_by_order(tier, left)?
            } else {
                id
            };
            left -= 1;
            let blocks = u64::from(self.trie.nodes[id as usize].blocks());
            let mut lower = *self.copy(id, below);
            if lower.state == State::Absent && self.rules.write_once {
                let ready = |copy: &&Copy| copy.state == State::Ready;
                let further = self.copies_of(id)[below..].iter().find(ready);
                lower = further.copied().unwrap_or(lower);
            }
            if lower.state == State::Absent {
                self.hold(below, id);
                to_write.push(id);
            }
            self.take_off(tier, id, now_ns);
            match lower.state {
                State::Ready => self.tiers[tier].free += blocks,
                State::InFlight | State::Waiting => pending.push(PendingFree {
                    id: lower.by,
                    blocks,
                }),
                State::Absent => {}
            }
        }
        if !to_write.is_empty() {
            self.write_down(tier, to_write, &mut pending, now_ns);
        }
        Some((evicted, pending))
    }

    /// Removes the copy of a whole run from a tier; the caller accounts for its blocks.
    fn take_off(&mut self, tier: usize, id: NodeId, now_ns: u64) {
        let node = &self.trie.nodes[id as usize];
        let blocks = u64::from(node.blocks());
        self.note_evicted(tier, id, node.start, node.end, now_ns);
        self.set_state(id, tier, State::Absent, NO_MOVE);
        self.tiers[tier].cached -= blocks;
    }

    /// Sends held victims to the tier below in one transmission; those that do not fit there wait, or are
    /// dropped, oldest first.
    fn write_down(
        &mut self,
        tier: usize,
        victims: Vec<NodeId>,
        pending: &mut Vec<PendingFree>,
        now_ns: u64,
    ) {
        let below = tier + 1;
        let blocks_of =
            |store: &Self, id: NodeId| u64::from(store.trie.nodes[id as usize].blocks());
        let wanted: u64 = victims.iter().map(|&id| blocks_of(self, id)).sum();
        let fits = if self.tiers[tier].write_back {
            self.tiers[below].available()
        } else {
            0
        };
        let mut excess = wanted.saturating_sub(fits);
        let waits = self.rules.overflow != Overflow::Drop && self.tiers[tier].write_back;
        if waits && (excess > 0 || !self.tiers[below].backlogs.is_empty()) {
            let id = self.wait_below(tier, victims);
            pending.push(PendingFree { id, blocks: wanted });
            return;
        }
        let written = wanted - excess;
        let mut kept: Vec<PathPart> = Vec::new();
        for id in victims {
            let blocks = blocks_of(self, id);
            let start = self.trie.nodes[id as usize].start;
            if excess == 0 {
                // An eviction below may cut this run (a copy further down is dropped): keep its first block
                // too.
                kept.push(PathPart { tail: id, start });
                continue;
            }
            if blocks > excess {
                let upper = self.split(id, self.trie.nodes[id as usize].end - fit::<u32>(excess));
                self.hold(below, upper);
                kept.push(PathPart { tail: upper, start });
            }
            excess -= blocks.min(excess);
            self.drop_blocks(tier, id, self.trie.nodes[id as usize].start);
        }
        let freed_by = if written > 0 {
            self.evict_for(below, written, now_ns)
        } else {
            None
        };
        let Some(freed_by) = freed_by else {
            kept.into_iter()
                .for_each(|part| self.drop_blocks(tier, part.tail, part.start));
            return;
        };
        self.tiers[below].in_flight += written;
        let mv = self.moves.insert(Move {
            to: below,
            blocks: written,
            ..Move::default()
        });
        for &part in &kept {
            self.in_transit(part, Route::new(tier, below), mv);
        }
        self.moves[mv].parts = kept;
        self.order(mv, tier, moves_of(&freed_by));
        pending.push(PendingFree {
            id: mv,
            blocks: written,
        });
    }

    /// Drops a held victim that the tier below cannot take.
    fn drop_blocks(&mut self, tier: usize, tail: NodeId, start: u32) {
        self.unhold(tier + 1, tail);
        let mut above = tail;
        for run in self.runs_from(tail, start) {
            above = self.trie.nodes[run as usize].parent;
            let blocks = u64::from(self.trie.nodes[run as usize].blocks());
            self.tiers[tier].free += blocks;
            self.tiers[tier].overflowed += blocks;
            self.discard_if_gone(run);
        }
        // a run before it may be without copies already, kept only for this one
        self.sweep_orphans(above);
    }
}
