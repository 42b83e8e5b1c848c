//! Hops of hand-overs: what crosses from another machine is no move of the store, but takes its turn on a channel.

use super::channel::Transmission;
use super::mover::{Mover, SharedChannel};
use super::transfer::{TransferId, Watcher};
use crate::serving::ServingStore;
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

/// Where what a hop brings goes on from, on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onwards {
    /// That machine.
    pub machine: u32,
    /// The hand-over, by its place in that machine's list.
    pub handover: u32,
    /// The request's place where it is read.
    pub place: u32,
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
    /// How much it waits for on another machine: that its place there is free.
    pub awaits: u32,
    /// Where it goes on, unless it ends on this machine.
    pub onwards: Option<Onwards>,
    /// Whether it reads the machine that hands over.
    pub is_first: bool,
    /// Whether the hand-over is complete with it.
    pub is_last: bool,
}

impl Mover {
    /// Sends a hop of so many blocks from a tier to another as soon as these moves have freed its room and it is
    /// there itself.
    pub fn send_hop<S: ServingStore>(
        &mut self,
        store: &mut S,
        hop: Hop,
        ((from, to), blocks): ((usize, usize), u64),
        room: &[MoveId],
        now_ns: u64,
    ) -> Answer<TransferId> {
        let (id, handover) = (self.place(), hop.handover);
        let transfer = &mut self.transfers[id as usize];
        transfer.begin(NO_MOVE, (from, to), blocks);
        transfer.hop = Some(Box::new(hop));
        for earlier in room {
            let Some(before) = self.under_way(*earlier) else {
                continue;
            };
            self.wait_for(id, before);
            self.watch(before, Watcher::Reception(handover));
        }
        self.launch(store, id, now_ns)?;
        Ok(id)
    }

    /// Lets a hop of so many blocks from a tier to another send on what an earlier one brings.
    pub fn hop_after(
        &mut self,
        before: TransferId,
        hop: Hop,
        ((from, to), blocks): ((usize, usize), u64),
    ) {
        let id = self.place();
        let transfer = &mut self.transfers[id as usize];
        transfer.begin(NO_MOVE, (from, to), blocks);
        transfer.hop = Some(Box::new(hop));
        self.wait_for(id, before);
    }

    /// Lets a hop go whose place on another machine is free, once it is there itself.
    pub fn room_is_free<S: ServingStore>(
        &mut self,
        store: &mut S,
        id: TransferId,
        now_ns: u64,
    ) -> Answer<()> {
        if let Some(hop) = self.transfers[id as usize].hop.as_deref_mut() {
            hop.awaits = 0;
        }
        self.launch(store, id, now_ns)
    }

    /// Changes what brings what a hop sends; returns whether the hop waits even then.
    pub fn feed_hop<S: ServingStore>(
        &mut self,
        store: &mut S,
        id: TransferId,
        feed: Feed,
        now_ns: u64,
    ) -> Answer<bool> {
        let transfer = &mut self.transfers[id as usize];
        let Some(hop) = transfer.hop.as_deref_mut() else {
            return Ok(false);
        };
        if transfer.sent.is_some() {
            return Ok(false);
        }
        hop.feed = feed;
        self.launch(store, id, now_ns)?;
        Ok(self.transfers[id as usize].sent.is_none())
    }
}
