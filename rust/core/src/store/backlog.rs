//! Backlogs: victims that the tier below cannot store yet. They wait there for blocks, in eviction order.
//!
//! As much as fits is written at once, the rest in further batches. One move stands for a backlog until it
//! writes the last batch; it waits for itself meanwhile. A backlog is dropped if nothing can make space for it:
//! the other moves on its tier all wait for backlogs too, as the loads of its own reservation do.

use std::collections::VecDeque;

use super::moves::Move;
use super::node::{PathPart, State};
use super::pending::moves_of;
use super::{Store, GPU, STAGING};
use crate::convert::fit;
use crate::ids::{MoveId, NodeId, NO_MOVE};
use crate::tiers::Route;

/// Victims of the tier above that wait for blocks.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The move that stands for it.
    pub id: MoveId,
    /// Number of blocks left.
    pub blocks: u64,
    /// Paths left, in eviction order. The last run of each is pinned.
    pub parts: VecDeque<PathPart>,
    /// Moves of the earlier batches.
    pub batches: Vec<MoveId>,
}

/// Fate of victims that the tier below cannot store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// They wait for space.
    Wait,
    /// As `Wait`, but not for the ends of loads, which wait for steps themselves (read buffers).
    WaitForWrites,
    /// They are dropped.
    Drop,
}

impl Store {
    /// Sets the fate of victims that the tier below cannot store now; without, they wait.
    #[must_use]
    pub fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.rules.overflow = overflow;
        self
    }

    /// Appends victims, held below, to the backlogs of the tier below. Returns the move that stands for them.
    pub(super) fn wait_below(&mut self, tier: usize, victims: Vec<NodeId>) -> MoveId {
        let below = tier + 1;
        let id = self.moves.insert(Move {
            to: below,
            ..Move::default()
        });
        let blocks = self.blocks_of(&victims);
        let mut parts = VecDeque::new();
        for run in victims {
            self.pin(run, 1);
            self.unhold(below, run);
            self.copy_mut(run, below).access = self.copy(run, tier).access;
            self.set_state(run, below, State::Waiting, id);
            parts.push_back(PathPart {
                tail: run,
                start: self.trie.nodes[run as usize].start,
            });
        }
        self.tiers[below].backlogs.push_back(Backlog {
            id,
            blocks,
            parts,
            batches: Vec::new(),
        });
        self.order(id, tier, vec![id]);
        self.write_backlog(below);
        id
    }

    /// Returns true if loads wait for space on the tier below the GPU, which has blocks at all.
    pub fn loads_wait(&self) -> bool {
        self.rules.overflow == Overflow::Wait && self.tiers[STAGING].capacity > 0
    }

    /// Returns true if blocks wait for space.
    pub(super) fn has_backlogs(&self) -> bool {
        self.tiers.iter().any(|tier| !tier.backlogs.is_empty())
    }

    /// Writes what waits as far as its tier has space, and drops what nothing can make space for.
    pub(super) fn settle_backlogs(&mut self) {
        while self.has_backlogs() {
            for tier in (1..self.tiers.len()).rev() {
                self.write_backlog(tier);
            }
            let Some(tier) = self.stuck_tier() else {
                return;
            };
            self.drop_backlog(tier);
        }
    }

    /// Writes as much of a tier's backlogs as it can store now, each in one batch.
    fn write_backlog(&mut self, tier: usize) {
        while let Some(first) = self.tiers[tier].backlogs.front() {
            let blocks = first.blocks.min(self.tiers[tier].available());
            if blocks == 0 {
                return;
            }
            let Some(freed_by) = self.evict_for(tier, blocks, self.clock.now_ns) else {
                return;
            };
            let mut after = moves_of(&freed_by);
            let parts = self.take_batch(tier, blocks);
            let first = &mut self.tiers[tier].backlogs[0];
            first.blocks -= blocks;
            let mut id = first.id;
            if first.blocks > 0 {
                id = self.moves.insert(Move {
                    to: tier,
                    ..Move::default()
                });
                self.tiers[tier].backlogs[0].batches.push(id);
            } else if let Some(last) = self.tiers[tier].backlogs.pop_front() {
                after.extend(last.batches);
            }
            for &part in &parts {
                self.in_transit(part, Route::new(tier, tier), id); // as recent as when they were evicted
                self.hold(tier, part.tail);
                self.pin(part.tail, -1);
            }
            self.tiers[tier].in_flight += blocks;
            (self.moves[id].parts, self.moves[id].blocks) = (parts, blocks);
            self.order(id, tier - 1, after);
        }
    }

    /// Removes the first blocks from a tier's first backlog; each part's last run stays pinned.
    fn take_batch(&mut self, tier: usize, blocks: u64) -> Vec<PathPart> {
        let mut left = fit::<u32>(blocks);
        let mut batch = Vec::new();
        while left > 0 {
            let Some(PathPart { tail, start }) = self.tiers[tier].backlogs[0].parts.pop_front()
            else {
                break;
            };
            let end = self.trie.nodes[tail as usize].end;
            let cut = start.max(end.saturating_sub(left));
            if cut > start {
                self.cut_above(tail, cut);
                let first = self.path(tail, cut).last().unwrap_or(tail);
                let upper = self.trie.nodes[first as usize].parent;
                self.pin(upper, 1);
                self.tiers[tier].backlogs[0]
                    .parts
                    .push_front(PathPart { tail: upper, start });
            }
            left -= end - cut;
            batch.push(PathPart { tail, start: cut });
        }
        batch
    }

    /// Returns a tier whose first backlog no move will make space for, the slowest first.
    fn stuck_tier(&self) -> Option<usize> {
        let mut advancing: Vec<MoveId> = Vec::new();
        loop {
            let more = self
                .moves
                .iter()
                .filter(|&(id, mv)| !advancing.contains(&id) && self.advances(id, mv, &advancing));
            let more: Vec<MoveId> = more.map(|(id, _)| id).collect();
            if more.is_empty() {
                break;
            }
            advancing.extend(more);
        }
        let is_stuck = |&tier: &usize| {
            let first = self.tiers[tier].backlogs.front();
            first.is_some_and(|first| !advancing.contains(&first.id))
        };
        (1..self.tiers.len()).rev().find(is_stuck)
    }

    /// Returns true if a move needs no move but these to finish. What ends by other causes does not count: reads by
    /// other machines, and loads that wait for steps.
    fn advances(&self, id: MoveId, mv: &Move, others: &[MoveId]) -> bool {
        if mv.after == [id] {
            let uses = |other: &Move| {
                other.to == mv.to || (other.from == mv.to && !other.sources.is_empty())
            };
            return others.iter().any(|&other| uses(&self.moves[other]));
        }
        let is_lent = mv.claimed || (mv.parts.is_empty() && !mv.sources.is_empty());
        let is_lent =
            is_lent || (mv.lease.is_some() && self.rules.overflow == Overflow::WaitForWrites);
        let is_over =
            |before: &MoveId| others.contains(before) || self.moves.get(*before).is_none();
        !is_lent && mv.after.iter().all(is_over)
    }

    /// Drops a tier's first backlog; its move finishes with the batches written so far.
    fn drop_backlog(&mut self, tier: usize) {
        let Some(dropped) = self.tiers[tier].backlogs.pop_front() else {
            return;
        };
        self.tiers[tier - 1].overflowed += dropped.blocks;
        for PathPart { tail, start } in dropped.parts {
            self.each_run(tail, start, |store, run| {
                store.set_state(run, tier, State::Absent, NO_MOVE);
            });
            self.pin(tail, -1);
            self.sweep_orphans(tail);
        }
        self.order(dropped.id, tier - 1, dropped.batches);
    }

    /// Pins a run and all before it: they stay in the trie, wherever their copies are.
    fn pin(&mut self, id: NodeId, by: i32) {
        self.each_run(id, 0, |store, run| {
            let pins = &mut store.trie.nodes[run as usize].pins;
            *pins = pins.wrapping_add_signed(by);
            store.refresh_last(run, GPU);
        });
    }
}
