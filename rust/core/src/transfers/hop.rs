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
            if !self.transfers[id as usize].waits.contains(&before) {
                self.transfers[id as usize].waits.push(before);
                self.transfers[before as usize].dependents.push(id);
            }
            self.watch(before, Watcher::Reception(handover));
        }
        self.launch(store, id, now_ns)?;
        Ok(id)
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
