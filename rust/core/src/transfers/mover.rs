//! A machine's transfers: sent when their dependencies have arrived, fed hop by hop, made ready at their
//! arrival.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block_form::BlockForm;
use super::channel::{Channel, Job, Transmission};
use super::completion::OnComplete;
use super::copy_cost::{CopyCost, CopyRates};
use super::cross_machine::Source;
use super::lane::Lane;
use super::pages::LayerPages;
use super::peers::Now;
use super::plugins::WritePlugin;
use super::prefetch_state::{PrefetchConfig, PrefetchState};
use super::transfer::{Transfer, TransferId, Watcher};
use super::write::WritePolicy;
use crate::slab::Slab;
use crate::store::{Answer, MoveId, PairHasher};

/// A channel, which other machines and Python may use too.
pub type SharedChannel = Arc<Mutex<Channel>>;

/// Settings shared by all transfers of a machine.
#[derive(Clone, Debug, Default)]
pub struct MoverConfig {
    /// Number of the machine.
    pub machine: u32,
    /// Tier number that stands for another machine.
    pub remote: usize,
    /// Bytes of one block on the GPU, and on the wire between GPUs.
    pub block_bytes: u64,
    /// By tier the form of its blocks, the GPU's of what another GPU sends; empty: all are the same.
    pub forms: Vec<BlockForm>,
    /// Layers of the model.
    pub layers: u64,
    /// True if KV is used, and sent on, layer by layer.
    pub layer_pipelining: bool,
    /// Layers of each load that may be on the GPU before they are computed; `None`: all of them.
    pub read_buffer_layers: Option<u64>,
    /// The write policy of each edge, by its upper tier.
    pub writes: Vec<WritePolicy>,
    /// True for each edge, by its upper tier, whose loads drop the lower copies.
    pub exclusive: Vec<bool>,
    /// Cost of GPU copies for the steps; `None`: nothing.
    pub copies: Option<CopyRates>,
    /// Limits of prefetching; `None`: no prefetching.
    pub prefetch_state: Option<PrefetchConfig>,
    /// Number of the shared pool that takes the blocks written down from the GPU.
    pub pool: Option<u32>,
    /// Pages of each layer, if blocks belong to cache groups; `None`: a page of every layer.
    pub pages: Option<LayerPages>,
}

/// The channels between a tier and the next one down.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Channels that write KV.
    pub down: Lane,
    /// Channels that read KV.
    pub up: Lane,
}

/// Locks a mutex that only one thread uses at a time.
pub(super) fn locked(channel: &SharedChannel) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Transfer id that stands for an alarm among the arrivals: the time until which a request waits for its
/// blocks.
const ALARM: TransferId = TransferId::MAX;

/// An arrival: a transfer's first layer, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The transfer.
    pub transfer: TransferId,
    /// True if all of it has arrived.
    pub complete: bool,
}

impl Arrival {
    /// Returns true for an alarm: the end of a request's wait for its blocks.
    pub fn is_alarm(&self) -> bool {
        self.transfer == ALARM
    }
}

/// A transmission as it was queued, for `--record all`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRecord {
    pub edge: (usize, usize),
    pub blocks: u64,
    pub sent: Transmission,
}

/// Sends the orders of a machine's store over its channels, and notifies the store of arrivals.
#[derive(Debug, Default)]
pub struct Mover {
    pub(super) config: MoverConfig,
    pub(super) edges: Vec<Edge>,
    pub(super) transfers: Slab<Transfer>,
    pub(super) in_flight: HashMap<MoveId, TransferId, BuildHasherDefault<PairHasher>>,
    /// (time, number, transfer, true if complete).
    pub(super) arrivals: BinaryHeap<Reverse<(u64, u64, TransferId, bool)>>,
    pub(super) scheduled: u64,
    pub(super) on_complete: HashMap<MoveId, OnComplete, BuildHasherDefault<PairHasher>>,
    /// Reads by move from another machine, until the move is sent.
    pub(super) reads: HashMap<MoveId, Source, BuildHasherDefault<PairHasher>>,
    /// Copies in flight that the next step waits for.
    pub(crate) written: Vec<MoveId>,
    /// By tier, bytes that transfers have read from it, and written to it.
    pub moved_bytes: Vec<(u64, u64)>,
    /// Bytes by edge (from tier, to tier) that carried any.
    pub edge_bytes: Vec<((usize, usize), u64)>,
    /// Cost of copies that the steps have not paid yet.
    pub(crate) copies: Option<CopyCost>,
    /// Prefetched blocks, if prefetching is on.
    pub prefetch_state: Option<PrefetchState>,
    /// Plug-ins that decide under [`WritePolicy::Plugin`], by the edge's upper tier.
    pub writers: Vec<Option<Box<dyn WritePlugin>>>,
    pub(crate) log: Option<Vec<SentRecord>>,
    /// True if no move was in flight at some moment ([`Mover::take_drained`]).
    pub(super) drained: bool,
}

impl Mover {
    /// Creates the mover of a machine with these edges, from the GPU down.
    pub fn new(config: MoverConfig, edges: Vec<Edge>) -> Self {
        // Hand-overs may cross the memory below a GPU without an edge.
        let tiers = edges.len().max(1) + 1;
        Self {
            copies: config.copies.map(CopyCost::new),
            prefetch_state: config.prefetch_state.map(PrefetchState::new),
            config,
            edges,
            moved_bytes: vec![(0, 0); tiers],
            ..Self::default()
        }
    }

    /// Returns the settings of its transfers.
    pub fn config(&self) -> &MoverConfig {
        &self.config
    }

    /// Returns a transfer that is in flight or still in use.
    pub fn transfer(&self, id: TransferId) -> &Transfer {
        &self.transfers[id]
    }

    /// Returns the transfer of a move that has not finished.
    pub fn in_flight(&self, id: MoveId) -> Option<TransferId> {
        self.in_flight.get(&id).copied()
    }

    /// Returns the transfers of the unfinished ones of these moves, without duplicates.
    pub(super) fn all_in_flight(&self, moves: &[MoveId]) -> Vec<TransferId> {
        let mut found = Vec::new();
        for transfer in moves.iter().filter_map(|&id| self.in_flight(id)) {
            if !found.contains(&transfer) {
                found.push(transfer);
            }
        }
        found
    }

    /// Creates a transfer of `blocks` blocks along a route.
    pub(super) fn begin(&mut self, id: MoveId, route: (usize, usize), blocks: u64) -> TransferId {
        let slot = self.transfers.take();
        self.transfers[slot].begin(id, route, blocks);
        slot
    }

    /// Returns true if any move has not finished.
    pub fn is_moving(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the channel of a transfer, locked.
    pub(super) fn channel_of<'a>(&'a self, transfer: &'a Transfer) -> MutexGuard<'a, Channel> {
        locked(self.shared_channel_of(transfer))
    }

    /// Returns the channel of a transfer, to share.
    pub(super) fn shared_channel_of<'a>(&'a self, transfer: &'a Transfer) -> &'a SharedChannel {
        match (transfer.hop.as_deref(), transfer.read.as_deref()) {
            (Some(hop), _) => &hop.channel,
            (None, Some(read)) => &read.wire,
            (None, None) => {
                let lane = self.lane((transfer.from, transfer.to));
                lane.at(transfer.rail)
            }
        }
    }

    /// Returns true if a transfer's channel is served layer by layer.
    pub(super) fn goes_by_layer(&self, id: TransferId) -> bool {
        self.channel_of(self.transfer(id)).is_layered()
    }

    /// Returns the lane of an edge. What is marked on the slowest tier by hand, from nowhere, takes the last one.
    pub(super) fn lane(&self, (from, to): (usize, usize)) -> &Lane {
        let edge = &self.edges[from.min(to).min(self.edges.len() - 1)];
        if from < to {
            &edge.down
        } else {
            &edge.up
        }
    }

    /// Returns the first channel of an edge, locked.
    pub fn channel(&self, edge: (usize, usize)) -> MutexGuard<'_, Channel> {
        locked(self.lane(edge).assigned())
    }

    /// Returns the channels of its machine's edges, from the GPU down.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the number of its machine's tiers.
    pub fn tiers(&self) -> usize {
        self.edges.len() + 1
    }

    /// Returns the channels between a tier and the one above.
    pub fn edge(&self, lower: usize) -> &Edge {
        &self.edges[lower - 1]
    }

    /// Returns the job of `blocks` blocks between two GPUs.
    pub fn job(&self, blocks: u64) -> Job {
        Job {
            size_bytes: blocks * self.config.block_bytes,
            pieces: blocks * self.config.layers,
            layers: self.config.layers,
            coding_ns: 0,
        }
    }

    /// Returns the job of `blocks` blocks along a route: they cross in the form of its lower tier; another machine's
    /// are those of its memory.
    pub(super) fn job_along(&self, route: (usize, usize), blocks: u64) -> Job {
        self.job(blocks)
            .along(&self.config.forms, route, self.config.remote)
    }

    // -- users of transfers

    /// Keeps a transfer beyond its end.
    pub fn keep(&mut self, id: TransferId) {
        self.transfers[id].users += 1;
    }

    /// Ends a [`Mover::keep`]; the last one frees the transfer's slot.
    pub fn forget(&mut self, id: TransferId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let transfer = &mut self.transfers[id];
            transfer.users -= 1;
            if transfer.users > 0 {
                return;
            }
            next = transfer.below.take();
            if let Some(job) = transfer.job.take() {
                let transfer = &self.transfers[id];
                self.channel_of(transfer).forget(job);
            }
            self.transfers.free(id);
        }
    }

    /// Notifies a watcher of a transfer's first layer and its end.
    pub fn watch(&mut self, id: TransferId, watcher: Watcher) {
        self.transfers[id].watchers.push(watcher);
    }

    /// Returns the nth watcher of a transfer.
    pub fn watcher(&self, id: TransferId, n: usize) -> Option<Watcher> {
        self.transfers[id].watchers.get(n).copied()
    }

    /// Schedules an alarm among the arrivals.
    pub fn set_alarm(&mut self, time_ns: u64) {
        self.schedule(time_ns, ALARM, true);
    }

    /// Schedules the arrival of a transfer's first layer, or of all of it.
    pub(super) fn schedule(&mut self, time_ns: u64, id: TransferId, complete: bool) {
        let number = self.take_number();
        self.arrivals.push(Reverse((time_ns, number, id, complete)));
    }

    /// Records on each channel the bytes that a step uses as they arrive, by these transfers and their lower
    /// hops.
    pub fn note_hiding(&self, transfers: impl Iterator<Item = TransferId>, compute_ns: u64) {
        let mut loads: Vec<(&SharedChannel, u64)> = Vec::new();
        let mut add = |channel, size| match loads
            .iter_mut()
            .find(|(other, _)| Arc::ptr_eq(other, channel))
        {
            Some((_, sum)) => *sum += size,
            None => loads.push((channel, size)),
        };
        for id in transfers {
            let mut next = Some(id);
            while let Some(id) = next {
                let hop = self.transfer(id);
                add(self.shared_channel_of(hop), self.job_of(hop).size_bytes);
                for far in hop.read.iter().flat_map(|read| &read.below) {
                    add(&far.channel, far.size_bytes);
                }
                next = hop.below;
            }
        }
        for (channel, size) in loads {
            locked(channel).demand.hide(size, compute_ns);
        }
    }

    // -- arrivals

    /// Returns the time and the number of the next arrival; `None` if there is none.
    pub fn next_numbered(&self) -> Option<(u64, u64)> {
        self.arrivals.peek().map(|next| (next.0 .0, next.0 .1))
    }

    /// Returns the transfer of the next arrival, and true if all of it has arrived then.
    pub fn peek_arrival(&self) -> Option<(&Transfer, bool)> {
        let &Reverse((_, _, id, complete)) = self.arrivals.peek()?;
        (id != ALARM).then(|| (self.transfer(id), complete))
    }

    /// Takes the next number of the machine's events, for an event other than an arrival.
    pub fn take_number(&mut self) -> u64 {
        self.scheduled += 1;
        self.scheduled - 1
    }

    /// Removes and returns the next arrival.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        let Reverse((_, _, transfer, complete)) = self.arrivals.pop()?;
        Some(Arrival { transfer, complete })
    }

    /// Handles the arrival of a transfer's first layer: launches the transfers that it feeds.
    pub fn first_layer(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        for dependent in self.transfers[id].dependents.clone() {
            if self.transfers[dependent].job.is_none() {
                self.launch(now, dependent)?;
            }
        }
        Ok(())
    }

    /// Handles the arrival of a whole transfer: notifies the store and launches the transfers that waited for
    /// it. The caller then notifies its watchers and calls [`Mover::forget`].
    pub fn complete(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let transfer = &mut self.transfers[id];
        let dependents = std::mem::take(&mut transfer.dependents);
        if transfer.hop.is_none() {
            let written = match now.store.tiered() {
                Some(tree) => self.paths_written(tree, id)?,
                None => Vec::new(),
            };
            self.move_ended(now, id)?;
            for path in written {
                self.put(now, path)?;
            }
        }
        self.source_read(now, id)?;
        for dependent in dependents {
            if self.transfers[dependent].job.is_some() {
                self.feed_on(dependent, self.config.layers, now.ns);
                continue;
            }
            let waits = &mut self.transfers[dependent].waits;
            waits.retain(|&other| other != id);
            self.launch(now, dependent)?;
        }
        Ok(())
    }
}
