//! Admission: match the prefix, reserve room for the rest, all or nothing; then the request joins the step.

use super::{Place, Replica, ServingStore};
use crate::batch::Sequence;
use crate::store::{Answer, Room};

impl Replica {
    /// Admits a waiting request, which joins the step; false, without a trace, when room is refused.
    pub(super) fn admit_one<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Answer<bool> {
        self.protect_waiting(store, Some(place))?;
        let s = &self.requests[place as usize];
        let (request, target) = (s.arrival.request, s.prefill_target_tokens());
        let block = self.config.block_size_tokens;
        let total_blocks = target.div_ceil(block);
        if self.config.expires {
            store.expire(now_ns);
        }
        let reused = if self.config.cache_enabled {
            store.peek(request, self.config.matchable_blocks(target))?.1
        } else {
            0
        };
        let lease = store.acquire(request, reused)?;
        let lacking = total_blocks - u64::from(reused);
        if store.reserve(&[(lease, lacking)], now_ns)? == Room::Refused {
            store.abandon(lease)?;
            return Ok(false);
        }
        self.queue.take(place, &mut self.requests);
        self.requests[place as usize].lease = lease;
        self.admitted(store, place, reused, now_ns);
        let cached = (u64::from(reused) * block).min(target);
        if self.requests[place as usize].preemptions == 0 {
            self.first_admitted(place, cached, now_ns);
        } else {
            self.requests[place as usize].recomputed_tokens -= cached as i64;
        }
        self.join(store, place, (cached, total_blocks), now_ns)?;
        Ok(true)
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
        self.joined += 1;
        let s = &mut self.requests[place as usize];
        s.joined = self.joined;
        self.batch.add(Sequence {
            id: place,
            lease: s.lease,
            computed: cached,
            prefill_target: target,
            total: s.total_kv_tokens(),
            prompt_tokens: s.arrival.prompt_tokens,
            blocks,
            last_token_ns: s.last_token_ns,
            ..Sequence::default()
        });
        self.batch.commit_last(store)?;
        self.running.push(place);
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
        let others = self.queue.iter().filter(|&place| Some(place) != without);
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
