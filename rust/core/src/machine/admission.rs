//! Admission: match the prefix, reserve room for the rest, all or nothing; then the request joins the step.

use super::fetch::FetchPolicy;
use super::groups::Asked;
use super::loading::{Admission, LoadingId};
use super::{Place, Replica, ServingStore};
use crate::batch::Sequence;
use crate::store::{Answer, LeaseId, Room, GPU};

impl Replica {
    /// Admits a waiting request, which joins the step; nothing changes where it is not.
    pub(super) fn ask<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Answer<Asked> {
        if store.groups().is_some() {
            return self.admit_to_groups(store, place, now_ns);
        }
        let admitted = self.admit_one(store, place, now_ns)?;
        Ok(if admitted {
            Asked::Admitted
        } else {
            Asked::NoRoom
        })
    }

    /// Admits a waiting request, which joins the step; false, without a trace, when room is refused.
    fn admit_one<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Answer<bool> {
        self.protect_waiting(store, Some(place))?;
        let s = &self.requests[place as usize];
        let (request, target) = (s.arrival.request, s.prefill_target_tokens());
        let total_blocks = target.div_ceil(self.config.block_size_tokens);
        if self.config.expires {
            store.expire(now_ns);
        }
        let (found, ready) = if self.config.cache_enabled {
            let limit = self.config.matchable_blocks(target);
            let found = store.find(request, limit, now_ns)?;
            // A drafter that reads hidden states (EAGLE) has the last block computed again.
            let lost = self.config.lost_blocks;
            (
                found.0.saturating_sub(lost),
                found.1.min(found.0.saturating_sub(lost)),
            )
        } else {
            (0, 0)
        };
        let away = if self.config.fetch == FetchPolicy::Never {
            None
        } else {
            let limit = self.config.matchable_blocks(target);
            self.longest_elsewhere(store, request, (found, limit), now_ns)?
        };
        let everywhere = away.as_ref().map_or(found, |run| run.end());
        let reusable = self.reusable_blocks(store, place, everywhere, now_ns);
        let (found, ready) = (found.min(reusable), ready.min(reusable));
        let away = away.and_then(|run| run.before(reusable));
        let (lease, admission) = if found > ready || away.is_some() {
            match self.acquire_with_loads(store, place, (found, away), now_ns)? {
                Some(acquired) => acquired,
                None => return Ok(false),
            }
        } else {
            let lease = store.acquire(request, ready)?;
            let lacking = total_blocks - u64::from(ready);
            let room = match store.reserve(&[(lease, lacking)], now_ns)? {
                Room::Refused => {
                    store.abandon(lease)?;
                    return Ok(false);
                }
                Room::Ready => Vec::new(),
                Room::Pending(moves) => moves,
            };
            let mut admission = Admission {
                reused_blocks: ready,
                total_blocks,
                room,
                ..Admission::default()
            };
            admission.from_blocks[GPU] = u64::from(ready);
            (lease, admission)
        };
        self.arrivals.queue.take(place, &mut self.requests);
        self.requests[place as usize].lease = lease;
        self.write_used(store, lease, now_ns)?;
        self.let_in(store, place, admission, now_ns)?;
        Ok(true)
    }

    /// Notes an admission, then lets the request join the step or wait for its room and its KV.
    pub(super) fn let_in<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        admission: Admission,
        now_ns: u64,
    ) -> Answer<()> {
        let reused_blocks = admission.reused_blocks;
        self.admitted(store, place, reused_blocks, now_ns);
        let cached = self.cached_tokens(place, reused_blocks);
        if self.requests[place as usize].preemptions == 0 {
            self.first_admitted(store, place, &admission.from_blocks, cached, now_ns);
            self.reports.pool_hit_blocks += admission.pool_blocks;
        } else {
            self.requests[place as usize].recomputed_tokens -= cached as i64;
        }
        self.issue(store, None, now_ns)?;
        if admission.room.is_empty() && admission.loads.is_empty() {
            return self.join(store, place, (cached, admission.total_blocks), now_ns);
        }
        self.requests[place as usize].prefilling = false;
        let id = self.load(place, admission, now_ns);
        if self.loads[id].waits() {
            self.loads.waiting += 1;
            return Ok(());
        }
        self.join_late(store, id, now_ns)
    }

    fn cached_tokens(&self, place: Place, blocks: u32) -> u64 {
        let target = self.requests[place as usize].prefill_target_tokens();
        (u64::from(blocks) * self.config.block_size_tokens).min(target)
    }

    /// Lets a request join the step whose room is there and whose KV is there or comes.
    pub(super) fn join_late<S: ServingStore>(
        &mut self,
        store: &mut S,
        id: LoadingId,
        now_ns: u64,
    ) -> Answer<()> {
        let loading = &self.loads[id];
        let (place, admission) = (loading.place, &loading.admission);
        let cached = self.cached_tokens(place, admission.reused_blocks);
        let held = (cached, admission.total_blocks);
        if loading.transfers.is_empty() {
            self.loading_over(id);
        } else {
            self.loads.late.push(id);
        }
        self.join(store, place, held, now_ns)
    }

    /// Copies down what a request has used often enough, where an edge's policy says so.
    fn write_used<S: ServingStore>(
        &mut self,
        store: &mut S,
        lease: LeaseId,
        now_ns: u64,
    ) -> Answer<()> {
        match (self.mover.as_deref_mut(), store.tiered()) {
            (Some(mover), Some(tree)) => mover.write_used(tree, lease, now_ns),
            _ => Ok(()),
        }
    }

    /// Adds an admitted request to the step; `held`: its cached tokens, and its blocks.
    fn join<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        (mut cached, blocks): (u64, u64),
        now_ns: u64,
    ) -> Answer<()> {
        let mut target = self.requests[place as usize].prefill_target_tokens();
        if cached == target {
            // a full hit under skip-prefill: its first step is a decode step
            target -= 1;
            cached = target;
            self.requests[place as usize].prefilling = false;
        } else {
            self.requests[place as usize].prefilling = true;
            if self.requests[place as usize].preemptions == 0 {
                self.prefill_starts(place, target - cached, now_ns);
            }
        }
        let sequence = Sequence {
            computed: cached,
            prefill_target: target,
            blocks,
            last_token_ns: self.requests[place as usize].last_token_ns,
            ..Sequence::default()
        };
        self.add_to_batch(store, place, sequence)
    }

    /// Adds a request to the step; `sequence` says how much of it is computed, and what it holds.
    pub(super) fn add_to_batch<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        sequence: Sequence,
    ) -> Answer<()> {
        let decodes = self.config.role.sends().is_none();
        let s = &mut self.requests[place as usize];
        s.joined = self.running.join(place);
        let prompt_tokens = s.arrival.prompt_tokens;
        self.batch.add(Sequence {
            id: place,
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
        self.batch.align_last(store)?;
        self.batch.commit_last(store)?;
        self.note_given_up(place);
        Ok(())
    }

    /// Makes the blocks of the queue's first requests the most recently used, where the cache looks ahead; the
    /// next one's are the very last to go. `without` is about to be admitted.
    pub(super) fn protect_waiting<S: ServingStore>(
        &mut self,
        store: &mut S,
        without: Option<Place>,
    ) -> Answer<()> {
        if self.config.look_ahead == 0 {
            return Ok(());
        }
        let others = self
            .arrivals
            .queue
            .iter()
            .filter(|&place| Some(place) != without);
        let first: Vec<Place> = others.take(self.config.look_ahead).collect();
        for &place in first.iter().rev() {
            let s = &self.requests[place as usize];
            let limit = self.config.matchable_blocks(s.prefill_target_tokens());
            let end = store.peek(s.arrival.request, limit)?.0;
            if end > 0 {
                store.touch(s.arrival.request, end)?;
            }
        }
        Ok(())
    }
}
