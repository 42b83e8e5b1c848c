//! Admission to a pool of several cache groups: the cached prefix of a request, and capacity for its first step.

use super::admitted::{Admission, PartLoad};
use super::{Now, Replica, Slot};
use crate::store::newcomer::{Entry, Newcomer};
use crate::store::{Answer, GPU, STAGING};

/// Result of trying to admit the first request of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The request runs, or waits for its KV.
    Admitted,
    /// Capacity is refused until blocks are released.
    NoCapacity,
    /// This step has too few tokens for the request; the next step may have more.
    NoTokens,
}

impl Replica {
    /// Tries to admit a waiting request to the pool of groups; a refusal changes nothing.
    pub(super) fn admit_to_groups(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<Asked> {
        let s = &self.requests[slot];
        let known_tokens = s.prefill_target_tokens();
        let groups = now.store.groups().expect("a store of cache groups");
        let asked = Newcomer {
            request: s.arrival.request,
            prompt_tokens: known_tokens,
            known_tokens,
            matchable_blocks: self.config.matchable_blocks(known_tokens),
            step_tokens: self.batch.budget_left(),
            chunk_tokens: groups.max_num_batched_tokens(),
            whole: true,
            steps_in_flight: 1,
            ..Newcomer::default()
        };
        let (lease, hit_blocks, reserved_tokens) = match groups.admit(&asked, now.ns)? {
            Entry::Admitted {
                lease,
                hit_blocks,
                reserved_tokens,
            } => (lease, hit_blocks, reserved_tokens),
            Entry::NoCapacity => return Ok(Asked::NoCapacity),
            Entry::NoTokens
            | Entry::NotYet
            | Entry::Later
            | Entry::Brings { .. }
            | Entry::Loads { .. } => return Ok(Asked::NoTokens),
        };
        let mut admission = Admission::of(hit_blocks, reserved_tokens, Vec::new());
        if let Some(brought) = groups.brought(lease) {
            let below = u64::from(hit_blocks - brought.in_pool_blocks);
            admission.from_blocks[GPU] -= below;
            admission.from_blocks[STAGING] += below;
            admission.freeing_moves = brought.freeing_moves;
            let loads = brought.loads.into_iter();
            admission.loads = loads
                .map(|id| PartLoad {
                    id,
                    source: STAGING,
                })
                .collect();
        }
        self.arrivals.queue.take(slot, &mut self.requests);
        self.requests[slot].lease = lease;
        self.settle_admission(now, slot, admission)?;
        Ok(Asked::Admitted)
    }
}
