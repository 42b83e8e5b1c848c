//! One order in flight: it waits for its dependencies, is sent, brings its first layer, arrives.

use super::feed::Feed;
use super::handles::{JobId, Relay, TransferId};
use super::hop::Hop;
use super::job::Transmission;
use super::pages::Carried;
use super::remote_read::Read;
use crate::store::{MoveId, Times};
use crate::tiers::Route;

/// A watcher to notify of a transfer's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// A loading request, by its index and its number.
    Loading(u32, u64),
    /// The composed step, which waits for free blocks.
    Step,
    /// The composed step, which waits for final times.
    Times,
    /// A request handed over to this machine, whose blocks are being freed.
    HandOverTarget(u32),
}

/// A copy from one tier to the next over one channel.
#[derive(Clone, Debug, Default)]
pub struct Transfer {
    /// The store's move.
    pub id: MoveId,
    /// The tier it reads.
    pub from: usize,
    /// The tier it writes.
    pub to: usize,
    /// Number of blocks.
    pub blocks: u64,
    /// Times at which a step computed its layers, if it writes through.
    pub(super) computed: Option<Times>,
    /// Index of its channel in the edge's lane.
    pub(super) rail: usize,
    /// The hop that brings the blocks it sends on.
    pub below: Option<TransferId>,
    pub(super) waits: Vec<TransferId>,
    pub(super) dependents: Vec<TransferId>,
    /// Its times, once it is on its channel; see [`super::Mover::sent`] on a channel served layer by layer.
    pub(super) sent: Option<Transmission>,
    /// Its job on a channel served layer by layer.
    pub(super) job: Option<JobId>,
    pub(super) watchers: Vec<Watcher>,
    /// Further state of a hop of a hand-over.
    pub(super) hop: Option<Box<Hop>>,
    /// Further state of a read from another machine.
    pub(super) read: Option<Box<Read>>,
    /// Set if it only stands for a transfer of another machine.
    pub(super) relay: Option<Relay>,
    /// Its pages of each layer, if its blocks belong to cache groups.
    pub(super) carried: Option<Box<Carried>>,
    /// Number of its users: its move, loads, the hop above.
    pub(super) users: u32,
}

impl Transfer {
    /// Returns the tiers between which it moves.
    pub fn route(&self) -> Route {
        Route::new(self.from, self.to)
    }

    /// Returns true if it loads KV to a faster tier.
    pub fn comes_up(&self) -> bool {
        self.to < self.from
    }

    /// Returns true if `after` sends on its blocks, layer by layer.
    pub fn feeds(&self, after: &Self) -> bool {
        self.hop.is_some() || (self.comes_up() && self.to == after.from && after.comes_up())
    }

    /// Returns the hand-over that it completes, if it is the last hop of one.
    pub fn completes(&self) -> Option<u32> {
        let hop = self.hop.as_deref()?;
        hop.is_last.then_some(hop.handover)
    }

    /// Returns the hand-over whose source it reads, if it is the first hop of one.
    pub fn reads_source_of(&self) -> Option<u32> {
        let hop = self.hop.as_deref()?;
        hop.is_first.then_some(hop.handover)
    }

    /// Returns the index of the request that leaves this machine's GPU with it, if it is such a hop of a
    /// hand-over.
    pub fn leaves(&self) -> Option<u32> {
        self.hop.as_deref()?.leaves
    }

    /// Returns the progress of its data from elsewhere: a step that computes them, or a hop of another
    /// machine.
    pub(super) fn feed(&self) -> Feed {
        match (self.hop.as_deref(), self.read.as_deref()) {
            (Some(hop), _) if hop.awaits > 0 => Feed::Awaited,
            (Some(hop), _) => hop.feed,
            (None, Some(read)) => read.feed,
            (None, None) => Feed::AtHand,
        }
    }

    /// Reuses the slot and the allocations of a finished transfer for a new one.
    pub(super) fn begin(&mut self, id: MoveId, route: Route, blocks: u64) {
        (self.id, self.from, self.to, self.blocks) = (id, route.from, route.to, blocks);
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
