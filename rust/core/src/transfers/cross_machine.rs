//! Transfers that wait for a transfer on another machine, and its notifications: reads from there (the rules
//! of `spec/remote.py`), and hand-overs over both machines' memory.

use super::channel::{locked, SharedChannel};
use super::feed::Feed;
use super::handles::{FarTransfer, Relay, TransferId};
use super::hop::Hop;
use super::mover::Mover;
use super::peers::Now;
use super::remote_read::{Brought, Came, FarHop, FarJob, Lent, Read};
use crate::convert::fit;
use crate::store::{Answer, Order, NO_MOVE, STAGING};
use crate::tiers::Route;

impl Mover {
    /// Sends blocks from another machine as soon as they arrive there and their target blocks are free.
    pub(super) fn accept_read(
        &mut self,
        now: &mut Now<'_>,
        id: TransferId,
        order: &Order,
    ) -> Answer<()> {
        let (Some(source), Some(peers)) = (self.reads.remove(&order.id), now.peers.as_deref_mut())
        else {
            return Ok(());
        };
        let freeing_moves = self.all_in_flight(&order.after);
        let machine = self.config.machine;
        let wire = peers.wire(source.owner, machine)?;
        let lent = Lent {
            source,
            blocks: order.blocks,
            reader: FarTransfer { machine, id },
            awaits: fit::<u32>(freeing_moves.len()),
        };
        let brought = peers.bring(&lent, now.ns)?;
        let feed = if brought.waits {
            Feed::Awaited
        } else {
            Feed::AtHand
        };
        self.transfers[id].read = Some(Read::over(wire, source, feed));
        for before in freeing_moves {
            match brought.lowest {
                Some(id) => {
                    let machine = source.owner;
                    self.relay(before, FarTransfer { machine, id }, false);
                }
                None => self.wait_for(id, before),
            }
        }
        self.launch(now, id)
    }

    /// Brings lent blocks up to the tier that the network reads, layer by layer if transfers are pipelined.
    pub fn bring(&mut self, now: &mut Now<'_>, lent: &Lent) -> Answer<Brought> {
        let source = lent.source;
        let before = self.in_flight(source.by);
        let mut lowest: Option<TransferId> = None;
        for level in STAGING + 1..=source.tier {
            let channel = self.edges[level - 1].up.assigned().clone();
            let hop = Hop::over(0, channel, self.config.layer_pipelining);
            let route = Route::up_from(level);
            let id = self.reserve_hop(hop, route, lent.blocks);
            match lowest {
                None => self.relay(id, lent.reader, true),
                Some(above) => {
                    self.wait_for(above, id);
                    self.follow(above, id);
                }
            }
            lowest = Some(id);
        }
        let Some(low) = lowest else {
            let route = Route::new(self.config.remote, STAGING);
            let read = self.job_along(route, lent.blocks);
            self.traffic.tiers[STAGING].read += read.size_bytes;
            if let Some(before) = before {
                let brings = &self.transfers[before];
                let follows = brings.comes_up() && brings.to == STAGING;
                self.relay(before, lent.reader, follows);
            }
            let waits = before.is_some();
            return Ok(Brought { waits, lowest });
        };
        if let Some(before) = before {
            self.wait_for(low, before);
            let brings = &self.transfers[before];
            if brings.comes_up() && brings.to == source.tier {
                self.follow(low, before);
            }
        }
        if let Some(hop) = self.transfers[low].hop.as_deref_mut() {
            hop.awaits = lent.awaits;
        }
        self.launch(now, low)?;
        Ok(Brought {
            waits: true,
            lowest,
        })
    }

    /// Notifies a transfer on another machine when a transfer here has arrived.
    pub fn relay(&mut self, before: TransferId, target: FarTransfer, follows: bool) {
        let id = self.begin(NO_MOVE, Route::default(), 0);
        self.transfers[id].relay = Some(Relay {
            target,
            before,
            follows,
        });
        self.wait_for(id, before);
    }

    /// Notifies another machine that a transfer has arrived, or its first layer if that is sufficient.
    pub(super) fn pass_on(
        &mut self,
        now: &mut Now<'_>,
        id: TransferId,
        relay: Relay,
    ) -> Answer<()> {
        let before = self.transfer(relay.before);
        let is_whole = self.transfer(id).waits.is_empty();
        let feeds = before.hop.is_some() && self.streams(before);
        let feed = match self.sent(relay.before) {
            _ if is_whole => Feed::AtHand,
            Some(sent) if feeds && sent.first_layer_ns <= now.ns => Feed::Comes(sent),
            _ => return Ok(()),
        };
        let job = before.job.filter(|_| !is_whole).map(|id| {
            let channel = self.shared_channel_of(before).clone();
            let mut link = locked(&channel);
            link.report_all_layers(id);
            let layers = link.arrived_layers(id, now.ns);
            drop(link);
            FarJob {
                channel,
                id,
                layers,
            }
        });
        let comes_on = job.is_some();
        let came = Came {
            id: relay.target.id,
            feed,
            job,
            follows: relay.follows,
            below: if relay.follows {
                self.far_hops(relay.before, feeds)
            } else {
                Vec::new()
            },
        };
        if !comes_on {
            let fed = &mut self.transfers[relay.before];
            fed.dependents.retain(|&other| other != id);
            self.forget(id);
        }
        match now.peers.as_deref_mut() {
            Some(peers) => peers.came(relay.target.machine, &came, now.ns),
            None => Ok(()),
        }
    }

    /// Returns a transfer here and its lower hops, as another machine charges waits to them.
    fn far_hops(&self, first: TransferId, mut feeds: bool) -> Vec<FarHop> {
        let (mut hops, mut next) = (Vec::new(), Some(first));
        while let Some(id) = next {
            let hop = self.transfer(id);
            hops.push(FarHop {
                from: hop.from,
                sent: self.sent(id),
                arrivals_ns: self.arrivals_ns(id),
                feeds,
                channel: self.shared_channel_of(hop).clone(),
                size_bytes: self.job_of(hop).size_bytes,
            });
            if let Some(read) = hop.read.as_deref() {
                hops.extend(read.below.iter().cloned());
            }
            next = hop.below;
            feeds = next.is_some_and(|below| {
                self.config.layer_pipelining && self.transfer(below).feeds(hop)
            });
        }
        hops
    }

    /// Handles the notification that a transfer on another machine has arrived, or its first layer.
    pub fn came(&mut self, now: &mut Now<'_>, came: &Came) -> Answer<()> {
        let transfer = &mut self.transfers[came.id];
        if let Some(read) = transfer.read.as_deref_mut() {
            read.feed = came.feed;
            read.job.clone_from(&came.job);
            read.below.clone_from(&came.below);
        }
        if let (Some(hop), true) = (transfer.hop.as_deref_mut(), came.follows) {
            hop.feed = came.feed;
            hop.far.clone_from(&came.job);
        }
        if transfer.job.is_some() {
            let layers = came
                .job
                .as_ref()
                .map_or(self.config.layers, |job| job.layers);
            self.feed_on(came.id, layers, now.ns);
            return Ok(());
        }
        if let (Some(hop), false) = (transfer.hop.as_deref_mut(), came.follows) {
            hop.awaits -= 1;
        }
        self.launch(now, came.id)
    }

    /// Ends the loan of the blocks that a transfer has read on another machine.
    pub(super) fn source_read(&self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let read = self.transfer(id).read.as_deref();
        let (Some(Read { source, .. }), Some(peers)) = (read, now.peers.as_deref_mut()) else {
            return Ok(());
        };
        peers.lent_is_read(source.owner, source.lent, now.ns)
    }

    /// Returns the estimated delay until `blocks` blocks queued now have arrived over a channel of a route.
    pub(crate) fn estimate_ns(
        &self,
        channel: &SharedChannel,
        route: Route,
        blocks: u64,
        now_ns: u64,
    ) -> u64 {
        let job = self.job_along(route, blocks);
        locked(channel).expected_ns(&job, now_ns).1
    }
}
