//! A request between admission and its first step: it waits for free blocks and for KV (the rules of
//! `spec/scheduler.py`).

use super::admitted::{Admission, LoadingId};
use super::{Now, Replica, Slot};
use crate::store::{Answer, MoveId};
use crate::transfers::{TransferId, Watcher};

impl Replica {
    /// Makes an admitted request wait for its moves; returns its index.
    pub(super) fn load(&mut self, slot: Slot, admission: Admission, now_ns: u64) -> LoadingId {
        let mover = &mut self.mover;
        let mut loading = self.loads.start(slot);
        let in_flight = |id: &&MoveId| mover.in_flight(**id).is_some();
        loading.freeing_moves = admission
            .freeing_moves
            .iter()
            .filter(in_flight)
            .copied()
            .collect();
        loading.await_loads(mover, &admission.loads, now_ns);
        loading.admission = admission;
        let id = self.loads.slots.take();
        let watcher = Watcher::Loading(id, loading.number);
        let both = loading.freeing_moves.iter().chain(&loading.waits);
        for (n, &awaited) in both.clone().enumerate() {
            if both.clone().take(n).all(|&other| other != awaited) {
                if let Some(transfer) = mover.in_flight(awaited) {
                    mover.watch(transfer, watcher);
                }
            }
        }
        if loading.admission.rest.is_some() {
            self.loads.rests.push(id);
        }
        self.loads[id] = loading;
        id
    }

    /// Loads more of the requests whose blocks wait for space, as far as there is space now.
    pub(super) fn load_rests(&mut self, now: &mut Now<'_>) -> Answer<()> {
        for id in std::mem::take(&mut self.loads.rests) {
            let mut admission = std::mem::take(&mut self.loads[id].admission);
            let ordered = admission.loads.len();
            let request = self.requests[self.loads[id].slot].arrival.request;
            self.load_rest(now, request, &mut admission)?;
            self.mover.issue(now, None)?;
            let (loading, mover) = (&mut self.loads[id], &mut self.mover);
            let known = loading.waits.len();
            loading.await_loads(mover, &admission.loads[ordered..], now.ns);
            let watcher = Watcher::Loading(id, loading.number);
            for &awaited in &loading.waits[known..] {
                if let Some(transfer) = mover.in_flight(awaited) {
                    mover.watch(transfer, watcher);
                }
            }
            loading.admission = admission;
            if loading.admission.rest.is_some() {
                self.loads.rests.push(id);
            } else if !loading.waits() {
                self.loading_ended(id, now.ns);
            }
            self.log_transfers();
        }
        Ok(())
    }

    /// Handles an arrival that a loading request waits for: a transfer's first layer, or all of it.
    pub(super) fn on_load_transfer(
        &mut self,
        id: LoadingId,
        number: u64,
        transfer: TransferId,
        complete: bool,
        now_ns: u64,
    ) {
        let mover = &self.mover;
        let loading = &mut self.loads[id];
        if loading.number != number || !loading.waits() {
            return;
        }
        let moved = mover.transfer(transfer).id;
        if complete && loading.freeing_moves.contains(&moved) {
            loading.freeing_moves.retain(|&other| other != moved);
            loading.freed_end_ns = now_ns;
        }
        if loading.waits.contains(&moved) && (complete || mover.config().layer_pipelining) {
            loading.waits.retain(|&other| other != moved);
            let source = loading.source(moved);
            loading.ends_ns[source] = now_ns;
            let layer = if complete {
                mover.config().layers - 1
            } else {
                0
            };
            loading.last[source] = (transfer, layer);
        }
        if !loading.waits() {
            self.loading_ended(id, now_ns);
        }
    }

    fn loading_ended(&mut self, id: LoadingId, now_ns: u64) {
        self.charge_loading(id, now_ns);
        self.loads.waiting -= 1;
        self.loads.loaded.push_back(id);
    }

    /// Splits the wait since admission among free blocks and tiers, fast to slow; the parts sum to it.
    fn charge_loading(&mut self, id: LoadingId, now_ns: u64) {
        let mover = &self.mover;
        let loading = &self.loads[id];
        let s = &mut self.requests[loading.slot];
        if s.generated.first_token_ns.is_some() {
            return; // readmitted after a preemption: its TTFT is over
        }
        let mut at = s.since_ns.max(loading.freed_end_ns);
        s.ttft.fetch_room_ns += at - s.since_ns;
        for (tier, &end) in loading.ends_ns.iter().enumerate() {
            if end > at {
                // a joined load of another request counts for the tier below the GPU
                s.ttft.fetch_from_ns[tier.max(1)] += end - at;
                let (transfer, layer) = loading.last[tier];
                for (hop, ns) in mover.split_by_hop(transfer, at, end, layer) {
                    s.stalls.from_ns[hop] += ns;
                }
                at = end;
            }
        }
        s.ttft.fetch_room_ns += now_ns - at; // blocks that waited for space were loaded by others
        s.since_ns = now_ns;
    }

    /// Earliest end of a step that starts at `start_ns` and needs this KV layer by layer.
    pub(super) fn late_until(&mut self, id: LoadingId, start_ns: u64, compute_ns: u64) -> u64 {
        let mover = &self.mover;
        let loading = &mut self.loads[id];
        let mut end = start_ns + compute_ns;
        for &transfer in &loading.transfers {
            if let Some(latest) = mover.latest_layer(transfer, start_ns, compute_ns) {
                if latest.end_ns > end {
                    end = latest.end_ns;
                    loading.latest = Some((transfer, latest.layer, latest.arrival_ns));
                }
            }
        }
        end
    }

    /// True if KV of a loaded request is still arriving: layers after the first layer.
    pub(super) fn still_comes(&self, id: LoadingId) -> bool {
        let mover = &self.mover;
        let mut transfers = self.loads[id].transfers.iter();
        transfers.any(|&transfer| mover.in_flight(mover.transfer(transfer).id) == Some(transfer))
    }

    /// Charges the excess time of a step to the slowest tier that a request reads from.
    pub(super) fn charge_stall(&mut self, id: LoadingId, stall_ns: u64) {
        let (mover, loading) = (&self.mover, &self.loads[id]);
        let s = &mut self.requests[loading.slot];
        if s.generated.first_token_ns.is_some() {
            return;
        }
        s.ttft.fetch_from_ns[loading.slowest_source()] += stall_ns;
        s.since_ns += stall_ns;
        if let (1.., Some((transfer, layer, arrival))) = (stall_ns, loading.latest) {
            let from_ns = arrival - stall_ns;
            for (hop, ns) in mover.split_by_hop(transfer, from_ns, arrival, layer) {
                s.stalls.from_ns[hop] += ns;
            }
        }
    }

    /// Removes the loading state of a request.
    pub(super) fn loading_over(&mut self, id: LoadingId) {
        let loading = self.loads.slots.remove(id);
        let mover = &mut self.mover;
        for transfer in loading.transfers {
            mover.forget(transfer);
        }
    }
}
