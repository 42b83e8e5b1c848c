//! Admission: match the prefix and reserve blocks for the rest, all or nothing; then the request joins the step.

use super::admitted::{Admission, LoadingId};
use super::fetch::FetchPolicy;
use super::groups::Asked;
use super::{Now, Replica, Slot};
use crate::batch::Sequence;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::store::{Answer, LeaseId};

impl Replica {
    /// Tries to admit a waiting request to the step; a refusal changes nothing.
    pub(super) fn ask(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<Asked> {
        if now.store.groups().is_some() {
            return self.admit_to_groups(now, slot);
        }
        let admitted = self.admit_one(now, slot)?;
        Ok(if admitted {
            Asked::Admitted
        } else {
            Asked::NoCapacity
        })
    }

    /// Admits a waiting request to the step. Returns false, and changes nothing, if blocks are refused.
    fn admit_one(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<bool> {
        self.protect_waiting(now, Some(slot))?;
        let s = &self.requests[slot];
        let (request, target) = (s.arrival.request, s.prefill_target_tokens());
        let total_blocks = target.div_ceil(self.config.block_size_tokens);
        if self.config.reuse.expires {
            now.store.expire(now.ns);
        }
        let (found, ready) = if self.config.reuse.cache_enabled {
            let limit = self.config.matchable_blocks(target);
            let found = now.store.find(request, limit, now.ns)?;
            // A drafter that reads hidden states (EAGLE) needs the last block computed again.
            let lost = self.config.reuse.lost_blocks;
            (
                found.0.saturating_sub(lost),
                found.1.min(found.0.saturating_sub(lost)),
            )
        } else {
            (0, 0)
        };
        let away = if self.config.movement.fetch == FetchPolicy::Never {
            None
        } else {
            let limit = self.config.matchable_blocks(target);
            let blocks = BlockRange {
                start: found,
                end: limit,
            };
            self.longest_elsewhere(now, request, blocks)?
        };
        let everywhere = away.as_ref().map_or(found, |run| run.end());
        let reusable = self.reusable_blocks(now, slot, everywhere);
        let (found, ready) = (found.min(reusable), ready.min(reusable));
        let away = away.and_then(|run| run.before(reusable));
        let most = everywhere.min(reusable);
        let (lease, admission) = if found > ready || away.is_some() {
            match self.acquire_with_loads(now, slot, found, away)? {
                Some(acquired) => acquired,
                None => return Ok(false),
            }
        } else {
            let lacking = total_blocks - u64::from(ready);
            let Some((lease, freeing_moves)) = now.reserve_lease(request, ready, lacking)? else {
                return Ok(false);
            };
            (lease, Admission::of(ready, total_blocks, freeing_moves))
        };
        self.arrivals.queue.take(slot, &mut self.requests);
        self.requests[slot].lease = lease;
        if admission.reused_blocks < most && self.requests[slot].scheduling.preemptions == 0 {
            let records = now.store.records_mut();
            records.not_loaded.push((request, most));
        }
        self.write_used(now, lease)?;
        self.settle_admission(now, slot, admission)?;
        Ok(true)
    }

    /// Records an admission, then lets the request join the step or wait for its blocks and its KV.
    pub(super) fn settle_admission(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        admission: Admission,
    ) -> Answer<()> {
        let reused_blocks = admission.reused_blocks;
        self.admitted(now, slot, reused_blocks);
        let cached = self.cached_tokens(slot, reused_blocks);
        if self.requests[slot].scheduling.preemptions == 0 {
            self.first_admitted(now, slot, &admission.from_blocks, cached);
            self.reports.pool_hit_blocks += admission.pool_blocks;
        } else {
            self.requests[slot].cached.recomputed_tokens -= fit::<i64>(cached);
        }
        self.mover.issue(now, None)?;
        let waits = !admission.freeing_moves.is_empty() || admission.rest.is_some();
        if !waits && admission.loads.is_empty() {
            self.log_transfers();
            return self.join(now, slot, cached, admission.total_blocks);
        }
        self.requests[slot].scheduling.prefilling = false;
        let id = self.load(slot, admission, now.ns);
        self.log_transfers();
        if self.loads[id].waits() {
            self.loads.waiting += 1;
            return Ok(());
        }
        self.join_late(now, id)
    }

    fn cached_tokens(&self, slot: Slot, blocks: u32) -> u64 {
        let target = self.requests[slot].prefill_target_tokens();
        (u64::from(blocks) * self.config.block_size_tokens).min(target)
    }

    /// Adds a request to the step whose blocks are free and whose KV has arrived or is arriving.
    pub(super) fn join_late(&mut self, now: &mut Now<'_>, id: LoadingId) -> Answer<()> {
        let loading = &self.loads[id];
        let (slot, admission) = (loading.slot, &loading.admission);
        let cached = self.cached_tokens(slot, admission.reused_blocks);
        let total_blocks = admission.total_blocks;
        if loading.transfers.is_empty() {
            self.loading_over(id);
        } else {
            self.loads.late.push(id);
        }
        self.join(now, slot, cached, total_blocks)
    }

    /// Copies down the blocks that a request has used often enough, if an edge's write policy does so.
    fn write_used(&mut self, now: &mut Now<'_>, lease: LeaseId) -> Answer<()> {
        match now.store.tiered() {
            Some(tree) => self.mover.writes.write_used(tree, lease, now.ns),
            None => Ok(()),
        }
    }

    /// Adds an admitted request to the step, with its cached tokens and the number of its blocks.
    fn join(&mut self, now: &mut Now<'_>, slot: Slot, mut cached: u64, blocks: u64) -> Answer<()> {
        let mut target = self.requests[slot].prefill_target_tokens();
        if cached == target {
            // a full hit under skip-prefill: its first step is a decode step
            target -= 1;
            cached = target;
            self.requests[slot].scheduling.prefilling = false;
        } else {
            self.requests[slot].scheduling.prefilling = true;
            if self.requests[slot].scheduling.preemptions == 0 {
                self.prefill_starts(slot, target - cached, now.ns);
            }
        }
        let sequence = Sequence {
            computed: cached,
            prefill_target: target,
            blocks,
            last_token_ns: self.requests[slot].generated.last_token_ns,
            ..Sequence::default()
        };
        self.add_to_batch(now, slot, sequence)
    }

    /// Adds a request to the step; `sequence` has its computed tokens and its lease.
    pub(super) fn add_to_batch(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        sequence: Sequence,
    ) -> Answer<()> {
        let decodes = self.config.role.sends().is_none();
        let s = &mut self.requests[slot];
        s.scheduling.joined = self.running.join(slot);
        let prompt_tokens = s.arrival.prompt_tokens;
        self.batch.add(Sequence {
            id: slot,
            request: s.arrival.request,
            lease: s.lease,
            total: if decodes {
                s.total_kv_tokens()
            } else {
                prompt_tokens
            },
            prompt_tokens,
            ..sequence
        });
        self.batch.align_last(now.store)?;
        self.batch.commit_last(now.store)?;
        self.note_abort(slot);
        Ok(())
    }

    /// Makes the blocks of the first requests in the queue the most recently used, if the cache has lookahead. Those
    /// of the next request are evicted last. `without` is about to be admitted.
    pub(super) fn protect_waiting(
        &mut self,
        now: &mut Now<'_>,
        without: Option<Slot>,
    ) -> Answer<()> {
        if self.config.scheduling.lookahead == 0 {
            return Ok(());
        }
        let others = self
            .arrivals
            .queue
            .iter()
            .filter(|&slot| Some(slot) != without);
        let first: Vec<Slot> = others.take(self.config.scheduling.lookahead).collect();
        for &slot in first.iter().rev() {
            let s = &self.requests[slot];
            let limit = self.config.matchable_blocks(s.prefill_target_tokens());
            let end = now.store.peek(s.arrival.request, limit)?.0;
            if end > 0 {
                now.store.touch(s.arrival.request, end)?;
            }
        }
        Ok(())
    }
}
