//! One order on its way: waits for what it depends on, is sent, brings its first layer, arrives.

use super::channel::Transmission;
use super::cross_machine::{Read, Relay};
use super::hop::{Feed, Hop};
use super::layered::JobId;
use super::pages::Carried;
use crate::store::MoveId;

/// A transfer's place among those of its machine.
pub type TransferId = u32;

/// Who wants to hear of a transfer's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// A request that loads, by its place and its number.
    Loading(u32, u64),
    /// The composed step, which waits for room.
    Step,
    /// The composed step, which waits for final times.
    Times,
    /// A request that is handed over to this machine, whose room is being freed.
    HandOverTarget(u32),
}

/// A copy from one tier to the next over one channel.
#[derive(Clone, Debug, Default)]
pub struct Transfer {
    /// The store's move.
    pub id: MoveId,
    /// The tier it is read from.
    pub from: usize,
    /// The tier it is written to.
    pub to: usize,
    /// How much is sent.
    pub blocks: u64,
    /// When a step computed its first and its last layer, where it writes through.
    pub(super) computed: Option<(u64, u64)>,
    /// Which of its edge's channels it takes, where that is on several.
    pub(super) rail: usize,
    /// The hop that brings what this one sends on.
    pub below: Option<TransferId>,
    pub(super) waits: Vec<TransferId>,
    pub(super) dependents: Vec<TransferId>,
    /// Its times, once it is on its channel; [`super::Mover::sent`] where that is served layer by layer.
    pub(super) sent: Option<Transmission>,
    /// Its job there, on a channel served layer by layer.
    pub(super) job: Option<JobId>,
    pub(super) watchers: Vec<Watcher>,
    /// What it is beyond that as a hop of a hand-over.
    pub(super) hop: Option<Box<Hop>>,
    /// What it is beyond that where it reads another machine.
    pub(super) read: Option<Box<Read>>,
    /// Set where it only stands for a transfer of another machine.
    pub(super) relay: Option<Relay>,
    /// What it carries of each layer, where its blocks are of cache groups.
    pub(super) carried: Option<Box<Carried>>,
    /// How many still ask about it: its move, loads, the hop above.
    pub(super) users: u32,
}

impl Transfer {
    /// Whether it brings KV up.
    pub fn comes_up(&self) -> bool {
        self.to < self.from
    }

    /// Whether `after` sends on what this brings, layer by layer.
    pub fn feeds(&self, after: &Self) -> bool {
        self.hop.is_some() || (self.comes_up() && self.to == after.from && after.comes_up())
    }

    /// The hand-over that is complete with it, where it is the last hop of one.
    pub fn completes(&self) -> Option<u32> {
        let hop = self.hop.as_deref()?;
        hop.is_last.then_some(hop.handover)
    }

    /// The hand-over whose source it reads, where it is the first hop of one.
    pub fn reads_source_of(&self) -> Option<u32> {
        let hop = self.hop.as_deref()?;
        hop.is_first.then_some(hop.handover)
    }

    /// The place of the request that leaves this machine's GPU with it, where it is a hop of a hand-over that goes on
    /// elsewhere.
    pub fn leaves(&self) -> Option<u32> {
        self.hop.as_deref()?.leaves
    }

    /// What brings it from elsewhere: a step that computes it, or a hop of another machine.
    pub(super) fn feed(&self) -> Feed {
        match (self.hop.as_deref(), self.read.as_deref()) {
            (Some(hop), _) if hop.awaits > 0 => Feed::Awaited,
            (Some(hop), _) => hop.feed,
            (None, Some(read)) => read.feed,
            (None, None) => Feed::AtHand,
        }
    }

    /// Takes the place of one that has ended, and keeps its allocations.
    pub(super) fn begin(&mut self, id: MoveId, (from, to): (usize, usize), blocks: u64) {
        (self.id, self.from, self.to, self.blocks) = (id, from, to, blocks);
        (self.computed, self.below, self.sent) = (None, None, None);
        (self.job, self.rail) = (None, 0);
        self.waits.clear();
        self.dependents.clear();
        self.watchers.clear();
        (self.hop, self.read, self.relay) = (None, None, None);
        self.carried = None;
        self.users = 1;
    }
}
