//! Hand-overs over the memory of both machines: down where the prompt was computed, over the wire, and up where it is
//! decoded (the rules of `serving/handover/handover.py`).

use super::reception::{Incoming, IncomingId};
use super::task::Letter;
use crate::serving::{Place, Replica, ServingStore};
use crate::store::{Answer, MoveId, GPU, STAGING};
use crate::transfers::{Feed, Hop, Onwards, SharedChannel, TransferId, Transmission, Watcher};

/// What a hand-over crosses.
#[derive(Clone, Debug)]
pub struct Way {
    /// Between the machines.
    pub wire: SharedChannel,
    /// From the GPU of the one down, and up to that of the other, where it crosses their memory.
    pub memory: Option<(SharedChannel, SharedChannel)>,
}

/// A hand-over that leaves the GPU on which it was computed.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Where it goes.
    pub target: (u32, IncomingId),
    /// The request's place where it was computed.
    pub place: Place,
    /// Moves at the target that free its room, and whether any of them is under way.
    pub room: Vec<MoveId>,
    pub(super) awaits_room: bool,
    blocks: u64,
    channel: SharedChannel,
    computed: Option<Transmission>,
}

impl Departure {
    /// What tells the machine that computed a prompt to let it go.
    pub(super) fn letter(
        incoming: &Incoming,
        target: (u32, IncomingId),
        room: &[MoveId],
    ) -> Letter {
        let (machine, place) = incoming.source;
        let channel = match &incoming.way.memory {
            Some((down, _)) => down.clone(),
            None => incoming.way.wire.clone(),
        };
        let departure = Self {
            target,
            place,
            room: room.to_vec(),
            awaits_room: false,
            blocks: incoming.sent_blocks,
            channel,
            computed: incoming.computed,
        };
        Letter::Depart {
            machine,
            departure: Box::new(departure),
        }
    }
}

impl Replica {
    /// Notes which of these moves free the room of a hand-over; returns whether any is under way.
    pub(super) fn await_room(&mut self, id: IncomingId, room: &[MoveId]) -> bool {
        let Some(mover) = self.mover.as_deref_mut() else {
            return false;
        };
        let mut freed_by: Vec<TransferId> = Vec::new();
        for &earlier in room {
            let Some(transfer) = mover.under_way(earlier) else {
                continue;
            };
            if !freed_by.contains(&transfer) {
                freed_by.push(transfer);
                mover.watch(transfer, Watcher::Reception(id));
            }
        }
        self.reception.of_mut(id).room_moves = freed_by.len();
        !freed_by.is_empty()
    }

    /// Sends a prompt down, whole or as it is computed.
    pub(super) fn depart_down<S: ServingStore>(
        &mut self,
        store: &mut S,
        departure: &Departure,
        now_ns: u64,
    ) -> Answer<()> {
        self.catch_up(store, now_ns + 1)?;
        let (Some(how), Some(mover)) = (self.config.role.sends(), self.mover.as_deref_mut()) else {
            return Ok(());
        };
        let step = departure.computed;
        let step = step.filter(|step| now_ns < step.completion_ns);
        let place = departure.place;
        if let Some(step) = step {
            let number = mover.take_number();
            let computes = Letter::Computes {
                place,
                step,
                number,
            };
            self.letters.push(computes);
        }
        let (machine, handover) = departure.target;
        let hop = Hop {
            handover,
            channel: departure.channel.clone(),
            streams: how.layer_by_layer,
            feed: Feed::of_step(step, now_ns),
            awaits: u32::from(departure.awaits_room),
            onwards: Some(Onwards {
                machine,
                handover,
                place,
            }),
            is_first: false,
            is_last: false,
        };
        let way = ((GPU, STAGING), departure.blocks);
        let id = mover.send_hop(store, hop, way, &[], now_ns)?;
        self.leaving_hops.insert(place, id);
        self.log_transfers();
        Ok(())
    }

    /// Lets a prompt go down with what a step has computed of it; returns whether it waits even then.
    pub(super) fn feed_down<S: ServingStore>(
        &mut self,
        store: &mut S,
        (place, feed): (Place, Feed),
        now_ns: u64,
    ) -> Answer<bool> {
        self.catch_up(store, now_ns)?;
        let hop = self.leaving_hops.get(&place);
        let (Some(&hop), Some(mover)) = (hop, self.mover.as_deref_mut()) else {
            return Ok(false);
        };
        let waits = mover.feed_hop(store, hop, feed, now_ns)?;
        self.log_transfers();
        Ok(waits)
    }

    /// Lets a prompt go down whose room at its target is free.
    pub(super) fn room_is_free<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Answer<()> {
        self.catch_up(store, now_ns)?;
        let hop = self.leaving_hops.get(&place);
        if let (Some(&hop), Some(mover)) = (hop, self.mover.as_deref_mut()) {
            mover.room_is_free(store, hop, now_ns)?;
            self.log_transfers();
        }
        Ok(())
    }

    /// A hop has come that goes on elsewhere, or its first layer: once it is whole, its blocks on the GPU are given up.
    pub(in crate::serving) fn hop_left<S: ServingStore>(
        &mut self,
        store: &mut S,
        (transfer, complete): (TransferId, bool),
        now_ns: u64,
    ) -> Answer<()> {
        let Some(mover) = self.mover.as_deref() else {
            return Ok(());
        };
        let sent = mover.sent(transfer);
        if let (Some(onwards), Some(sent)) = (mover.transfer(transfer).onwards(), sent) {
            let feed = if complete {
                Feed::AtHand
            } else {
                Feed::Comes(sent)
            };
            self.letters.push(Letter::HopCame {
                machine: onwards.machine,
                incoming: onwards.handover,
                feed,
            });
            if complete {
                self.leaving_hops.remove(&onwards.place);
                self.release_sent(store, onwards.place, (now_ns, now_ns))?;
            }
        }
        Ok(())
    }

    /// Sends a prompt over the wire and up as it comes down elsewhere.
    pub(super) fn hop_came<S: ServingStore>(
        &mut self,
        store: &mut S,
        (id, feed): (IncomingId, Feed),
        now_ns: u64,
    ) -> Answer<()> {
        self.catch_up(store, now_ns)?;
        let (Some(how), Some(mover)) = (self.config.role.receives(), self.mover.as_deref_mut())
        else {
            return Ok(());
        };
        let incoming = self.reception.of_mut(id);
        let Way { wire, memory } = incoming.way.clone();
        let (None, Some((_, up))) = (incoming.wire, memory) else {
            return Ok(());
        };
        let hop = Hop {
            handover: id,
            channel: wire,
            streams: how.layer_by_layer,
            feed,
            awaits: 0,
            onwards: None,
            is_first: false,
            is_last: false,
        };
        let last = Hop {
            channel: up,
            feed: Feed::AtHand,
            is_last: true,
            ..hop.clone()
        };
        let blocks = incoming.sent_blocks;
        let wire = mover.send_hop(store, hop, ((how.remote, GPU), blocks), &[], now_ns)?;
        mover.hop_after(wire, last, ((STAGING, GPU), blocks));
        self.reception.of_mut(id).wire = Some(wire);
        self.log_transfers();
        Ok(())
    }
}
