//! Prefetches from an engine's storage while a request waits, and the requests of the queue that are held back for
//! them.

use super::prefetch_policy::PrefetchPolicy;
use super::queue::QueueOrder;
use super::{Now, Replica};
use crate::store::Answer;
use crate::transfers::Mover;

impl Replica {
    /// Starts to prefetch the stored part of a request's first `limit` blocks; false if there is no storage.
    pub(super) fn start_from_storage(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        limit: u32,
    ) -> Answer<bool> {
        let Some(storage) = now.store.prefetching() else {
            return Ok(false);
        };
        let asked = storage.start_prefetch(request, limit, now.ns)?;
        let tokens = u64::from(asked) * self.config.block_size_tokens;
        let state = self.mover.prefetch_state.as_mut();
        let waits = state.and_then(|state| state.storage.as_mut());
        if let Some(waits) = waits.filter(|_| asked > 0) {
            waits.asked(request, tokens);
        }
        self.issue(now, None)?;
        Ok(true)
    }

    /// Requests of the queue that must not be admitted yet, in its order, up to the last one that matters. `None` if
    /// no request can be held back.
    ///
    /// A request that need not wait any longer for its storage continues with the blocks that have arrived.
    pub(super) fn held_back(&mut self, now: &mut Now<'_>) -> Answer<Option<Vec<u32>>> {
        let mover = &mut self.mover;
        if mover.prefetch_state.is_none()
            || !self
                .config
                .movement
                .prefetch
                .is_some_and(PrefetchPolicy::is_queued)
        {
            return Ok(None);
        }
        let mut held = Vec::new();
        let mut is_first = true;
        for slot in (0..).map_while(|n| self.arrivals.queue.candidate(n)) {
            let s = &self.requests[slot];
            if !self.arrivals.queue.can_see(s) {
                continue;
            }
            let (request, was_preempted) = (s.arrival.request, s.scheduling.preemptions > 0);
            if stays(mover, now, request)? {
                held.push(request);
                continue;
            }
            let goes_first =
                self.config.scheduling.queue_order == QueueOrder::Fcfs || was_preempted;
            if std::mem::take(&mut is_first) && goes_first {
                break;
            }
        }
        Ok(Some(held))
    }
}

/// True if a request that could be admitted now must stay in the queue.
fn stays(mover: &mut Mover, now: &mut Now<'_>, request: u32) -> Answer<bool> {
    let Some(prefetch_state) = &mut mover.prefetch_state else {
        return Ok(false);
    };
    let Some(waits) = &mut prefetch_state.storage else {
        return Ok(prefetch_state.holds_back(request, now.ns));
    };
    let Some(storage) = now.store.prefetching() else {
        return Ok(false);
    };
    if !storage.is_prefetching(request) {
        waits.came(request);
        return Ok(false);
    }
    let wait = waits.wait_now(request, now.ns);
    if !wait.waits {
        waits.came(request);
        storage.stop_prefetch(request)?;
    }
    if let Some(until_ns) = wait.until_ns {
        mover.arrivals.set_alarm(until_ns);
    }
    Ok(wait.waits)
}
