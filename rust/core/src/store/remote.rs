//! Reads by other machines, and copies received from them, which are written to the CPU tier.

use super::moves::Move;
use super::node::{PathPart, State};
use super::part::{add_part, Part};
use super::pending::moves_of;
use super::{Answer, Store, StoreError, REMOTE, STAGING};
use crate::ids::{BlockRange, MoveId};

impl Store {
    /// Returns the parts of a request's consecutive blocks from `start`, at most to `limit`, below the GPU:
    /// each on its fastest tier there. Changes nothing.
    pub fn match_below(&self, request: u32, start: u32, limit: u32) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut reached = start;
        self.walk(request, limit, |run, first, end| {
            let below = STAGING..run.copies.len();
            let tier = below
                .into_iter()
                .find(|&t| run.copies[t].state != State::Absent)
                .filter(|&t| run.copies[t].state != State::Waiting);
            let Some(tier) = tier.filter(|_| end > start && first <= reached) else {
                return;
            };
            reached = end;
            let by = run.copies[tier].by;
            let blocks = BlockRange::new(first.max(start), end);
            add_part(&mut parts, Part::of(tier, by, blocks));
        });
        parts
    }

    /// Lends the first `end` blocks of a request's path on a tier to another machine: they stay until the
    /// returned move is finished.
    pub fn lend(&mut self, request: u32, end: u32, tier: usize) -> Answer<MoveId> {
        self.known_tier(tier)?;
        let tail = self.node_at(request, end)?;
        self.on_tier(tail, tier)?;
        self.hold(tier, tail);
        Ok(self.moves.insert(Move {
            to: tier,
            from: tier,
            sources: vec![tail],
            ..Move::default()
        }))
    }

    /// Receives blocks of a request from another machine on the CPU tier, freeing blocks there
    /// first. The blocks before must be cached here. Returns `None` if too few blocks can be freed, or if a
    /// reader still pins the run of a removed block.
    pub fn receive(
        &mut self,
        request: u32,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        let BlockRange { start, end } = blocks;
        self.known_tier(STAGING)?;
        if start >= end {
            return Err(StoreError::NoBlocks);
        }
        let parent = self.node_at(request, start)?;
        let first_key = self.keys.key(request, start);
        if self.trie.children.contains_key(&(parent, first_key)) {
            return Ok(None);
        }
        let blocks = u64::from(end - start);
        self.hold(STAGING, parent);
        let pending = self.evict_for(STAGING, blocks, now_ns);
        self.unhold(STAGING, parent);
        let Some(pending) = pending else {
            return Ok(None);
        };
        let parent = self.node_at(request, start)?;
        self.tiers[STAGING].in_flight += blocks;
        let access = self.next_access(); // a separate access: nothing else may tie with it
        let id = self.moves.insert(Move {
            to: STAGING,
            blocks,
            ..Move::default()
        });
        let run = self.link_path(parent, request, start, end);
        for run in self.runs_from(run, start) {
            self.copy_mut(run, STAGING).access = access;
            self.set_state(run, STAGING, State::InFlight, id);
        }
        self.moves[id].parts = vec![PathPart { tail: run, start }];
        self.hold(STAGING, run);
        self.order(id, REMOTE, moves_of(&pending));
        Ok(Some(id))
    }
}
