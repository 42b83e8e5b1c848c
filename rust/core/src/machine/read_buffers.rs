//! Read buffers: the bound on loading layers before the step that uses them (the rules of `spec/batch.py` and
//! `spec/mover.py`).

use super::admitted::{LoadingId, ReadBuffers};
use super::Replica;
use crate::transfers::TransferId;

impl Replica {
    /// True if loads are limited by free read buffers; channels are then served layer by layer.
    pub(super) fn reads_are_buffered(&self) -> bool {
        self.mover.config().read_buffer_layers.is_some()
    }

    /// Limits the loads of the composed step to the free read buffers, from the start of the step on.
    pub(super) fn buffer_reads(&mut self, begin_ns: u64) {
        let mover = &mut self.mover;
        let mut loads: Vec<TransferId> = Vec::new();
        let late = self.loads.late.iter();
        for &load in late.flat_map(|&id| &self.loads[id].transfers) {
            if !loads.contains(&load) {
                loads.push(load);
                mover.keep(load);
                mover.report_all_layers(load);
            }
        }
        self.loads.buffers.push(ReadBuffers {
            loads,
            compute_ns: self.batch.step_ns(),
            computed: 0,
            since: (begin_ns, 0),
            at_work: None,
        });
        self.compute_layer(self.loads.buffers.len() - 1);
    }

    /// Allows all layers of a load that no step will use: its request was aborted.
    pub(super) fn load_all(&mut self, id: LoadingId, now_ns: u64) {
        if !self.reads_are_buffered() {
            return;
        }
        let mover = &self.mover;
        for &transfer in &self.loads[id].transfers {
            mover.allow(transfer, mover.config().layers, now_ns);
        }
    }

    /// Handles the arrival of a layer of a transfer: steps that need it may compute it.
    pub(super) fn on_buffer_transfer(&mut self, transfer: TransferId) {
        for at in 0..self.loads.buffers.len() {
            let buffers = &self.loads.buffers[at];
            if buffers.at_work.is_none() && buffers.loads.contains(&transfer) {
                self.compute_layer(at);
            }
        }
    }

    /// Starts computing a step's next layer once all its loads have brought the layer.
    fn compute_layer(&mut self, at: usize) {
        let (buffers, mover) = (&mut self.loads.buffers[at], &mut self.mover);
        let (layer, layers) = (buffers.computed, mover.config().layers);
        let mut came_ns = 0;
        for &load in &buffers.loads {
            let Some(arrival_ns) = mover.arrival_ns(mover.transfer(load), layer) else {
                return;
            };
            came_ns = came_ns.max(arrival_ns);
        }
        let compute_ns = buffers.compute_ns;
        let spans_ns = |computed: u64| (compute_ns * computed).div_ceil(layers);
        let (since_ns, first) = buffers.since;
        if came_ns > since_ns + spans_ns(layer - first) {
            buffers.since = (came_ns, layer);
        }
        let (since_ns, first) = buffers.since;
        let end_ns = since_ns + spans_ns(layer + 1 - first);
        buffers.at_work = Some((end_ns, mover.arrivals.take_number()));
    }

    /// Time at which the next layer of a step is computed, and its number among this machine's transfers.
    pub(super) fn next_computed(&self) -> Option<(u64, u64)> {
        self.loads
            .buffers
            .iter()
            .filter_map(|one| one.at_work)
            .min()
    }

    /// Ends a layer of a step: its buffers are free.
    pub(super) fn layer_computed(&mut self, now_ns: u64) {
        let next = self.next_computed();
        let at = self
            .loads
            .buffers
            .iter()
            .position(|one| one.at_work == next);
        let Some(at) = at else { return };
        let mover = &mut self.mover;
        let buffers = &mut self.loads.buffers[at];
        buffers.at_work = None;
        buffers.computed += 1;
        let prefetch_state = mover.config().read_buffer_layers.unwrap_or(0);
        for &load in &buffers.loads {
            mover.allow(load, buffers.computed + prefetch_state, now_ns);
        }
        if buffers.computed < mover.config().layers {
            self.compute_layer(at);
        } else {
            for load in self.loads.buffers.remove(at).loads {
                mover.forget(load);
            }
        }
    }
}
