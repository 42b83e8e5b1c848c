//! Manual cache operations: claim blocks on a tier, mark copies present or absent, and list the copies of a
//! path.
//!
//! The basic operations of seed 001, for callers that compose their own moves. `claim` frees blocks, and
//! `fill_claim` marks blocks present and not yet ready. `finish_move` makes them ready, and `remove` marks
//! them absent.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::moves::Move;
use super::node::{PathPart, State};
use super::pending::moves_of;
use super::{Answer, Store, StoreError, GPU};
use crate::convert::fit;
use crate::ids::{BlockRange, MoveId, NodeId, NO_MOVE, ROOT};

/// In [`Store::copies`]: no copy on a tier. `NO_MOVE` is a ready copy.
pub const NO_COPY: MoveId = NO_MOVE - 1;

/// Blocks up to `end` that have the same copies. For each tier: the move that writes it, [`NO_MOVE`] if it is
/// ready, [`NO_COPY`] if there is none.
pub type CopyRun = (u32, Vec<MoveId>);

impl Store {
    /// Returns every copy of the found leading blocks of a request, in runs. Changes nothing. Cost: linear in
    /// the runs.
    pub fn copies(&self, request: u32, limit: u32) -> Vec<CopyRun> {
        let mut runs: Vec<CopyRun> = Vec::new();
        self.walk(request, limit, |run, _, end| {
            let by = run.copies.iter().map(|copy| match copy.state {
                State::Absent => NO_COPY,
                State::Ready | State::InFlight | State::Waiting => copy.by,
            });
            let by: Vec<MoveId> = by.collect();
            match runs.last_mut() {
                Some(last) if last.1 == by => last.0 = end,
                _ => runs.push((end, by)),
            }
        });
        runs
    }

    /// Returns the paths that a move writes, as (request, past the last block). Paths that another path of
    /// the move extends are left out. Longest first, then by the last block's key.
    pub fn moved_paths(&self, id: MoveId) -> Answer<Vec<(u32, u32)>> {
        let parts = &self.in_flight(id)?.parts;
        let continued: HashSet<NodeId> = parts
            .iter()
            .filter_map(|part| self.path(part.tail, part.start).last())
            .map(|run| self.trie.nodes[run as usize].parent)
            .collect();
        let mut paths: Vec<(u32, u64, u32)> = parts
            .iter()
            .filter(|part| !continued.contains(&part.tail))
            .map(|part| {
                let node = &self.trie.nodes[part.tail as usize];
                (
                    node.end,
                    self.keys.key(node.owner, node.end - 1),
                    node.owner,
                )
            })
            .collect();
        paths.sort_unstable_by_key(|&(end, key, _)| (Reverse(end), key));
        Ok(paths
            .into_iter()
            .map(|(end, _, owner)| (owner, end))
            .collect())
    }

    /// Claims `blocks` blocks of a tier, evicting the shortfall. Returns the move that stands for the claim,
    /// and the moves that must finish before its blocks are free. `None`, nothing changed, if too few can be
    /// freed.
    pub fn claim(
        &mut self,
        tier: usize,
        blocks: u64,
        now_ns: u64,
    ) -> Answer<Option<(MoveId, Vec<MoveId>)>> {
        self.known_tier(tier)?;
        let Some(pending) = self.evict_for(tier, blocks, now_ns) else {
            return Ok(None);
        };
        self.tiers[tier].in_flight += blocks;
        let mut waits = moves_of(&pending);
        waits.sort_unstable();
        waits.dedup();
        let claim = self.moves.insert(Move {
            to: tier,
            blocks,
            claimed: true,
            after: waits.clone(),
            ..Move::default()
        });
        Ok(Some((claim, waits)))
    }

    /// Releases a whole claim; the moves that it waited for must have finished.
    pub fn release_claim(&mut self, claim: MoveId) -> Answer<()> {
        let Move {
            to, blocks, after, ..
        } = self.claimed(claim)?;
        let (to, blocks) = (*to, *blocks);
        if self.any_in_flight(after) {
            return Err(StoreError::NotFree);
        }
        self.moves.remove(claim);
        self.tiers[to].in_flight -= blocks;
        self.tiers[to].free += blocks;
        Ok(())
    }

    fn claimed(&self, claim: MoveId) -> Answer<&Move> {
        let open = self.moves.get(claim).filter(|m| m.claimed);
        open.ok_or(StoreError::NoClaim)
    }

    /// Marks blocks of a request as being written into a claim, which must be of that size.
    /// They are ready when the claim is finished as a move. `source`: the tier they are read from, held until
    /// then.
    ///
    /// Returns false, nothing changed, if one of the blocks is on the tier already or has no copy to read. The block
    /// before must be found too (on the GPU: have a copy there).
    pub fn fill_claim(
        &mut self,
        claim: MoveId,
        request: u32,
        blocks: BlockRange,
        source: Option<usize>,
    ) -> Answer<bool> {
        let BlockRange { start, end } = blocks;
        let Move {
            to: tier,
            blocks: claimed,
            ..
        } = *self.claimed(claim)?;
        self.known_request(request)?;
        if start >= end {
            return Err(StoreError::NoBlocks);
        }
        if claimed != u64::from(blocks.len()) {
            return Err(StoreError::ClaimSize(claimed));
        }
        source.map_or(Ok(()), |from| self.known_tier(from))?;
        let known = self.in_trie(request, end);
        if self.peek(request, end).0 < start || (source.is_some() && known < end) {
            return Ok(false);
        }
        let before = self.node_at(request, start)?;
        if tier == GPU && before != ROOT && self.copy(before, GPU).state == State::Absent {
            return Ok(false);
        }
        let mut tail = self.node_at(request, known)?;
        self.node_at(request, start)?;
        for run in self.runs_from(tail, start) {
            let copies = self.copies_of(run);
            let missing = source.is_some_and(|from| copies[from].state == State::Absent);
            if missing || copies[tier].state != State::Absent {
                return Ok(false);
            }
        }
        if known < end {
            tail = self.link_path(tail, request, known, end);
        }
        self.next_access(); // like an admission: no two paths tie
        for run in self.runs_from(tail, start) {
            let access = source.map_or(self.clock.access, |from| self.copy(run, from).access);
            self.copy_mut(run, tier).access = access;
            self.set_state(run, tier, State::InFlight, claim);
        }
        self.hold(tier, tail);
        if let Some(from) = source {
            self.hold(from, tail);
            let placed = &mut self.moves[claim];
            (placed.from, placed.sources) = (from, vec![tail]);
        }
        let placed = &mut self.moves[claim];
        (placed.parts, placed.claimed) = (vec![PathPart { tail, start }], false);
        Ok(true)
    }

    /// Marks blocks of a request absent from a tier, last one first. Stops at the first
    /// block that is not ready, is held, or has a successor on that tier. Returns how many were removed.
    /// Nothing is written down: a block that loses its last copy is discarded.
    pub fn remove(&mut self, request: u32, blocks: BlockRange, tier: usize) -> Answer<u32> {
        let start = blocks.start;
        self.known_tier(tier)?;
        self.known_request(request)?;
        let end = blocks.end.min(self.peek(request, blocks.end).0);
        if end <= start {
            return Ok(0);
        }
        let tail = self.part(request, BlockRange::new(start, end))?;
        let mut removed = 0;
        for run in self.runs_from(tail, start) {
            let node = &self.trie.nodes[run as usize];
            let copy = self.copy(run, tier);
            let free = copy.state == State::Ready && copy.holds == 0 && copy.children == 0;
            if !free || (self.only_on(run, tier) && node.pins > 0) {
                break;
            }
            removed += fit::<u32>(self.vacate(run, tier));
            self.discard_if_gone(run);
        }
        Ok(removed)
    }

    /// Returns how many leading blocks of a request are in the trie, with copies or without.
    fn in_trie(&self, request: u32, limit: u32) -> u32 {
        let mut known = 0;
        self.descend(request, limit, |_, _, end| {
            known = end;
            true
        });
        known
    }
}
