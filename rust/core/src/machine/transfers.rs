//! Between boundaries: orders are sent, and arrivals change the store and let requests continue.

use super::{Now, Replica, Slot};
use crate::ids::BlockRange;
use crate::store::{Answer, Times};
use crate::transfers::{Arrival, TransferId, Watcher};

impl Replica {
    /// Sends the store's new orders; `computed`: times at which a step had the first and the last layer of the blocks
    /// that are written through.
    pub(super) fn issue(&mut self, now: &mut Now<'_>, computed: Option<Times>) -> Answer<()> {
        self.mover.issue(now, computed)?;
        self.log_transfers();
        Ok(())
    }

    /// Time of the next arrival or the next computed layer, and its number on this machine.
    pub(super) fn next_arrival(&self) -> Option<(u64, u64)> {
        let arrival = self.mover.arrivals.next_numbered();
        match (arrival, self.next_computed()) {
            (Some(arrival), Some(computed)) => Some(arrival.min(computed)),
            (arrival, computed) => arrival.or(computed),
        }
    }

    /// Handles the arrival of a transfer's first layer, or of all of it.
    pub(super) fn at_arrival(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let computed = self.next_computed();
        if computed.is_some() && computed == self.next_arrival() {
            self.layer_computed(now.ns);
            return Ok(());
        }
        let next = self.mover.arrivals.pop();
        if next.is_some_and(|next| next.is_alarm()) {
            return self.resume(now, now.ns);
        }
        self.catch_up(now, now.ns)?;
        match next {
            Some(arrival) => self.transfer_arrived(now, arrival),
            None => Ok(()),
        }
    }

    /// Handles the arrival of some layers of a transfer over a channel served layer by layer.
    pub(super) fn layer_came(
        &mut self,
        now: &mut Now<'_>,
        transfer: TransferId,
        layers: u64,
    ) -> Answer<()> {
        if !self.loads.buffers.is_empty() {
            self.on_buffer_transfer(transfer);
        }
        let complete = layers == self.mover.config().layers;
        if !(complete || self.mover.layer_came(now, transfer, layers)?) {
            return Ok(());
        }
        self.catch_up(now, now.ns)?;
        if complete {
            self.mover.all_came(now, transfer)?;
        }
        self.transfer_arrived(now, Arrival { transfer, complete })
    }

    fn transfer_arrived(
        &mut self,
        now: &mut Now<'_>,
        Arrival { transfer, complete }: Arrival,
    ) -> Answer<()> {
        let completes = self.mover.transfer(transfer).completes();
        if let (true, Some(handover)) = (complete, completes) {
            self.kv_received(now, handover)?;
        }
        if complete {
            self.hop_left(now, transfer)?;
        }
        if complete {
            self.mover.complete(now, transfer)?;
        } else {
            self.mover.first_layer(now, transfer)?;
        }
        self.log_transfers();
        let mut n = 0;
        while let Some(watcher) = self.mover.watcher(transfer, n) {
            match watcher {
                Watcher::Loading(id, number) => {
                    self.on_load_transfer(id, number, transfer, complete, now.ns);
                }
                Watcher::Times if complete => self.times_settled(now, transfer)?,
                Watcher::Step if complete => self.on_step_transfer(now, transfer)?,
                Watcher::HandOverTarget(id) if complete => self.on_freed(id, now.ns),
                Watcher::Step | Watcher::Times | Watcher::HandOverTarget(_) => {}
            }
            n += 1;
        }
        if complete {
            self.mover.forget(transfer);
        }
        self.resume(now, now.ns)
    }

    /// Sends what can be sent now, and composes a step as soon as possible. `seen_ns` as in [`Replica::wake`].
    pub(super) fn resume(&mut self, now: &mut Now<'_>, seen_ns: u64) -> Answer<()> {
        self.issue(now, None)?;
        if !self.loads.rests.is_empty() {
            self.load_rests(now)?;
        }
        self.arrivals.refused = false;
        if self.has_waiting() {
            self.wake(now, seen_ns)?;
        }
        Ok(())
    }

    // -- writing through

    /// True if the write policy of the GPU's edge acts on computed blocks.
    pub(super) fn writes_at_commit(&self) -> bool {
        self.mover.writes.gpu_policy().is_at_commit()
    }

    /// Copies down the blocks that a request's step has computed and shared.
    pub(super) fn write_committed(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        blocks: BlockRange,
    ) -> Answer<()> {
        let lease = self.requests[slot].lease;
        match now.store.tiered() {
            Some(tree) => self.mover.write_committed(tree, lease, blocks, now.ns),
            None => Ok(()),
        }
    }
}
