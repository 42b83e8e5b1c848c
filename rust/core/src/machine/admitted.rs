//! Requests between admission and their first step: their blocks, and the moves that they wait for.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::request::MOST_TIERS;
use super::Slot;
use crate::slab::Slab;
use crate::store::{HoldId, LeaseId, MoveId, GPU};
use crate::transfers::{Mover, TransferId};

/// Blocks and moves of an admitted request, in addition to its lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    pub reused_blocks: u32,
    pub total_blocks: u64,
    /// Reused blocks by the tier they came from.
    pub from_blocks: [u64; MOST_TIERS],
    /// Number of the reused blocks that came from a shared pool.
    pub pool_blocks: u64,
    /// Moves that free its blocks.
    pub freeing_moves: Vec<MoveId>,
    /// Moves that load its KV.
    pub loads: Vec<PartLoad>,
    /// Reused blocks that no move loads yet.
    pub rest: Option<Rest>,
}

/// Blocks that wait for space on the tiers that they are loaded through.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub lease: LeaseId,
    /// The block after the last one.
    pub end: u32,
    /// Holds that keep the blocks on their tiers.
    pub held: Vec<HeldPart>,
}

/// A path part kept on a tier until its load is ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldPart {
    /// The block after the last one.
    pub end: u32,
    pub tier: usize,
    pub hold: HoldId,
}

/// A move to the GPU, and the tier it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLoad {
    pub id: MoveId,
    pub source: usize,
}

impl Admission {
    /// An admission that reuses `reused_blocks` blocks of the GPU, out of `total_blocks`; `freeing_moves` free the
    /// others.
    pub fn of(reused_blocks: u32, total_blocks: u64, freeing_moves: Vec<MoveId>) -> Self {
        let mut from_blocks = [0; MOST_TIERS];
        from_blocks[GPU] = u64::from(reused_blocks);
        Self {
            reused_blocks,
            total_blocks,
            from_blocks,
            freeing_moves,
            ..Self::default()
        }
    }
}

/// Index of a loading request in [`Loads`].
pub(super) type LoadingId = u32;

/// The moves that an admitted request waits for.
///
/// With layer pipelining, KV counts as present from its first layer on. Layers that arrive later then stall the step,
/// which is charged at its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Loading {
    pub slot: Slot,
    pub admission: Admission,
    pub transfers: Vec<TransferId>,
    /// Its number; its index in the list is reused.
    pub number: u64,
    pub freeing_moves: Vec<MoveId>,
    pub waits: Vec<MoveId>,
    /// End of the last wait for free blocks.
    pub freed_end_ns: u64,
    /// End of the last wait for KV, by tier.
    pub ends_ns: [u64; MOST_TIERS],
    /// Transfer and layer that ended the last wait for KV, by tier.
    pub last: [(TransferId, u64); MOST_TIERS],
    /// Cause of a step's stall: the transfer, its layer, and the arrival of that layer.
    pub latest: Option<(TransferId, u64, u64)>,
}

impl Loading {
    /// True if a move has not ended.
    pub fn waits(&self) -> bool {
        !self.freeing_moves.is_empty() || !self.waits.is_empty() || self.admission.rest.is_some()
    }

    /// Adds the transfers of loads; waits for those that have not begun to arrive.
    pub fn await_loads(&mut self, mover: &mut Mover, loads: &[PartLoad], now_ns: u64) {
        for &PartLoad { id, .. } in loads {
            let Some(transfer) = mover.in_flight(id) else {
                continue;
            };
            mover.keep(transfer);
            self.transfers.push(transfer);
            let sent = mover.sent(transfer);
            let has_come = sent.is_some_and(|sent| sent.first_layer_ns <= now_ns);
            let can_begin = mover.config().layer_pipelining && has_come;
            if !can_begin && !self.waits.contains(&id) {
                self.waits.push(id);
            }
        }
    }

    pub fn source(&self, id: MoveId) -> usize {
        let loads = self.admission.loads.iter().rev();
        let found = loads.clone().find(|load| load.id == id);
        found.map_or(1, |load| load.source)
    }

    pub fn slowest_source(&self) -> usize {
        let sources = self.admission.loads.iter().map(|load| load.source);
        sources.max().unwrap_or(1).max(1)
    }
}

/// The layers of one step as they are computed: each frees a read buffer of every load it needed.
#[derive(Clone, Debug)]
pub(super) struct ReadBuffers {
    pub loads: Vec<TransferId>,
    pub compute_ns: u64,
    pub computed: u64,
    /// Start time and first layer of the current computation without a stall.
    pub since: (u64, u64),
    /// End time of the layer being computed, and its number among this machine's transfers.
    pub at_work: Option<(u64, u64)>,
}

/// Admitted requests that have not joined a step, or that joined it before all their KV arrived.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Number of requests that wait for free blocks or KV.
    pub waiting: usize,
    /// Requests that have their KV, or its first layer, and wait for the next step.
    pub loaded: VecDeque<LoadingId>,
    /// Requests that joined the step while their KV is still arriving.
    pub late: Vec<LoadingId>,
    /// Requests with blocks that wait for space, first come, first served.
    pub rests: Vec<LoadingId>,
    /// Steps whose layers free read buffers as they are computed.
    pub buffers: Vec<ReadBuffers>,
    pub slots: Slab<Loading>,
    pub started: u64,
}

impl Loads {
    /// The slots of all requests that are loading, before or after joining a step.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.taken().map(|id| self[id].slot)
    }

    /// A loading request with the next number.
    pub fn start(&mut self, slot: Slot) -> Loading {
        self.started += 1;
        Loading {
            slot,
            number: self.started,
            ..Loading::default()
        }
    }
}

impl Index<LoadingId> for Loads {
    type Output = Loading;

    fn index(&self, id: LoadingId) -> &Loading {
        &self.slots[id]
    }
}

impl IndexMut<LoadingId> for Loads {
    fn index_mut(&mut self, id: LoadingId) -> &mut Loading {
        &mut self.slots[id]
    }
}
