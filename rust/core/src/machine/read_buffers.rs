//! Read buffers: how far loading may run ahead of the step that computes on what it brings (the rules of
//! `spec/batch.py` and `spec/mover.py`).

use super::loading::LoadingId;
use super::Replica;
use crate::transfers::TransferId;

/// The layers of one step as they are computed: each frees a read buffer of every load it needed.
#[derive(Clone, Debug)]
pub(super) struct ReadBuffers {
    loads: Vec<TransferId>,
    compute_ns: u64,
    computed: u64,
    /// Since when, and from which layer on, the step has computed without a stall.
    since: (u64, u64),
    /// When the layer that is being computed ends, and its number among this machine's transfers.
    at_work: Option<(u64, u64)>,
}

impl Replica {
    /// Whether loads come only as far as read buffers are free; channels are then served layer by layer.
    pub(super) fn reads_are_buffered(&self) -> bool {
        self.mover.config().read_buffer_layers.is_some()
    }

    /// Lets the loads of the composed step come as far as read buffers are free, from its begin on.
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

    /// Lets all layers of a load come that no step will compute on: its request was aborted.
    pub(super) fn load_all(&mut self, id: LoadingId, now_ns: u64) {
        if !self.reads_are_buffered() {
            return;
        }
        let mover = &self.mover;
        for &transfer in &self.loads[id].transfers {
            mover.allow(transfer, mover.config().layers, now_ns);
        }
    }

    /// A layer of a transfer is there: steps that need it may compute it.
    pub(super) fn on_buffer_transfer(&mut self, transfer: TransferId) {
        for at in 0..self.loads.buffers.len() {
            let buffers = &self.loads.buffers[at];
            if buffers.at_work.is_none() && buffers.loads.contains(&transfer) {
                self.compute_layer(at);
            }
        }
    }

    /// Computes a step's next layer once all its loads have brought it.
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
        buffers.at_work = Some((end_ns, mover.take_number()));
    }

    /// When the next layer of a step is computed, and its number among this machine's transfers.
    pub(super) fn next_computed(&self) -> Option<(u64, u64)> {
        self.loads
            .buffers
            .iter()
            .filter_map(|one| one.at_work)
            .min()
    }

    /// A layer of a step has been computed: its buffers are free.
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
