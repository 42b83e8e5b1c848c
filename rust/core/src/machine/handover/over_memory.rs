//! Hand-overs over the memory of both machines (the rules of `spec/handover.py`). KV goes down on the machine that
//! computed the prompt, over the wire, and up on the machine that decodes.

use crate::machine::messages::{IncomingId, Message, SlotOn, SourceSide, Task};
use crate::machine::{Now, Replica};
use crate::store::{Answer, MoveId, GPU, STAGING};
use crate::tiers::Route;
use crate::transfers::{Computed, FarTransfer, Feed, Hop, SharedChannel, TransferId, Transmission};

impl Replica {
    /// Asks the machine that has computed a prompt to send it down, and prepares the hops over the wire and up on
    /// this machine.
    pub(in crate::machine) fn depart_over_memory(
        &mut self,
        id: IncomingId,
        down: SharedChannel,
        up: SharedChannel,
        freeing_moves: &[MoveId],
    ) {
        let Some(how) = self.config.role.receives() else {
            return;
        };
        let incoming = self.handover.target.of(id);
        let hop = Hop {
            feed: Feed::Awaited,
            ..Hop::over(id, incoming.route.wire.clone(), how.layer_by_layer)
        };
        let last = Hop {
            is_last: true,
            ..Hop::over(id, up, how.layer_by_layer)
        };
        let blocks = incoming.sent_blocks;
        let wire = self
            .mover
            .reserve_hop(hop, Route::new(how.remote, GPU), blocks);
        let up = self
            .mover
            .reserve_hop(last, Route::up_from(STAGING), blocks);
        self.mover.wait_for(up, wire);
        let SlotOn { machine, slot } = incoming.source;
        let onwards = FarTransfer {
            machine: self.machine(),
            id: wire,
        };
        let source_side = SourceSide {
            target: (id, onwards),
            slot,
            freeing_moves: freeing_moves.to_vec(),
            blocks,
            channel: down,
            computed: incoming.computed,
        };
        let depart = Task::Depart(Box::new(source_side));
        self.handover.messages.push(Message::Send(machine, depart));
    }

    /// Sends a prompt down, whole or as it is computed, once its blocks at the target are free.
    pub(in crate::machine) fn depart_down(
        &mut self,
        now: &mut Now<'_>,
        source_side: &SourceSide,
    ) -> Answer<()> {
        self.catch_up(now, now.ns + 1)?;
        let machine = self.machine();
        let Some(how) = self.config.role.sends() else {
            return Ok(());
        };
        let step = source_side.computed;
        let step = step.filter(|step| now.ns < step.completion_ns);
        let (handover, onwards) = source_side.target;
        let hop = Hop {
            feed: Feed::of_step(step, now.ns),
            leaves: Some(source_side.slot),
            ..Hop::over(handover, source_side.channel.clone(), how.layer_by_layer)
        };
        let route = Route::new(GPU, STAGING);
        let id = self.mover.reserve_hop(hop, route, source_side.blocks);
        self.mover.relay(id, onwards, true);
        let hop = FarTransfer { machine, id };
        if let Some(step) = step {
            let number = Some(self.mover.arrivals.take_number());
            self.await_step(machine, id, step, number);
        }
        let mut awaits = 0;
        if let Some(peers) = now.peers.as_deref_mut() {
            awaits =
                peers.relay_freed(onwards.machine, &source_side.freeing_moves, handover, hop)?;
        }
        self.mover.launch_hop(now, id, awaits)?;
        self.log_transfers();
        Ok(())
    }

    /// Releases the GPU blocks of a hop that has arrived and is forwarded to another machine.
    pub(in crate::machine) fn hop_left(
        &mut self,
        now: &mut Now<'_>,
        transfer: TransferId,
    ) -> Answer<()> {
        match self.mover.transfer(transfer).leaves() {
            Some(slot) => self.release_sent(now, slot, now.ns),
            None => Ok(()),
        }
    }

    /// Continues a hop of this machine with the layers that a step has computed; returns true if it waits for more.
    pub(in crate::machine) fn step_computed(
        &mut self,
        now: &mut Now<'_>,
        hop: TransferId,
        step: Transmission,
        computed: Computed,
    ) -> Answer<bool> {
        if !matches!(computed, Computed::Layers(_)) {
            self.catch_up(now, now.ns)?;
        }
        let waits = self.mover.step_computed(now, hop, step, computed)?;
        self.log_transfers();
        Ok(waits)
    }
}
