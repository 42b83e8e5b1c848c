//! What a replica notes of a request that an engine's own scheduler moves on, alike for all of them.

use super::schedule_log::ScheduleLog;
use super::{Place, Replica, ServingStore, MOST_TIERS};

/// What was cached of a request when it was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    pub blocks: u32,
    pub tokens: u64,
    /// It had not been admitted before.
    pub is_first: bool,
}

impl Replica {
    /// Ends a request's look-up: from now on it waits.
    #[inline]
    pub(super) fn queued_by_engine(&mut self, place: Place, now_ns: u64) {
        let request = &mut self.requests[place as usize];
        request.lookup_ns += now_ns - request.since_ns;
        request.since_ns = now_ns;
    }

    /// Admits a request: what it found now is its own at the first admission, spared work at a later one.
    pub(super) fn admitted_by_engine<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        cached: Cached,
        now_ns: u64,
        log: &mut Option<ScheduleLog>,
    ) {
        self.admitted(store, place, cached.blocks, now_ns);
        let request = &mut self.requests[place as usize];
        request.prefilling = true;
        let arrival = request.arrival;
        if cached.is_first {
            let mut from_blocks = [0; MOST_TIERS];
            from_blocks[0] = u64::from(cached.blocks);
            self.first_admitted(store, place, &from_blocks, cached.tokens, now_ns);
            self.prefill_starts(place, arrival.prompt_tokens - cached.tokens, now_ns);
        } else {
            request.recomputed_tokens -= cached.tokens as i64;
        }
        if let Some(log) = log {
            log.admitted(arrival.request, cached.tokens, cached.is_first);
        }
    }

    /// Shows a token, the first one or one behind another.
    #[inline]
    pub(super) fn token_of_engine<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        before_ns: Option<u64>,
        now_ns: u64,
    ) {
        self.batch.generated_tokens += 1;
        match before_ns {
            Some(before_ns) => {
                self.batch.itl.add(now_ns - before_ns, 1);
                let request = self.requests[place as usize].arrival.request;
                self.log_token(request, now_ns);
            }
            None => self.first_token(store, place, now_ns),
        }
    }

    /// Ends a request whose last token is out.
    pub(super) fn finished_by_engine<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
        log: &mut Option<ScheduleLog>,
    ) {
        self.finished(store, place, now_ns);
        if let Some(log) = log {
            let r = &self.requests[place as usize];
            let first_ns = r.first_token_ns.unwrap_or(now_ns);
            let request = r.arrival.request;
            log.requests
                .push((request, first_ns, now_ns, r.cached_tokens, r.preemptions));
        }
    }
}
