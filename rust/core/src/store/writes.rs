//! Copies to lower tiers that keep the upper copy: at commit, at the n-th use, and onward to the next tier.

use super::lease::Lease;
use super::moves::Move;
use super::node::{PathPart, State};
use super::pending::moves_of;
use super::{Answer, Store, StoreError, GPU};
use crate::ids::{BlockRange, LeaseId, MoveId, NodeId, NONE, ROOT};
use crate::tiers::Route;

impl Store {
    /// Copies blocks `[start, end)` that the lease holds on the GPU to the CPU (write-through). Blocks
    /// already there are skipped. `None` if no block is left or too few can be freed below.
    pub fn write_through(
        &mut self,
        id: LeaseId,
        start: u32,
        end: u32,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        let Lease {
            request,
            depth,
            tail,
            ..
        } = *self.lease(id)?;
        self.known_tier(GPU + 1)?;
        if start == end {
            return Ok(None);
        }
        if end > depth {
            return Err(StoreError::NotHeld);
        }
        if start > end {
            return Err(StoreError::NoBlocks);
        }
        let tail = if end == depth {
            self.cut_above(tail, start)
        } else {
            self.part(request, BlockRange::new(start, end))?
        };
        let missing = self.missing_below(GPU, &[PathPart { tail, start }]);
        Ok(self.copy_down(GPU, missing, vec![tail], now_ns))
    }

    /// Splits the path that ends with `tail` so that a run begins at block `start`; returns that run.
    pub(super) fn cut_above(&mut self, tail: NodeId, start: u32) -> NodeId {
        let mut at = tail;
        while at != ROOT && self.trie.nodes[at as usize].start > start {
            at = self.trie.nodes[at as usize].parent;
        }
        if at != ROOT && self.trie.nodes[at as usize].start < start {
            self.split(at, start);
        }
        tail
    }

    /// Copies blocks that the lease holds and `uses` requests have used from a tier to the next one.
    pub fn write_selected(
        &mut self,
        id: LeaseId,
        tier: usize,
        uses: u32,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        let Lease { tail, .. } = *self.lease(id)?;
        self.known_tier(tier)?;
        if tier + 1 == self.tiers.len() {
            return Err(StoreError::WrongTier);
        }
        let mut missing = self.missing_below(tier, &[PathPart { tail, start: 0 }]);
        missing.retain(|part| {
            let node = &self.trie.nodes[part.tail as usize];
            node.uses >= uses && self.copy(part.tail, tier).state == State::Ready
        });
        let source = missing.first().map(|part| part.tail);
        Ok(self.copy_down(tier, missing, source.into_iter().collect(), now_ns))
    }

    /// Copies the blocks that a move is about to make ready one tier further down. Call it before the move is
    /// finished.
    pub fn write_on(&mut self, id: MoveId, now_ns: u64) -> Answer<Option<MoveId>> {
        let Move { to, ref parts, .. } = *self.in_flight(id)?;
        if to + 1 >= self.tiers.len() {
            return Ok(None);
        }
        let missing = self.missing_below(to, parts);
        let sources = parts.iter().map(|part| part.tail).collect();
        Ok(self.copy_down(to, missing, sources, now_ns))
    }

    /// Returns the runs of path parts without a copy one tier down, each with its first block. An eviction
    /// below may cut such a run (a copy further down is dropped).
    fn missing_below(&self, tier: usize, parts: &[PathPart]) -> Vec<PathPart> {
        let runs = parts
            .iter()
            .flat_map(|part| self.path(part.tail, part.start));
        runs.filter(|&run| self.copy(run, tier + 1).state == State::Absent)
            .map(|tail| PathPart {
                tail,
                start: self.trie.nodes[tail as usize].start,
            })
            .collect()
    }

    fn copy_down(
        &mut self,
        tier: usize,
        parts: Vec<PathPart>,
        sources: Vec<NodeId>,
        now_ns: u64,
    ) -> Option<MoveId> {
        let below = tier + 1;
        let span =
            |part: &PathPart| u64::from(self.trie.nodes[part.tail as usize].end - part.start);
        let blocks: u64 = parts.iter().map(span).sum();
        if blocks == 0 {
            return None;
        }
        for &source in &sources {
            self.hold(tier, source);
        }
        let Some(pending) = self.evict_for(below, blocks, now_ns) else {
            for &source in &sources {
                self.unhold(tier, source);
                self.sweep_orphans(source);
            }
            return None;
        };
        self.tiers[below].in_flight += blocks;
        let id = self.moves.insert(Move {
            to: below,
            blocks,
            from: tier,
            sources,
            ..Move::default()
        });
        for &part in &parts {
            self.in_transit(part, Route::new(tier, below), id);
            self.hold(below, part.tail);
        }
        self.moves[id].parts = parts;
        self.order(id, tier, moves_of(&pending));
        Some(id)
    }

    /// Discards blocks `start` to `end` of a request's path from all tiers, last one first. Stops at the
    /// first block that is held, in flight or followed by another block.
    pub fn discard(&mut self, request: u32, start: u32, end: u32) -> Answer<()> {
        self.known_request(request)?;
        if start >= end {
            return Ok(());
        }
        let tail = self.part(request, BlockRange::new(start, end))?;
        for run in self.runs_from(tail, start) {
            let node = &self.trie.nodes[run as usize];
            let mut copies = self.copies_of(run).iter();
            let in_flight = copies.any(|c| c.state == State::InFlight);
            if node.pins > 0 || node.first_child != NONE || in_flight {
                return Ok(());
            }
            for tier in 0..self.tiers.len() {
                if self.copy(run, tier).state == State::Ready {
                    self.vacate(run, tier);
                }
            }
            self.discard_if_gone(run);
        }
        Ok(())
    }
}
