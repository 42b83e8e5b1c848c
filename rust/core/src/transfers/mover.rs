//! A machine's transfers: sent when what they wait for is there, fed hop by hop, made true as they arrive.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// What all transfers of a machine share.
#[derive(Clone, Debug, Default)]
pub struct MoverConfig {
    /// The number of the machine.
    pub machine: u32,
    /// The tier's number that stands for another machine.
    pub remote: usize,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Layers of the model.
    pub layers: u64,
    /// Whether KV is used, and sent on, layer by layer.
    pub layer_pipelining: bool,
    /// Layers of each load to the GPU that may lie there ahead of their computation; `None`: all of them.
    pub read_buffer_layers: Option<u64>,
    /// The write policy of each edge, by its upper tier.
    pub writes: Vec<WritePolicy>,
    /// Of each edge, by its upper tier: whether a block that has come up leaves the lower tier.
    pub exclusive: Vec<bool>,
    /// What copies to and from the GPU cost the steps; `None`: nothing.
    pub copies: Option<CopyRates>,
    /// How much may come up ahead of its request; `None`: nothing does.
    pub prefetch_state: Option<PrefetchConfig>,
    /// The number of the shared pool that takes what is written down from the GPU.
    pub pool: Option<u32>,
    /// What blocks are of, where they are of cache groups; `None`: a page of every layer.
    pub pages: Option<LayerPages>,
}

/// The channels between a tier and the next one down.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Over which KV is written.
    pub down: Lane,
    /// Over which KV is read.
    pub up: Lane,
}

/// Locks what one thread alone uses at a time.
pub(super) fn locked(channel: &SharedChannel) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In place of a transfer among what arrives: the time until which a request stays for its blocks.
const ALARM: TransferId = TransferId::MAX;

/// What has arrived: a transfer's first layer, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What it is of.
    pub transfer: TransferId,
    /// Whether all of it is there.
    pub complete: bool,
}

impl Arrival {
    /// Whether nothing has arrived: a time is up until which a request stayed for its blocks.
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

/// Sends what a machine's store decides over its channels, and tells the store what has arrived.
#[derive(Debug, Default)]
pub struct Mover {
    pub(super) config: MoverConfig,
    pub(super) edges: Vec<Edge>,
    pub(super) transfers: Slab<Transfer>,
    pub(super) in_flight: HashMap<MoveId, TransferId, BuildHasherDefault<PairHasher>>,
    /// (time, number, transfer, whether complete).
    pub(super) arrivals: BinaryHeap<Reverse<(u64, u64, TransferId, bool)>>,
    pub(super) scheduled: u64,
    pub(super) on_complete: HashMap<MoveId, OnComplete, BuildHasherDefault<PairHasher>>,
    /// By move from another machine: what it reads there, until it is sent.
    pub(super) reads: HashMap<MoveId, Source, BuildHasherDefault<PairHasher>>,
    /// Copies on their way that the next step waits for.
    pub(crate) written: Vec<MoveId>,
    /// By tier, bytes that transfers have read from it, and written to it.
    pub moved_bytes: Vec<(u64, u64)>,
    /// By edge over which anything was sent, from a tier to a tier: the bytes.
    pub edge_bytes: Vec<((usize, usize), u64)>,
    /// What they have cost the steps so far and not taken.
    pub(crate) copies: Option<CopyCost>,
    /// What comes up ahead of its request, where that is done.
    pub prefetch_state: Option<PrefetchState>,
    /// By the upper tier of its edge, what decides under [`WritePolicy::Plugin`].
    pub writers: Vec<Option<Box<dyn WritePlugin>>>,
    pub(crate) log: Option<Vec<SentRecord>>,
    /// Whether no move was under way at some moment ([`Mover::take_drained`]).
    pub(super) drained: bool,
}

impl Mover {
    /// A mover of a machine with these edges, from the GPU down.
    pub fn new(config: MoverConfig, edges: Vec<Edge>) -> Self {
        // Hand-overs may cross the memory below a GPU alone.
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

    /// What all its transfers share.
    pub fn config(&self) -> &MoverConfig {
        &self.config
    }

    /// A transfer that is on its way, or that someone still asks about.
    pub fn transfer(&self, id: TransferId) -> &Transfer {
        &self.transfers[id]
    }

    /// The transfer of a move that has not ended.
    pub fn in_flight(&self, id: MoveId) -> Option<TransferId> {
        self.in_flight.get(&id).copied()
    }

    /// The transfers of those of these moves that have not ended, each once.
    pub(super) fn all_in_flight(&self, moves: &[MoveId]) -> Vec<TransferId> {
        let mut found = Vec::new();
        for transfer in moves.iter().filter_map(|&id| self.in_flight(id)) {
            if !found.contains(&transfer) {
                found.push(transfer);
            }
        }
        found
    }

    /// Begins a transfer of so many blocks from a tier to another.
    pub(super) fn begin(&mut self, id: MoveId, route: (usize, usize), blocks: u64) -> TransferId {
        let slot = self.transfers.take();
        self.transfers[slot].begin(id, route, blocks);
        slot
    }

    /// Whether any move has not ended.
    pub fn is_moving(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The channel that a transfer takes.
    pub(super) fn channel_of<'a>(&'a self, transfer: &'a Transfer) -> MutexGuard<'a, Channel> {
        locked(self.shared_channel_of(transfer))
    }

    /// The same, for others to keep.
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

    /// Whether a transfer's channel is served layer by layer.
    pub(super) fn goes_by_layer(&self, id: TransferId) -> bool {
        self.channel_of(self.transfer(id)).is_layered()
    }

    /// What carries an edge.
    pub(super) fn lane(&self, (from, to): (usize, usize)) -> &Lane {
        let edge = &self.edges[from.min(to)];
        if from < to {
            &edge.down
        } else {
            &edge.up
        }
    }

    /// The channel that is assigned to an edge.
    pub fn channel(&self, edge: (usize, usize)) -> MutexGuard<'_, Channel> {
        locked(self.lane(edge).assigned())
    }

    /// The channels of its machine's edges, from the GPU down.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// How many tiers its machine has.
    pub fn tiers(&self) -> usize {
        self.edges.len() + 1
    }

    /// The channels between a tier and the one above.
    pub fn edge(&self, lower: usize) -> &Edge {
        &self.edges[lower - 1]
    }

    /// What so many blocks are as a job.
    pub fn job(&self, blocks: u64) -> Job {
        Job {
            size_bytes: blocks * self.config.block_bytes,
            pieces: blocks * self.config.layers,
            layers: self.config.layers,
        }
    }

    // -- who asks about transfers

    /// Keeps a transfer known beyond its end.
    pub fn keep(&mut self, id: TransferId) {
        self.transfers[id].users += 1;
    }

    /// Ends a [`Mover::keep`]; the last one lets its place go.
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

    /// Lets someone hear of a transfer's first layer and its end.
    pub fn watch(&mut self, id: TransferId, watcher: Watcher) {
        self.transfers[id].watchers.push(watcher);
    }

    /// The nth of those who hear of a transfer.
    pub fn watcher(&self, id: TransferId, n: usize) -> Option<Watcher> {
        self.transfers[id].watchers.get(n).copied()
    }

    /// Lets a time stand among what arrives here.
    pub fn set_alarm(&mut self, time_ns: u64) {
        self.schedule(time_ns, ALARM, true);
    }

    /// Lets a transfer's first layer, or all of it, stand among what arrives here.
    pub(super) fn schedule(&mut self, time_ns: u64, id: TransferId, complete: bool) {
        let number = self.take_number();
        self.arrivals.push(Reverse((time_ns, number, id, complete)));
    }

    /// Notes on each channel the bytes that a step uses as they arrive, by these transfers and their lower hops.
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

    /// When something next arrives, and its place among all that was ever sent here; `None` while nothing is on a channel.
    pub fn next_numbered(&self) -> Option<(u64, u64)> {
        self.arrivals.peek().map(|next| (next.0 .0, next.0 .1))
    }

    /// What next arrives: the transfer, and whether all of it is there then.
    pub fn peek_arrival(&self) -> Option<(&Transfer, bool)> {
        let &Reverse((_, _, id, complete)) = self.arrivals.peek()?;
        (id != ALARM).then(|| (self.transfer(id), complete))
    }

    /// Takes the next number of what is sent here, for what happens here by itself.
    pub fn take_number(&mut self) -> u64 {
        self.scheduled += 1;
        self.scheduled - 1
    }

    /// What arrives next, taken off the list.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        let Reverse((_, _, transfer, complete)) = self.arrivals.pop()?;
        Some(Arrival { transfer, complete })
    }

    /// A transfer's first layer is there: what it feeds can go.
    pub fn first_layer(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        for dependent in self.transfers[id].dependents.clone() {
            if self.transfers[dependent].job.is_none() {
                self.launch(now, dependent)?;
            }
        }
        Ok(())
    }

    /// All of a transfer is there: the store is told, and what waited for it goes. Then those who watch it are to
    /// be told, and it is to be forgotten.
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
