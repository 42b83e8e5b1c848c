//! Hops of hand-overs: transfers between machines, which are no moves of the store but queue on a channel.

use super::channel::Transmission;
use super::cross_machine::{FarJob, FarTransfer};
use super::mover::{Mover, SharedChannel};
use super::peers::Now;
use super::transfer::{TransferId, Watcher};
use crate::convert::fit;
use crate::store::{Answer, MoveId, NO_MOVE};

/// Progress of the data that a hop sends on, if they come from outside its machine's transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// Available.
    #[default]
    AtHand,
    /// Not arrived, not even the first layer.
    Awaited,
    /// The first layer has arrived; these are its times.
    Comes(Transmission),
}

impl Feed {
    /// Returns the progress of a step in flight; available if there is no step.
    pub fn of_step(step: Option<Transmission>, now_ns: u64) -> Self {
        match step {
            None => Self::AtHand,
            Some(step) if step.first_layer_ns <= now_ns => Self::Comes(step),
            Some(_) => Self::Awaited,
        }
    }
}

/// Progress of a step that computes the data of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// The first layer is computed.
    First,
    /// This number of layers is computed, neither one nor all.
    Layers(u64),
    /// All layers are computed.
    All,
}

/// A hop of a hand-over.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Index of the hand-over in the machine's list.
    pub handover: u32,
    /// Its channel.
    pub channel: SharedChannel,
    /// True if it is fed, and feeds, layer by layer.
    pub streams: bool,
    /// Progress of the data it sends.
    pub feed: Feed,
    /// The job of another machine that feeds it, on a channel served layer by layer.
    pub far: Option<FarJob>,
    /// Number of transfers on another machine that must free its target blocks first.
    pub awaits: u32,
    /// Index of the request that leaves this machine's GPU with it, to continue elsewhere.
    pub leaves: Option<u32>,
    /// True if it reads the hand-over's source.
    pub is_first: bool,
    /// True if it completes the hand-over.
    pub is_last: bool,
}

impl Hop {
    /// Returns a middle hop of a hand-over over a channel, with its data available; `streams` as in its
    /// field.
    pub fn over((handover, channel): (u32, SharedChannel), streams: bool) -> Self {
        Self {
            handover,
            channel,
            streams,
            feed: Feed::AtHand,
            far: None,
            awaits: 0,
            leaves: None,
            is_first: false,
            is_last: false,
        }
    }
}

impl Mover {
    /// Adds a hop of `blocks` blocks along a route; it is not launched.
    pub fn reserve_hop(&mut self, hop: Hop, (route, blocks): ((usize, usize), u64)) -> TransferId {
        let id = self.begin(NO_MOVE, route, blocks);
        self.transfers[id].hop = Some(Box::new(hop));
        id
    }

    /// Sends a hop as soon as its data are available and these moves have freed its target blocks.
    pub fn send_hop(
        &mut self,
        now: &mut Now<'_>,
        hop: Hop,
        route: ((usize, usize), u64),
        freeing_moves: &[MoveId],
    ) -> Answer<TransferId> {
        let handover = hop.handover;
        let id = self.reserve_hop(hop, route);
        for before in self.all_in_flight(freeing_moves) {
            self.wait_for(id, before);
            self.watch(before, Watcher::HandOverTarget(handover));
        }
        self.launch(now, id)?;
        Ok(id)
    }

    /// Makes a hop on another machine wait for these moves, which free its target blocks here; returns their
    /// number.
    pub fn relay_freed(
        &mut self,
        freeing_moves: &[MoveId],
        handover: u32,
        waiting: FarTransfer,
    ) -> u32 {
        let freed_by = self.all_in_flight(freeing_moves);
        for &before in &freed_by {
            self.relay(before, waiting, false);
            self.watch(before, Watcher::HandOverTarget(handover));
        }
        fit::<u32>(freed_by.len())
    }

    /// Sends a hop once `awaits` transfers on another machine have arrived.
    pub fn launch_hop(&mut self, now: &mut Now<'_>, (id, awaits): (TransferId, u32)) -> Answer<()> {
        if let Some(hop) = self.transfers[id].hop.as_deref_mut() {
            hop.awaits = awaits;
        }
        self.launch(now, id)
    }

    /// Returns how many layers of a step are reported to a hop one by one. None are if the hop's times are
    /// final as soon as it is sent.
    pub fn reported_layers(&self, id: TransferId) -> u64 {
        if self.goes_by_layer(id) {
            self.config.layers
        } else {
            0
        }
    }

    /// Feeds a hop with the layers that a step has computed by now; returns true if it waits for more.
    pub fn step_computed(
        &mut self,
        now: &mut Now<'_>,
        id: TransferId,
        (step, computed): (Transmission, Computed),
    ) -> Answer<bool> {
        let layers = match computed {
            Computed::First => 1,
            Computed::Layers(layers) => layers,
            Computed::All => self.config.layers,
        };
        let transfer = &mut self.transfers[id];
        if transfer.job.is_some() {
            if computed != Computed::First {
                self.feed_on(id, layers, now.ns);
            }
            return Ok(true);
        }
        let (Some(hop), None) = (transfer.hop.as_deref_mut(), transfer.sent) else {
            return Ok(false);
        };
        match computed {
            Computed::First => hop.feed = Feed::Comes(step),
            Computed::Layers(_) => return Ok(true),
            Computed::All => hop.feed = Feed::AtHand,
        }
        self.launch(now, id)?;
        Ok(self.transfers[id].sent.is_none())
    }
}
