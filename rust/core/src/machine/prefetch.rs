//! Prefetching: blocks move up to the tier they are loaded from before they are requested (the rules of
//! `spec/movement_policies.py`).

use super::messages::PartOn;
use super::plugins::{Candidate, Occasion};
use super::staging::{is_staged, stage_up, StagedCopy};
use super::{Now, Replica};
use crate::convert::fit;
use crate::ids::{BlockRange, HoldId};
use crate::store::{Answer, MoveId, Part, NO_MOVE, STAGING};
use crate::transfers::HoldBack;

impl Replica {
    /// Prefetches what a prompt of `tokens` tokens would read from further down or from another machine, within the
    /// limit on blocks in transit.
    pub fn prefetch(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        tokens: u64,
        occasion: Occasion,
    ) -> Answer<()> {
        self.catch_up(now, now.ns)?;
        let mut limit = self.config.matchable_blocks(tokens);
        if let Some(plugin) = &mut self.plugins.prefetch {
            limit = plugin.blocks(&Candidate {
                occasion,
                request,
                prompt_tokens: tokens,
                blocks: limit,
                now_ns: now.ns,
            })?;
        }
        if limit > 0 && !self.start_from_storage(now, request, limit)? {
            let moves = self.start_prefetch(now, request, limit)?;
            self.issue(now, None)?;
            self.stays_for(request, moves, now.ns);
        }
        Ok(())
    }

    /// Orders the moves that prefetch the first `limit` blocks of a request; returns the last move of each part.
    ///
    /// What the prompt has below the GPU is held meanwhile: its own blocks make no space for it.
    fn start_prefetch(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        limit: u32,
    ) -> Answer<Vec<MoveId>> {
        let mut moves = Vec::new();
        let Some(tree) = now.store.tiered() else {
            return Ok(moves);
        };
        let parts = tree.match_prefix(request, limit);
        let below = parts.iter().filter(|part| part.tier >= STAGING);
        let held = below.map(|part| Ok((part.tier, tree.protect(request, part.end, part.tier)?)));
        let held: Vec<(usize, HoldId)> = held.collect::<Answer<_>>()?;
        if self.bring_all_up(now, request, &parts, &mut moves)? {
            let rest = BlockRange {
                start: parts.last().map_or(0, |part| part.end),
                end: limit,
            };
            self.bring_rest_here(now, request, rest, &mut moves)?;
        }
        if let Some(tree) = now.store.tiered() {
            for (tier, hold) in held {
                tree.unprotect(tier, hold)?;
            }
        }
        Ok(moves)
    }

    /// Prefetches each part from the tiers further down; returns false at one that finds too few free blocks.
    fn bring_all_up(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        parts: &[Part],
        moves: &mut Vec<MoveId>,
    ) -> Answer<bool> {
        let lower = |part: &&Part| part.tier > STAGING && part.by == NO_MOVE;
        for part in parts.iter().filter(lower) {
            let Some(id) = self.bring_up(now, request, part)? else {
                return Ok(false);
            };
            moves.push(id);
        }
        Ok(true)
    }

    /// Prefetches the longest run of the remaining blocks that another machine has.
    fn bring_rest_here(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        rest: BlockRange,
        moves: &mut Vec<MoveId>,
    ) -> Answer<()> {
        let Some(run) = self.longest_elsewhere(now, request, rest)? else {
            return Ok(());
        };
        for &part in &run.parts {
            let owner = run.owner;
            let Some(id) = self.bring_here(now, request, PartOn { owner, part })? else {
                break;
            };
            moves.push(id);
        }
        Ok(())
    }

    /// The first blocks of a part, within the limit on blocks in transit; `None` if there are none.
    fn within_limit(&self, part: &Part) -> Option<Part> {
        let limit_blocks = self.mover.prefetch_state.as_ref()?.prefetch_blocks();
        let end = fit::<u32>(u64::from(part.end).min(u64::from(part.start) + limit_blocks));
        (end > part.start).then_some(Part { end, ..*part })
    }

    fn in_transit(&mut self, id: MoveId, request: u32, part: &Part) {
        let mover = &mut self.mover;
        mover.note_prefetch(id, request, u64::from(part.end - part.start));
    }

    /// Prefetches a part from a lower tier; returns the last move, or `None` if there are too few free blocks for all
    /// moves.
    fn bring_up(&mut self, now: &mut Now<'_>, request: u32, part: &Part) -> Answer<Option<MoveId>> {
        let (Some(part), Some(tree)) = (self.within_limit(part), now.store.tiered()) else {
            return Ok(None);
        };
        let copies = stage_up(tree, request, &part, now.ns)?;
        let Some(&StagedCopy { id, .. }) = copies.last().filter(|_| is_staged(&copies)) else {
            return Ok(None);
        };
        self.in_transit(id, request, &part);
        Ok(Some(id))
    }

    /// Prefetches a part from another machine; returns the move that receives it here, or `None` if that is refused.
    fn bring_here(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        there: PartOn,
    ) -> Answer<Option<MoveId>> {
        let Some(part) = self.within_limit(&there.part) else {
            return Ok(None);
        };
        let landed = self.fetch_from(now, request, PartOn { part, ..there })?;
        if let Some(id) = landed {
            self.in_transit(id, request, &part);
        }
        Ok(landed)
    }

    /// Holds a request back in the queue until these moves have ended, if the fetch policy waits for prefetches.
    fn stays_for(&mut self, request: u32, moves: Vec<MoveId>, now_ns: u64) {
        let mover = &mut self.mover;
        let Some(prefetch_state) = mover.prefetch_state.as_mut().filter(|_| !moves.is_empty())
        else {
            return;
        };
        match prefetch_state.config.hold_back {
            HoldBack::Never => {}
            HoldBack::UntilCome => prefetch_state.await_moves(request, moves, u64::MAX),
            HoldBack::For(wait_ns) => {
                let until_ns = now_ns.saturating_add(wait_ns);
                prefetch_state.await_moves(request, moves, until_ns);
                mover.arrivals.set_alarm(until_ns);
            }
        }
    }
}
