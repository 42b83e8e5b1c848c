//! Effects of the milestones of a request: its times, the machine's load, the records.

use super::messages::{Message, Task};
use super::outcome::decide;
use super::request::MOST_TIERS;
use super::rows::{Ended, EventKind, EventRow, NO_DETAIL};
use super::{Arrival, Now, Replica, Request, Slot};
use crate::convert::fit;
use crate::digest::Record;
use crate::store::MoveId;

impl Replica {
    /// Counts a request that was sent here and starts its time of arrival.
    pub(super) fn arrived(&mut self, request: Request) -> Slot {
        let Arrival {
            prompt_tokens,
            expected_prefill_tokens,
            ..
        } = request.arrival;
        self.prefill_load
            .add(prompt_tokens, expected_prefill_tokens);
        self.requests.keep(request)
    }

    /// Ends a request's wait in the queue.
    pub(super) fn admitted(&mut self, now: &mut Now<'_>, slot: Slot, reused_blocks: u32) {
        self.left_queue(slot, now.ns);
        let s = &self.requests[slot];
        let (request, reused) = (u64::from(s.arrival.request), u64::from(reused_blocks));
        let records = now.store.records_mut();
        records.note(Record::Admit as u8, now.ns, request, reused);
        self.log(EventKind::Admit, slot, now.ns);
    }

    /// Charges the time since the last milestone to the queue, unless the request's TTFT is over.
    pub(super) fn left_queue(&mut self, slot: Slot, now_ns: u64) {
        let s = &mut self.requests[slot];
        if s.generated.first_token_ns.is_none() {
            s.ttft.queue_ns += now_ns - s.since_ns;
            s.since_ns = now_ns;
        }
    }

    /// Records the reused blocks of a request, by the tier they come from, and the outcome of its look-up.
    pub(super) fn first_admitted(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        from_blocks: &[u64; MOST_TIERS],
        cached_tokens: u64,
    ) {
        let block = self.config.block_size_tokens;
        let s = &mut self.requests[slot];
        s.cached.from_tokens = from_blocks.map(|blocks| blocks * block);
        let Request { arrival, .. } = *s;
        s.cached.tokens = cached_tokens;
        s.cached.left_tokens = arrival.prompt_tokens - cached_tokens;
        let session_tokens = self.session_tokens(now, slot);
        let continues = session_tokens.map(|total| arrival.continues(total));
        let (found, events) = decide(arrival.prompt_tokens, continues, cached_tokens);
        self.requests[slot].cached.outcome = found as u8;
        now.store
            .count_prefixes(arrival.request, arrival.prompt_tokens);
        for (outcome, tokens, left_tokens) in events {
            let row = EventRow {
                detail: outcome as i64,
                tokens,
                left_tokens,
                ..EventRow::of(EventKind::PrefixCacheEvent, now.ns, arrival.request)
            };
            self.reports.rows.event(self.config.machine, row);
        }
    }

    /// Records the start of the prefill of `tokens` missed tokens.
    pub(super) fn prefill_starts(&mut self, slot: Slot, tokens: u64, now_ns: u64) {
        let request = self.requests[slot].arrival.request;
        let row = EventRow {
            tokens,
            ..EventRow::of(EventKind::PrefillStart, now_ns, request)
        };
        self.reports.rows.event(self.config.machine, row);
    }

    /// Ends a request's prefill, or the first decode step of a request without prefill, and records its first token.
    pub(super) fn first_token(&mut self, now: &mut Now<'_>, slot: Slot) {
        self.prompt_over(slot, now.ns);
        self.show_first_token(now, slot);
    }

    /// Ends a request's prefill, or the first decode step of a request without prefill.
    pub(super) fn prompt_over(&mut self, slot: Slot, now_ns: u64) {
        let s = &mut self.requests[slot];
        let spent = now_ns - s.since_ns;
        if s.scheduling.prefilling {
            s.ttft.prefill_ns += spent;
            s.scheduling.prefilling = false;
        } else {
            s.ttft.first_decode_ns += spent;
        }
        s.since_ns = now_ns;
        if s.handover.prefill_machine.is_some() {
            return;
        }
        let (request, prompt_tokens) = (s.arrival.request, s.arrival.prompt_tokens);
        let expected_tokens = s.arrival.expected_prefill_tokens;
        self.prefill_load.take_out(prompt_tokens, expected_tokens);
        if let Some(prefilled) = &mut self.reports.prefilled {
            prefilled.push((request, prompt_tokens));
        }
    }

    /// Records a request's first token.
    pub(super) fn show_first_token(&mut self, now: &mut Now<'_>, slot: Slot) {
        let s = &mut self.requests[slot];
        s.generated.first_token_ns = Some(now.ns);
        let request = s.arrival.request;
        let records = now.store.records_mut();
        records.note(Record::FirstToken as u8, now.ns, u64::from(request), 0);
        self.log_token(request, now.ns);
        self.log(EventKind::FirstToken, slot, now.ns);
    }

    /// Sends a running request with KV of `computed` tokens back to the queue.
    pub(super) fn preempted(&mut self, now: &mut Now<'_>, slot: Slot, computed: u64) {
        let s = &mut self.requests[slot];
        if s.generated.first_token_ns.is_some() {
            // The last generated token never had KV, so tokens out = KV − prompt + 1 once decoding.
            let out = (computed + 1).saturating_sub(s.arrival.prompt_tokens);
            s.generated.tokens = s.generated.tokens.max(out);
        } else {
            s.ttft.prefill_ns += now.ns - s.since_ns;
            s.since_ns = now.ns;
        }
        s.cached.recomputed_tokens += fit::<i64>(computed);
        s.scheduling.preemptions += 1;
        let request = u64::from(s.arrival.request);
        let records = now.store.records_mut();
        records.note(Record::Preempt as u8, now.ns, request, computed);
        self.log(EventKind::Preempt, slot, now.ns);
    }

    /// Finishes a request that has generated its last token.
    pub(super) fn finished(&mut self, now: &mut Now<'_>, slot: Slot) {
        let arrival = self.requests[slot].arrival;
        let (request, output) = (u64::from(arrival.request), arrival.output_tokens);
        let records = now.store.records_mut();
        records.note(Record::Finish as u8, now.ns, request, output);
        self.log(EventKind::Finish, slot, now.ns);
        self.prefill_load.remove();
        if arrival.session >= 0 && self.config.reuse.cache_enabled {
            let kept = if self.config.reuse.cache_output {
                output
            } else {
                0
            };
            let tokens = arrival.prompt_tokens + kept;
            self.turn_completed(now, slot, tokens);
        }
        let s = &mut self.requests[slot];
        debug_assert!(!s.is_closed, "I1: a request leaves once");
        s.is_closed = true;
        if let Some(machine) = s.handover.prefill_machine {
            self.prefill_load.take_out(arrival.prompt_tokens, 0);
            if arrival.session >= 0 && self.config.reuse.cache_enabled {
                let turn = Task::TurnCompleted(arrival.session, arrival.prompt_tokens);
                let message = Message::SendNow(fit::<u32>(machine), turn);
                self.handover.messages.push(message);
            }
        }
        self.reports
            .rows
            .ended(s, self.config.machine, Ended::Finished, now.ns);
        self.note_closed(arrival.request, now.ns);
    }

    /// Records the transfers since the last call, if they are logged.
    pub(super) fn log_transfers(&mut self) {
        let Some((from_ns, to_ns)) = self.config.record_window_ns else {
            return;
        };
        let records = self.mover.traffic.log.as_mut().map(std::mem::take);
        for record in records.unwrap_or_default() {
            let (start_ns, end_ns) = (record.sent.start_ns, record.sent.completion_ns);
            if from_ns <= start_ns && start_ns < to_ns {
                let (from, to) = (fit::<i64>(record.route.from), fit::<i64>(record.route.to));
                let detail = NO_DETAIL + 1 + from * self.config.sources + to;
                let (machine, request) = (self.config.machine, self.loads_for(record.id));
                let rows = &mut self.reports.rows;
                rows.transfer(machine, request, detail, record.blocks, start_ns, end_ns);
            }
        }
    }

    /// The request that a move loads for, −1 for none.
    fn loads_for(&self, id: MoveId) -> i64 {
        let loading = self.loads.slots.taken().map(|loading| &self.loads[loading]);
        loading
            .into_iter()
            .find(|loading| loading.admission.loads.iter().any(|load| load.id == id))
            .map_or(-1, |loading| {
                self.requests[loading.slot].arrival.request.into()
            })
    }

    pub(super) fn log(&mut self, kind: EventKind, slot: Slot, now_ns: u64) {
        let window = self.config.record_window_ns;
        if window.is_some_and(|(from, to)| from <= now_ns && now_ns < to) {
            let request = self.requests[slot].arrival.request;
            let row = EventRow::of(kind, now_ns, request);
            self.reports.rows.event(self.config.machine, row);
        }
    }
}
