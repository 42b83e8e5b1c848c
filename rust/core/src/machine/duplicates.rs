//! Two requests about to compute the same block: the later one may wait for the earlier one's (the rules of
//! `spec/scheduler.py`).

use super::{Now, Replica, Slot};
use crate::store::Answer;

impl Replica {
    /// True if the head of the queue waits for a block that another request is computing.
    ///
    /// The blocks that running or loading requests have computed are all in the cache. So a request with the missing
    /// block in its prompt has yet to compute it. Cost: two keys for each of these requests.
    pub(super) fn waits_for_another(&self, now: &mut Now<'_>, head: Slot) -> Answer<bool> {
        if !self.config.scheduling.waits_for_duplicates {
            return Ok(false);
        }
        let of = |slot: Slot| self.requests[slot].arrival.request;
        let limit = self
            .config
            .matchable_blocks(self.requests[head].prefill_target_tokens());
        let found = now.store.find(of(head), limit, now.ns)?.0;
        if found >= limit {
            return Ok(false);
        }
        let running = self.running.slots.iter().copied();
        let mut others = running.chain(self.loads.slots());
        Ok(others.any(|other| now.store.have_same_block(of(head), of(other), found)))
    }
}
