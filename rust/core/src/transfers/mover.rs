//! A machine's transfers, with the channels of its edges: what other files send, feed and complete.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, MutexGuard};

use super::arrivals::Arrivals;
use super::block_form::BlockForm;
use super::channel::{locked, Channel, SharedChannel};
use super::completion::{Completions, TierCopy};
use super::copy_cost::{CopyCost, CopyRates};
use super::handles::TransferId;
use super::job::Job;
use super::lane::Lane;
use super::pages::LayerPages;
use super::prefetch_state::{PrefetchConfig, PrefetchState};
use super::remote_read::Source;
use super::traffic::Traffic;
use super::transfer::{Transfer, Watcher};
use super::write::{WritePolicy, Writes};
use crate::ids::BlockRange;
use crate::slab::Slab;
use crate::store::{Answer, LeaseId, MoveId, PairHasher, Store, GPU};
use crate::tiers::Route;

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

/// Sends the orders of a machine's store over its channels, and notifies the store of arrivals.
#[derive(Debug, Default)]
pub struct Mover {
    pub(super) config: MoverConfig,
    pub(super) edges: Vec<Edge>,
    pub(super) transfers: Slab<Transfer>,
    pub(super) in_flight: HashMap<MoveId, TransferId, BuildHasherDefault<PairHasher>>,
    /// Its events, in order.
    pub arrivals: Arrivals,
    /// Actions that run once moves have finished.
    pub completions: Completions,
    /// Reads by move from another machine, until the move is sent.
    pub(super) reads: HashMap<MoveId, Source, BuildHasherDefault<PairHasher>>,
    /// The bytes carried so far.
    pub traffic: Traffic,
    /// Cost of copies that the steps have not paid yet.
    pub(crate) copies: Option<CopyCost>,
    /// Prefetched blocks, if prefetching is on.
    pub prefetch_state: Option<PrefetchState>,
    /// The write policies of its edges.
    pub writes: Writes,
}

impl Mover {
    /// Creates the mover of a machine with these edges, from the GPU down.
    pub fn new(mut config: MoverConfig, edges: Vec<Edge>) -> Self {
        // Hand-overs may cross the memory below a GPU without an edge.
        let tiers = edges.len().max(1) + 1;
        Self {
            copies: config.copies.map(CopyCost::new),
            prefetch_state: config.prefetch_state.map(PrefetchState::new),
            writes: Writes::new(std::mem::take(&mut config.writes)),
            config,
            edges,
            traffic: Traffic::new(tiers),
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
    pub(super) fn begin(&mut self, id: MoveId, route: Route, blocks: u64) -> TransferId {
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
                let lane = self.lane(transfer.route());
                lane.at(transfer.rail)
            }
        }
    }

    /// Returns true if a transfer's channel is served layer by layer.
    pub(super) fn goes_by_layer(&self, id: TransferId) -> bool {
        self.channel_of(self.transfer(id)).is_layered()
    }

    /// Returns the lane of an edge. What is marked on the slowest tier by hand, from nowhere, takes the last one.
    pub(super) fn lane(&self, route: Route) -> &Lane {
        let upper = route.from.min(route.to);
        let edge = &self.edges[upper.min(self.edges.len() - 1)];
        if route.from < route.to {
            &edge.down
        } else {
            &edge.up
        }
    }

    /// Returns the first channel of an edge, locked.
    pub fn channel(&self, route: Route) -> MutexGuard<'_, Channel> {
        locked(self.lane(route).assigned())
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
    pub(super) fn job_along(&self, route: Route, blocks: u64) -> Job {
        self.job(blocks)
            .along(&self.config.forms, route, self.config.remote)
    }

    /// Returns the job of a transfer.
    pub(super) fn job_of(&self, transfer: &Transfer) -> Job {
        match (&transfer.carried, &self.config.pages) {
            (Some(carried), Some(pages)) => pages.job(carried, self.config.layers),
            _ => self.job_along(transfer.route(), transfer.blocks),
        }
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

    // -- moves

    /// Returns the transfer of the next arrival, and true if all of it has arrived then.
    pub fn next_arrival(&self) -> Option<(&Transfer, bool)> {
        let next = self.arrivals.peek().filter(|next| !next.is_alarm())?;
        Some((self.transfer(next.transfer), next.complete))
    }

    /// Returns the number of moves in flight.
    pub fn open_moves(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the moves that have not finished, in ascending order.
    pub fn unfinished_moves(&self) -> Vec<MoveId> {
        let mut moves: Vec<MoveId> = self.in_flight.keys().copied().collect();
        moves.sort_unstable();
        moves
    }

    /// Sets the lent blocks that a move from another machine reads.
    pub fn reads(&mut self, id: MoveId, source: Source) {
        self.reads.insert(id, source);
    }

    /// Returns true if a transfer brings blocks that are new to its machine's lower tiers.
    pub(super) fn is_written(&self, id: TransferId) -> bool {
        let transfer = &self.transfers[id];
        transfer.to > GPU && (!transfer.comes_up() || transfer.from == self.config.remote)
    }

    /// Drops a lower copy of a request's blocks once a move has loaded them to the tier above, if the edge is
    /// exclusive.
    pub fn drop_on_complete(&mut self, id: MoveId, copy: TierCopy) {
        if self.config.exclusive[copy.tier - 1] {
            self.completions.drop_copy(id, copy);
        }
    }

    /// Counts blocks that a move prefetches for a request.
    pub fn note_prefetch(&mut self, id: MoveId, request: u32, blocks: u64) {
        if let Some(prefetch_state) = &mut self.prefetch_state {
            prefetch_state.leaves(blocks);
            self.completions.count_prefetch(id, request, blocks);
        }
    }

    /// Copies down a lease's blocks that were computed and are shared; the next step may wait for them.
    pub fn write_committed(
        &mut self,
        tree: &mut Store,
        lease: LeaseId,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<()> {
        let awaited = self.writes.write_committed(tree, lease, blocks, now_ns)?;
        if let Some(id) = awaited {
            self.completions.delay_step(id);
        }
        Ok(())
    }

    /// Records if no move is in flight as a request finishes; discards the earlier record.
    pub(crate) fn request_leaves(&mut self) {
        self.completions.request_finished(self.in_flight.is_empty());
    }
}
