//! Hops of hand-overs: what crosses from another machine is no move of the store, but takes its turn on a channel.

use super::channel::Transmission;
use super::cross_machine::{FarJob, FarTransfer};
use super::mover::{Mover, SharedChannel};
use super::peers::Now;
use super::transfer::{TransferId, Watcher};
use crate::store::{Answer, MoveId, NO_MOVE};

/// What brings what a hop sends on, from outside of its machine's transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// Nothing: it is there.
    #[default]
    AtHand,
    /// It has not come yet, not even its first layer.
    Awaited,
    /// Its first layer has come, at these times.
    Comes(Transmission),
}

impl Feed {
    /// What a step brings that is under way, or has ended where there is none.
    pub fn of_step(step: Option<Transmission>, now_ns: u64) -> Self {
        match step {
            None => Self::AtHand,
            Some(step) if step.first_layer_ns <= now_ns => Self::Comes(step),
            Some(_) => Self::Awaited,
        }
    }
}

/// How far a step has come that computes what a hop sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// Its first layer.
    First,
    /// So many layers, neither one nor all.
    Layers(u64),
    /// All of them.
    All,
}

/// A hop of a hand-over.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Which hand-over, by its place in the machine's list.
    pub handover: u32,
    /// What it goes over.
    pub channel: SharedChannel,
    /// Whether it is fed layer by layer, and feeds so.
    pub streams: bool,
    /// What brings what it sends.
    pub feed: Feed,
    /// The job of another machine that feeds it, on a channel served layer by layer.
    pub far: Option<FarJob>,
    /// How much it waits for on another machine: that its place there is free.
    pub awaits: u32,
    /// The place of the request that leaves this machine's GPU with it, to go on elsewhere.
    pub leaves: Option<u32>,
    /// Whether it reads the machine that hands over.
    pub is_first: bool,
    /// Whether the hand-over is complete with it.
    pub is_last: bool,
}

impl Hop {
    /// One of a hand-over over a channel that sends what is at hand, one of several; `streams` as in its field.
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
    /// Notes a hop of so many blocks from a tier to another; it is not launched.
    pub fn reserve_hop(&mut self, hop: Hop, (route, blocks): ((usize, usize), u64)) -> TransferId {
        let id = self.begin(NO_MOVE, route, blocks);
        self.transfers[id].hop = Some(Box::new(hop));
        id
    }

    /// Sends a hop as soon as these moves have freed its room and it is there itself.
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

    /// Lets a hop on another machine wait for these moves, which free its room here; returns for how many.
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
        freed_by.len() as u32
    }

    /// Sends a hop that waits for so much on another machine once all of that has come.
    pub fn launch_hop(&mut self, now: &mut Now<'_>, (id, awaits): (TransferId, u32)) -> Answer<()> {
        if let Some(hop) = self.transfers[id].hop.as_deref_mut() {
            hop.awaits = awaits;
        }
        self.launch(now, id)
    }

    /// Of how many layers a hop hears one by one that a step has computed them: of none where its times are final as
    /// soon as it is sent.
    pub fn reported_layers(&self, id: TransferId) -> u64 {
        if self.goes_by_layer(id) {
            self.config.layers
        } else {
            0
        }
    }

    /// Lets a hop go on with what a step has computed by now; returns whether it waits for more.
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
