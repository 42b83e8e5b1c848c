//! Hops of hand-overs, sent and fed (`hop` describes one).

use super::feed::{Computed, Feed};
use super::handles::{FarTransfer, TransferId};
use super::hop::Hop;
use super::job::Transmission;
use super::mover::Mover;
use super::peers::Now;
use super::transfer::Watcher;
use crate::convert::fit;
use crate::store::{Answer, MoveId, NO_MOVE};
use crate::tiers::Route;

impl Mover {
    /// Adds a hop of `blocks` blocks along a route; it is not launched.
    pub fn reserve_hop(&mut self, hop: Hop, route: Route, blocks: u64) -> TransferId {
        let id = self.begin(NO_MOVE, route, blocks);
        self.transfers[id].hop = Some(Box::new(hop));
        id
    }

    /// Sends a hop as soon as its data are available and these moves have freed its target blocks.
    pub fn send_hop(
        &mut self,
        now: &mut Now<'_>,
        hop: Hop,
        route: Route,
        blocks: u64,
        freeing_moves: &[MoveId],
    ) -> Answer<TransferId> {
        let handover = hop.handover;
        let id = self.reserve_hop(hop, route, blocks);
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
    pub fn launch_hop(&mut self, now: &mut Now<'_>, id: TransferId, awaits: u32) -> Answer<()> {
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
        step: Transmission,
        computed: Computed,
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
