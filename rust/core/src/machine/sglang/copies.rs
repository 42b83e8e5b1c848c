//! Copies between the GPU and HiCache's host: what the engine polls at each pass, submits, and waits for.
//!
//! A copy starts when the step in flight has ended, as the engine's streams do. Under write_back the scheduler waits
//! for each page run that it writes; a step waits for its load layer by layer.

use super::super::{Now, Slot};
use super::step::Step;
use super::{Desk, SglangScheduler};
use crate::store::contract::MovingStore;
use crate::store::{Answer, Order, StoreError, STAGING};
use crate::transfers::TransferId;

impl SglangScheduler {
    /// Submits what has been queued, and ends the copies that have arrived (`check_hicache_events`).
    pub(super) fn poll(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        self.blocked_ns = self.blocked_ns.max(desk.now_ns);
        self.ask_arrived(desk)?;
        self.submit_writes(desk)?;
        let finished = self.count_finished(desk)?;
        let has_come = |ns: &(u64, u64)| ns.0 <= desk.now_ns;
        while desk.replica.next_arrival().as_ref().is_some_and(has_come) {
            let now = &mut Now::alone(desk.store, desk.now_ns);
            desk.replica.at_arrival(now)?;
        }
        self.poll_storage(desk, finished)
    }

    /// Submits the queued writes.
    pub(super) fn submit_writes(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        desk.store.submit_writes();
        for order in desk.store.take_orders() {
            self.send(desk, &order)?;
        }
        Ok(())
    }

    /// Writes what evictions have ordered, one run after another; the scheduler waits for each.
    pub(super) fn write_back(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        for order in desk.store.take_orders() {
            let transfer = self.send(desk, &order)?;
            let sent = desk.replica.mover.sent(transfer);
            self.blocked_ns = sent.map_or(self.blocked_ns, |sent| sent.completion_ns);
            desk.store.save_written(1, self.blocked_ns);
        }
        Ok(())
    }

    /// Submits the loads of a step's requests as one copy.
    pub(super) fn load(&mut self, desk: &mut Desk<'_>) -> Answer<Option<TransferId>> {
        self.write_back(desk)?;
        desk.store.submit_loads();
        let order = desk.store.take_orders().pop();
        order.map(|order| self.send(desk, &order)).transpose()
    }

    /// Sends an order over its channel, once the launched steps have ended; a write of an older release at once.
    fn send(&self, desk: &mut Desk<'_>, order: &Order) -> Answer<TransferId> {
        let waits = order.to < order.from || self.config.release.writes_after_step;
        let launched = self.steps.lookahead.as_ref().or(self.steps.flight.as_ref());
        let launched = launched.filter(|_| waits);
        let start_ns = launched.map_or(0, |step| step.end_ns);
        let start_ns = start_ns.max(self.blocked_ns).max(desk.now_ns);
        let now = &mut Now::alone(desk.store, start_ns);
        desk.replica.mover.accept(now, order, None)?;
        desk.replica.log_transfers();
        desk.replica
            .mover
            .in_flight(order.id)
            .ok_or(StoreError::NoSuchMove)
    }

    /// End of a step, which waits for its load layer by layer, and pays for the copies submitted before it.
    pub(super) fn end_ns(&self, desk: &mut Desk<'_>, step: &mut Step, compute_ns: u64) -> u64 {
        let mover = &mut desk.replica.mover;
        let copies_ns = mover
            .copies
            .as_mut()
            .map_or(0, |copies| copies.take(step.begin_ns));
        let start_ns = step.begin_ns + copies_ns;
        if let Some(load) = step.load {
            mover.note_hiding(std::iter::once(load), compute_ns);
            let latest = mover.latest_layer(load, start_ns, compute_ns);
            step.stall_ns = latest.map_or(0, |latest| latest.end_ns - start_ns - compute_ns);
        }
        let end_ns = start_ns + compute_ns + step.stall_ns;
        if let Some(copies) = &mut mover.copies {
            copies.step_started(end_ns);
        }
        end_ns
    }

    /// Charges the stall of a step to a request whose prompt it computed: as a wait for its own KV, or as a part of
    /// its prefill.
    pub(super) fn charge_stall(&mut self, desk: &mut Desk<'_>, slot: Slot, stall_ns: u64) {
        let is_loading = std::mem::take(&mut self.sequences[slot].is_loading);
        desk.replica.stalled(slot, STAGING, stall_ns, is_loading);
    }
}
