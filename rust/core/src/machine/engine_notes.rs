//! Records of a replica about the requests of an engine's own scheduler, the same for all engines.

use super::engine::Desk;
use super::rows::Ended;
use super::schedule_log::ScheduleLog;
use super::{Now, Replica, Slot, MOST_TIERS};
use crate::batch::StepRecord;
use crate::convert::fit;
use crate::step_time::StepShape;
use crate::store::contract::BlockStore;
use crate::store::{Answer, MoveId, Order, GPU, STAGING};

/// The cached part of a request at its admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cached {
    pub blocks: u32,
    pub tokens: u64,
    /// Tokens that were found: those, and one more if a prompt is loaded whole and a token of it is computed.
    pub found_tokens: u64,
    /// The blocks that are loaded from the tier below the GPU.
    pub lower_blocks: u32,
    /// True at the first admission.
    pub is_first: bool,
}

impl<S: BlockStore> Desk<'_, S> {
    pub(super) fn at_work(&mut self) -> (&mut Replica, Now<'_>) {
        (self.replica, Now::alone(self.store, self.now_ns))
    }

    /// Ends a request's look-up: from now on the request waits.
    #[inline]
    pub(super) fn queued(&mut self, slot: Slot) {
        let request = &mut self.replica.requests[slot];
        request.ttft.lookup_ns += self.now_ns - request.since_ns;
        request.since_ns = self.now_ns;
    }

    /// Admits a request. Tokens found at the first admission are its cached tokens; at a later admission they reduce
    /// its recomputed tokens.
    pub(super) fn admitted(&mut self, slot: Slot, cached: Cached, log: &mut Option<ScheduleLog>) {
        let (replica, mut now) = self.at_work();
        replica.admitted(&mut now, slot, cached.blocks);
        let request = &mut replica.requests[slot];
        request.scheduling.prefilling = true;
        let arrival = request.arrival;
        if cached.is_first {
            let mut from_blocks = [0; MOST_TIERS];
            from_blocks[GPU] = u64::from(cached.blocks - cached.lower_blocks);
            from_blocks[STAGING] = u64::from(cached.lower_blocks);
            let found = cached.found_tokens;
            replica.first_admitted(&mut now, slot, &from_blocks, found);
            if cached.lower_blocks > 0 {
                let from_tokens = &mut replica.requests[slot].cached.from_tokens;
                from_tokens[STAGING] = found - from_tokens[GPU];
            }
            replica.prefill_starts(slot, arrival.prompt_tokens - cached.tokens, now.ns);
        } else {
            request.cached.recomputed_tokens -= fit::<i64>(cached.tokens);
        }
        if let Some(log) = log {
            log.admitted(arrival.request, cached.tokens, cached.is_first);
        }
    }

    /// Ends a request's wait in the queue: it waits for a load.
    pub(super) fn loads(&mut self, slot: Slot) {
        self.replica.left_queue(slot, self.now_ns);
    }

    /// Ends a request's wait for its load from the tier below the GPU.
    pub(super) fn loaded(&mut self, slot: Slot) {
        let request = &mut self.replica.requests[slot];
        if request.generated.first_token_ns.is_none() {
            let waited_ns = self.now_ns - request.since_ns;
            request.ttft.fetch_from_ns[STAGING] += waited_ns;
            request.stalls.from_ns[STAGING] += waited_ns;
            request.since_ns = self.now_ns;
        }
    }

    /// Charges a time of a request's step before its first token to the wait for free blocks.
    pub(super) fn waited_for_blocks(&mut self, slot: Slot, waited_ns: u64) {
        let request = &mut self.replica.requests[slot];
        if request.generated.first_token_ns.is_none() {
            request.ttft.fetch_room_ns += waited_ns;
            request.since_ns += waited_ns;
        }
    }

    /// Applies the next end of a copy; returns the request whose prompt is here with it, from another machine.
    pub(super) fn next_copy(&mut self) -> Answer<Option<u32>> {
        let (replica, mut now) = self.at_work();
        replica.copy_of_engine(&mut now)
    }

    /// Sends copies that an engine's own scheduler has decided.
    pub(super) fn send(&mut self, orders: &[Order]) -> Answer<()> {
        let (replica, mut now) = self.at_work();
        replica.mover.send_orders(&mut now, orders)?;
        replica.log_transfers();
        Ok(())
    }

    /// Records a token; `before_ns`: the time of the request's token before it, `None` at the first token.
    #[inline]
    pub(super) fn token(&mut self, slot: Slot, before_ns: Option<u64>) {
        let (replica, mut now) = self.at_work();
        replica.batch.counts.generated_tokens += 1;
        match before_ns {
            Some(before_ns) => {
                replica.batch.counts.itl.add(now.ns - before_ns, 1);
                let request = replica.requests[slot].arrival.request;
                replica.log_token(request, now.ns);
            }
            None => replica.first_token(&mut now, slot),
        }
    }

    /// Finishes a request that has generated its last token.
    pub(super) fn finished(&mut self, slot: Slot, log: &mut Option<ScheduleLog>) {
        let (replica, mut now) = self.at_work();
        replica.finished(&mut now, slot);
        if let Some(log) = log {
            let r = &replica.requests[slot];
            let first_ns = r.generated.first_token_ns.unwrap_or(now.ns);
            let request = r.arrival.request;
            log.requests.push((
                request,
                first_ns,
                now.ns,
                r.cached.tokens,
                r.scheduling.preemptions,
            ));
        }
    }

    /// Sends a running request with KV of `computed` tokens back to the queue.
    pub(super) fn preempted(&mut self, slot: Slot, computed: u64, log: &mut Option<ScheduleLog>) {
        let (replica, mut now) = self.at_work();
        replica.preempted(&mut now, slot, computed);
        if let Some(log) = log {
            log.counts.preemptions += 1;
        }
    }

    /// Ends a request that its client has aborted.
    pub(super) fn aborted(&mut self, slot: Slot) {
        let (replica, mut now) = self.at_work();
        replica.left(&mut now, slot, Ended::Aborted);
    }

    /// Turns a request away that has just come, since the queue is full.
    pub(super) fn turned_away(&mut self, slot: Slot) {
        let (replica, mut now) = self.at_work();
        replica.left(&mut now, slot, Ended::TurnedAway);
        replica.requests.free(slot);
    }
}

impl Replica {
    /// Charges the stall of a request's step to the tier that its KV came from, or to its prefill where the KV of
    /// other requests was waited for.
    pub(super) fn stalled(&mut self, slot: Slot, tier: usize, stall_ns: u64, is_its_own: bool) {
        let request = &mut self.requests[slot];
        if request.generated.first_token_ns.is_some() {
            return;
        }
        if is_its_own {
            request.ttft.fetch_from_ns[tier] += stall_ns;
            request.stalls.from_ns[tier] += stall_ns;
            request.since_ns += stall_ns;
        } else {
            request.stalls.batch_ns += stall_ns;
        }
    }

    /// Time at which the last of these copies has arrived; 0 if all have.
    pub(super) fn sent_until(&self, moves: &[MoveId]) -> u64 {
        let in_flight = moves.iter().filter_map(|&id| self.mover.in_flight(id));
        let sent = in_flight.filter_map(|id| self.mover.sent(id));
        sent.map(|sent| sent.completion_ns).max().unwrap_or(0)
    }

    /// Time of the next end of a copy, or of the alarm of one that is to be sent.
    pub(super) fn next_copy_ns(&self) -> Option<u64> {
        self.next_copy().map(|(ns, _)| ns)
    }

    /// Time and number of the next end of a copy.
    pub fn next_copy(&self) -> Option<(u64, u64)> {
        self.mover.arrivals.next_numbered()
    }

    /// Handles the next end of a copy, or the alarm of one that is to be sent. Returns the request whose prompt is here
    /// with it, from another machine.
    pub(super) fn copy_of_engine(&mut self, now: &mut Now<'_>) -> Answer<Option<u32>> {
        let next = self.mover.arrivals.pop().filter(|next| !next.is_alarm());
        let Some(arrival) = next.filter(|next| next.complete) else {
            return Ok(None);
        };
        let came = self.mover.transfer(arrival.transfer).completes();
        self.mover.complete(now, arrival.transfer)?;
        self.mover.forget(arrival.transfer);
        Ok(came.map(|id| self.handover.target.take(id).arrival.request))
    }

    /// Counts a finished step of an engine's own scheduler.
    pub(super) fn step_of_engine(&mut self, shape: &StepShape, begin_ns: u64, end_ns: u64) {
        self.batch
            .record_step(StepRecord::of(shape, begin_ns, end_ns));
    }
}
