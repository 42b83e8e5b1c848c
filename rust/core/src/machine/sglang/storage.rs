//! Prefetches from HiCache's storage: asked for as requests come, again after a miss, and waited for before admission
//! (`_prefetch_kvcache`, `_process_storage_prefetch_retries`, `check_prefetch_progress`).

use std::collections::BTreeMap;

use super::super::{Now, Slot};
use super::{Desk, SglangScheduler};
use crate::convert::fit;
use crate::engines::radix_store::{Asking, Finished, Missed};
use crate::store::{Answer, StoreError};
use crate::transfers::HoldBack;

/// Passes after which a request that found nothing asks again (`hicache_storage_prefetch_retry_poll_interval`).
const RETRY_PASSES: u64 = 8;
/// Most times that a request asks again (`hicache_storage_prefetch_retry_max_attempts`).
const MOST_RETRIES: u32 = 8;

/// State of a waiting request's look-ups in the storage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Times that it asked again.
    pub retries: u32,
    /// Tokens found on GPU and host when it asked last.
    pub found: u64,
}

/// A request that asks again later.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    known_end: Option<u32>,
    /// The pass at which it does.
    due: Option<u64>,
}

/// A request's wait for its prefetch.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since_ns: u64,
    /// Tokens that lengthen it; `None`: those that the storage has.
    tokens: Option<u64>,
    is_over: bool,
}

/// The scheduler's part of the prefetches.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
    /// Requests that have come since the last pass.
    arrived: Vec<Slot>,
    retries: BTreeMap<u32, Retry>,
    waits: BTreeMap<u32, Wait>,
    passes: u64,
}

impl Prefetches {
    pub fn arrives(&mut self, slot: Slot) {
        self.arrived.push(slot);
    }

    /// Ends what waits for a request that is admitted or leaves.
    pub fn forget(&mut self, request: u32) {
        self.retries.remove(&request);
        self.waits.remove(&request);
    }

    fn missed(&mut self, missed: Missed) {
        let Missed { request, known_end } = missed;
        let due = None;
        self.retries.insert(request, Retry { known_end, due });
    }
}

impl SglangScheduler {
    /// The current time, with the waits of this pass.
    fn time_ns(&mut self, desk: &mut Desk<'_>) -> Answer<u64> {
        self.write_back(desk)?;
        Ok(self.blocked_ns.max(desk.now_ns))
    }

    /// Asks for the requests that have come since the last pass.
    pub(super) fn ask_arrived(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        for slot in std::mem::take(&mut self.prefetches.arrived) {
            self.ask(desk, slot, None)?;
        }
        Ok(())
    }

    /// Asks again for a request that was retracted.
    pub(super) fn ask_anew(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<()> {
        self.sequences[slot].asked = Asked::default();
        self.ask(desk, slot, None)
    }

    /// Asks the storage for what follows a request's prefix.
    pub(super) fn ask(
        &mut self,
        desk: &mut Desk<'_>,
        slot: Slot,
        known_end: Option<u32>,
    ) -> Answer<()> {
        if !desk.store.has_storage() {
            return Ok(());
        }
        let s = &mut self.sequences[slot];
        let (request, tokens) = (s.request, s.known() - 1);
        let found = desk.store.find(request, tokens);
        s.asked.found = found.tokens + found.host_tokens;
        if !desk.store.may_ask(found) {
            return Ok(());
        }
        self.prefetches.retries.remove(&request);
        if self
            .prefetches
            .waits
            .get(&request)
            .is_some_and(|wait| wait.is_over)
        {
            return Ok(());
        }
        let ns = self.time_ns(desk)?;
        let end = fit::<u32>(tokens / self.config.page_size);
        match desk.store.ask(request, found, end, known_end, ns) {
            Asking::Limited => self.prefetches.missed(Missed { request, known_end }),
            Asking::Asked if !self.config.release.waits_from_admission => {
                self.prefetches.waits.insert(request, Wait::since(ns));
            }
            Asking::Asked | Asking::Nothing => {}
        }
        Ok(())
    }

    /// Counts what the storage's threads have done up to now.
    pub(super) fn count_finished(&mut self, desk: &mut Desk<'_>) -> Answer<Finished> {
        self.run_threads(desk, desk.now_ns)?;
        Ok(desk.store.finished())
    }

    /// Handles what was counted, and lets requests ask again.
    pub(super) fn poll_storage(&mut self, desk: &mut Desk<'_>, finished: Finished) -> Answer<()> {
        if !desk.store.has_storage() {
            return Ok(());
        }
        desk.store.save_written(usize::MAX, desk.now_ns);
        for missed in desk.store.handle(finished, desk.now_ns) {
            self.prefetches.missed(missed);
        }
        self.retry(desk)
    }

    /// Lets the threads work up to a time; each batch crosses its channel.
    fn run_threads(&mut self, desk: &mut Desk<'_>, until_ns: u64) -> Answer<()> {
        while let Some(batch) = desk.store.run_threads(until_ns) {
            let now = &mut Now::alone(desk.store, batch.start_ns);
            let mover = &mut desk.replica.mover;
            mover.accept(now, &batch.order, None)?;
            let transfer = mover
                .in_flight(batch.order.id)
                .ok_or(StoreError::NoSuchMove)?;
            let sent = mover.sent(transfer).ok_or(StoreError::NoSuchMove)?;
            desk.replica.log_transfers();
            desk.store.batch_sent(&batch, sent.completion_ns);
        }
        Ok(())
    }

    /// Lets the requests ask again whose turn has come; the first of the queue does not wait for it.
    fn retry(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        let own = &mut self.prefetches;
        own.passes += 1;
        let passes = own.passes;
        if own.retries.is_empty() {
            return Ok(());
        }
        if let Some(&first) = self.waiting.first() {
            own.retries.remove(&self.sequences[first].request);
        }
        let mut ready = Vec::new();
        for &slot in &self.waiting {
            let s = &self.sequences[slot];
            let Some(retry) = own.retries.get_mut(&s.request) else {
                continue;
            };
            let due = *retry.due.get_or_insert(passes + RETRY_PASSES);
            let is_last = s.asked.retries >= MOST_RETRIES;
            if is_last || due <= passes {
                let known_end = retry.known_end;
                own.retries.remove(&s.request);
                if !is_last {
                    ready.push((slot, known_end));
                }
            }
        }
        for (slot, known_end) in ready {
            self.sequences[slot].asked.retries += 1;
            self.ask(desk, slot, known_end)?;
        }
        Ok(())
    }

    /// True if the storage has nothing for the next passes to handle, and no request asks again.
    pub(super) fn is_settled(&mut self, desk: &mut Desk<'_>) -> Answer<bool> {
        if !desk.store.has_storage() {
            return Ok(true);
        }
        self.run_threads(desk, desk.now_ns)?;
        let retries = &self.prefetches.retries;
        let asks_again = |slot: &Slot| retries.contains_key(&self.sequences[*slot].request);
        Ok(desk.store.knows_all() && !self.waiting.iter().any(asks_again))
    }

    /// The first time at which the wait of a request is over.
    pub(super) fn wait_ends_ns(&self, desk: &Desk<'_>) -> Option<u64> {
        let waits = self.prefetches.waits.iter();
        waits
            .filter(|(_, wait)| !wait.is_over)
            .filter_map(|(&request, wait)| self.last_ns(desk, request, wait)?.checked_add(1))
            .filter(|&ns| ns > desk.now_ns)
            .min()
    }

    /// The last time at which a request still waits; an older release counts the tokens that the storage has.
    fn last_ns(&self, desk: &Desk<'_>, request: u32, wait: &Wait) -> Option<u64> {
        let config = desk.replica.mover.prefetch_state.as_ref()?.config;
        let HoldBack::For(base_ns) = config.hold_back else {
            return None;
        };
        let found = || Some(desk.store.ongoing(request)?.hit_tokens);
        let tokens = u128::from(wait.tokens.or_else(found)?);
        let more_ns = tokens * u128::from(config.storage_per_ki_token_ns?) / 1024;
        let wait_ns = base_ns.checked_add(u64::try_from(more_ns).ok()?)?;
        wait.since_ns.checked_add(wait_ns)
    }

    /// True if a request need not wait for its prefetch, which ends then.
    pub(super) fn is_prefetched(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<bool> {
        let request = self.sequences[slot].request;
        let Some(ongoing) = desk.store.ongoing(request) else {
            return Ok(true);
        };
        let ns = self.time_ns(desk)?;
        let stop = desk
            .replica
            .mover
            .prefetch_state
            .as_ref()
            .map(|state| state.config.hold_back);
        let is_once = self.config.release.waits_from_admission;
        let has_budget = is_once && matches!(stop, Some(HoldBack::For(_)));
        let own = &self.prefetches;
        let is_late = |wait: &Wait| {
            let last_ns = self.last_ns(desk, request, wait);
            wait.is_over || last_ns.is_some_and(|last_ns| ns > last_ns)
        };
        let ends = match stop {
            Some(HoldBack::Never) | None => true,
            Some(HoldBack::UntilCome) => false,
            Some(HoldBack::For(_)) => {
                !(is_once && ongoing.is_whole) && own.waits.get(&request).is_some_and(is_late)
            }
        };
        let own = &mut self.prefetches;
        if !ends {
            if has_budget {
                own.waits.entry(request).or_insert(Wait {
                    tokens: Some(ongoing.requested_tokens),
                    ..Wait::since(ns)
                });
            }
            return Ok(false);
        }
        if let (true, Some(wait)) = (has_budget, own.waits.get_mut(&request)) {
            wait.is_over = true;
            own.retries.remove(&request);
        }
        self.run_threads(desk, ns)?;
        desk.store.terminate(request);
        if ongoing.is_read {
            desk.store.use_prefetched(request);
            return Ok(true);
        }
        if !has_budget {
            self.prefetches.missed(Missed {
                request,
                known_end: None,
            });
        }
        desk.store.drop_prefetch(request);
        Ok(true)
    }

    /// True if a request has lost blocks since it asked, and asks again instead of being admitted.
    pub(super) fn asks_for_lost(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<bool> {
        let s = &mut self.sequences[slot];
        let found = s.found.tokens + s.found.host_tokens;
        if !desk.store.has_storage() || found >= s.asked.found {
            return Ok(false);
        }
        if s.asked.retries >= MOST_RETRIES {
            s.asked.found = found;
            return Ok(false);
        }
        s.asked.retries += 1;
        self.ask(desk, slot, None)?;
        Ok(true)
    }

    /// Ends the prefetch of a request that leaves.
    pub(super) fn drop_prefetch(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<()> {
        let request = self.sequences[slot].request;
        self.prefetches.arrived.retain(|&arrived| arrived != slot);
        self.prefetches.forget(request);
        if desk.store.ongoing(request).is_some() {
            let ns = self.time_ns(desk)?;
            self.run_threads(desk, ns)?;
            desk.store.terminate(request);
            desk.store.drop_prefetch(request);
        }
        Ok(())
    }
}

impl Wait {
    fn since(since_ns: u64) -> Self {
        Self {
            since_ns,
            tokens: None,
            is_over: false,
        }
    }
}
