//! A composed step until it starts: it waits for evictions, and stalls for KV that is still arriving (the rules of
//! `spec/scheduler.py`).

use super::{Now, Replica};
use crate::store::{Answer, MoveId};
use crate::transfers::{CopyCost, TransferId, Watcher, NOT_YET};

impl Replica {
    /// Starts the composed step once these moves have ended, in addition to those that it waits for already.
    pub(super) fn prepare_step(&mut self, now: &mut Now<'_>, mut moves: Vec<MoveId>) -> Answer<()> {
        self.composed.since_ns = now.ns;
        moves.extend_from_slice(&self.mover.completions.written);
        self.composed.freeing_moves.clear();
        for id in moves {
            if let (Some(transfer), false) = (
                self.mover.in_flight(id),
                self.composed.freeing_moves.contains(&id),
            ) {
                self.composed.freeing_moves.push(id);
                self.mover.watch(transfer, Watcher::Step);
            }
        }
        if self.composed.freeing_moves.is_empty() {
            return self.settle(now);
        }
        Ok(())
    }

    /// Handles the end of a move: the step starts if this was the last move it waited for.
    pub(super) fn on_step_transfer(
        &mut self,
        now: &mut Now<'_>,
        transfer: TransferId,
    ) -> Answer<()> {
        let id = self.mover.transfer(transfer).id;
        let Some(at) = self
            .composed
            .freeing_moves
            .iter()
            .position(|&other| other == id)
        else {
            return Ok(());
        };
        self.composed.freeing_moves.swap_remove(at);
        if !self.composed.freeing_moves.is_empty() {
            return Ok(());
        }
        let waited = now.ns - self.composed.since_ns;
        for &slot in &self.running.slots {
            let s = &mut self.requests[slot];
            if s.generated.first_token_ns.is_none() {
                s.ttft.fetch_room_ns += waited;
                s.since_ns += waited;
            }
        }
        self.settle(now)
    }

    /// Starts the step once the times of all its arriving transfers are final; none of these times is past its end.
    fn settle(&mut self, now: &mut Now<'_>) -> Answer<()> {
        self.composed.since_ns = now.ns;
        // copies that leave from here on do so while the step runs; its end may not be known yet
        self.composed.copies_ns = self.copies().map_or(0, |copies| {
            copies.step_started(u64::MAX);
            copies.take(now.ns)
        });
        if !self.loads.late.is_empty() {
            let late = self.loads.late.iter();
            for &id in late.flat_map(|&id| &self.loads[id].transfers) {
                let sent = self.mover.sent(id);
                let is_open = sent.is_some_and(|sent| sent.completion_ns == NOT_YET);
                if is_open && !self.composed.unsettled.contains(&id) {
                    self.composed.unsettled.push(id);
                    self.mover.watch(id, Watcher::Times);
                }
            }
        }
        if self.composed.unsettled.is_empty() {
            return self.start_step(now, now.ns);
        }
        if self.reads_are_buffered() {
            self.buffer_reads(now.ns);
        }
        Ok(())
    }

    /// Handles the final times of a transfer: the step has begun if they were the last times it waited for.
    pub(super) fn times_settled(&mut self, now: &mut Now<'_>, transfer: TransferId) -> Answer<()> {
        self.composed.unsettled.retain(|&other| other != transfer);
        if self.composed.unsettled.is_empty() {
            return self.start_step(now, self.composed.since_ns);
        }
        Ok(())
    }

    /// Starts the step, possibly at a time in the past.
    fn start_step(&mut self, now: &mut Now<'_>, begin_ns: u64) -> Answer<()> {
        // The GPU begins once the CPU has submitted the copies: KV may arrive in between.
        let copies_ns = self.composed.copies_ns;
        let stall_ns = if self.loads.late.is_empty() {
            0
        } else {
            self.stall(begin_ns + copies_ns)
        };
        let mut end_ns = self
            .batch
            .start(now.store, begin_ns, copies_ns + stall_ns)?;
        self.running.stepping = true;
        let alone = self.streams() || self.publishes_load() || self.copies().is_some();
        if alone || self.wants_boundary() || self.leaves_next() || self.offers_next(now) {
            end_ns = self.batch.interrupt(now.store, now.ns)?;
        }
        if let Some(copies) = self.copies() {
            copies.step_started(end_ns);
        }
        if self.streams() {
            self.announce(end_ns, now.ns);
        }
        self.running.boundary_ns = Some(end_ns);
        Ok(())
    }

    /// Cost of copies for the steps, if it is modelled.
    fn copies(&mut self) -> Option<&mut CopyCost> {
        self.mover.copies.as_mut()
    }

    /// Extra duration of the step for KV that is still arriving, charged to the requests that wait for it.
    fn stall(&mut self, now_ns: u64) -> u64 {
        let compute_ns = self.batch.step_ns();
        let late = std::mem::take(&mut self.loads.late);
        let mut excess: Vec<u64> = Vec::with_capacity(late.len());
        for &id in &late {
            excess.push(self.late_until(id, now_ns, compute_ns) - (now_ns + compute_ns));
        }
        let stall_ns = excess.iter().copied().max().unwrap_or(0);
        let transfers = late.iter().flat_map(|&id| &self.loads[id].transfers);
        let ends_ns = now_ns + compute_ns + stall_ns;
        let come = |&id: &TransferId| {
            let sent = self.mover.sent(id);
            sent.is_none_or(|sent| sent.completion_ns <= ends_ns)
        };
        debug_assert!(transfers.clone().all(come), "I7: KV comes after its step");
        self.mover.note_hiding(transfers.copied(), compute_ns);
        for (&id, &own_ns) in late.iter().zip(&excess) {
            self.charge_stall(id, own_ns);
        }
        for &slot in &self.running.slots {
            let own = late.iter().position(|&id| self.loads[id].slot == slot);
            let own_ns = own.map_or(0, |at| excess[at]);
            let s = &mut self.requests[slot];
            if s.generated.first_token_ns.is_none() {
                s.stalls.batch_ns += stall_ns - own_ns;
            }
        }
        for id in late {
            self.loading_over(id);
        }
        stall_ns
    }
}
