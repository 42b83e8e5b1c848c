//! Hand-overs over the memory of both machines: down where the prompt was computed, over the wire, and up where it is
//! decoded (the rules of `spec/handover.py`).

use crate::machine::messages::{Computing, Departure, IncomingId, Letter};
use crate::machine::{Now, Replica};
use crate::store::{Answer, MoveId, GPU, STAGING};
use crate::transfers::{Computed, FarTransfer, Feed, Hop, SharedChannel, TransferId, Transmission};

impl Replica {
    /// Lets the machine that has computed a prompt send it down, and this one send on what comes so over the wire and
    /// up.
    pub(in crate::machine) fn depart_over_memory(
        &mut self,
        id: IncomingId,
        (down, up): (SharedChannel, SharedChannel),
        room: &[MoveId],
    ) {
        let Some(how) = self.config.role.receives() else {
            return;
        };
        let incoming = self.handover.reception.of(id);
        let hop = Hop {
            handover: id,
            channel: incoming.way.wire.clone(),
            streams: how.layer_by_layer,
            feed: Feed::Awaited,
            far: None,
            awaits: 0,
            leaves: None,
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
        let wire = self.mover.place_hop(hop, ((how.remote, GPU), blocks));
        self.mover.hop_after(wire, last, ((STAGING, GPU), blocks));
        let (machine, place) = incoming.source;
        let onwards = FarTransfer {
            machine: self.config.machine as u32,
            id: wire,
        };
        let departure = Departure {
            target: (id, onwards),
            place,
            room: room.to_vec(),
            blocks,
            channel: down,
            computed: incoming.computed,
        };
        self.handover.letters.push(Letter::Depart {
            machine,
            departure: Box::new(departure),
        });
    }

    /// Sends a prompt down, whole or as it is computed, once its room at the target is free.
    pub(in crate::machine) fn depart_down(
        &mut self,
        now: &mut Now<'_>,
        departure: &Departure,
    ) -> Answer<()> {
        self.catch_up(now, now.ns + 1)?;
        let machine = self.config.machine as u32;
        let Some(how) = self.config.role.sends() else {
            return Ok(());
        };
        let step = departure.computed;
        let step = step.filter(|step| now.ns < step.completion_ns);
        let (handover, onwards) = departure.target;
        let hop = Hop {
            handover,
            channel: departure.channel.clone(),
            streams: how.layer_by_layer,
            feed: Feed::of_step(step, now.ns),
            far: None,
            awaits: 0,
            leaves: Some(departure.place),
            is_first: false,
            is_last: false,
        };
        let id = self
            .mover
            .place_hop(hop, ((GPU, STAGING), departure.blocks));
        self.mover.goes_on(id, onwards);
        let hop = FarTransfer { machine, id };
        if let Some(step) = step {
            let number = Some(self.mover.take_number());
            let layers = self.mover.told_layers(id);
            self.handover.letters.push(Letter::Awaits {
                machine,
                hop,
                computing: Computing {
                    step,
                    number,
                    layers,
                },
            });
        }
        let mut awaits = 0;
        if let Some(peers) = now.peers.as_deref_mut() {
            awaits = peers.frees_room(onwards.machine, &departure.room, (handover, hop))?;
        }
        self.mover.launch_hop(now, (id, awaits))?;
        self.log_transfers();
        Ok(())
    }

    /// A hop has come that goes on elsewhere: its blocks on the GPU are given up.
    pub(in crate::machine) fn hop_left(
        &mut self,
        now: &mut Now<'_>,
        transfer: TransferId,
    ) -> Answer<()> {
        match self.mover.transfer(transfer).leaves() {
            Some(place) => self.release_sent(now, place, now.ns),
            None => Ok(()),
        }
    }

    /// Lets a hop of this machine go on with what a step has computed; returns whether it waits for more.
    pub(in crate::machine) fn step_computed(
        &mut self,
        now: &mut Now<'_>,
        hop: TransferId,
        (step, computed): (Transmission, Computed),
    ) -> Answer<bool> {
        if !matches!(computed, Computed::Layers(_)) {
            self.catch_up(now, now.ns)?;
        }
        let waits = self.mover.step_computed(now, hop, (step, computed))?;
        self.log_transfers();
        Ok(waits)
    }
}
