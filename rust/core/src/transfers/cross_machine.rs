//! Transfers that wait for one on another machine, and what is told when that one comes: reads from there (the rules of
//! `spec/remote.py`), and hand-overs over the memory of both.

use super::channel::Transmission;
use super::hop::{Feed, Hop};
use super::layered::JobId;
use super::mover::{locked, Mover, SharedChannel};
use super::peers::Now;
use super::submitting::arrived;
use super::transfer::TransferId;
use crate::store::{Answer, MoveId, Order, NO_MOVE, STAGING};

/// What is read on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// That machine.
    pub owner: u32,
    /// The tier it is read from there.
    pub tier: usize,
    /// The hold there.
    pub lent: MoveId,
    /// The move that still writes it there.
    pub by: MoveId,
}

/// A transfer that reads another machine.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub source: Source,
    /// The channel between the two.
    pub wire: SharedChannel,
    /// What it waits for there.
    pub feed: Feed,
    /// The job there that feeds it, on a channel served layer by layer.
    pub job: Option<FarJob>,
    /// What brings it there, from the nearest hop down.
    pub below: Vec<FarHop>,
}

impl Read {
    /// One over a channel of what is there, comes or is awaited, by any but a channel served layer by layer.
    pub fn over(wire: SharedChannel, source: Source, feed: Feed) -> Box<Self> {
        Box::new(Self {
            source,
            wire,
            feed,
            job: None,
            below: Vec::new(),
        })
    }
}

/// A hop on another machine, as far as a wait for it is charged here.
#[derive(Clone, Debug)]
pub struct FarHop {
    /// The tier it reads.
    pub from: usize,
    /// Its times.
    pub sent: Option<Transmission>,
    /// When its layers arrive, on a channel served layer by layer.
    pub arrivals_ns: Vec<u64>,
    /// Whether it feeds the hop above layer by layer.
    pub feeds: bool,
    /// What it goes over.
    pub channel: SharedChannel,
    /// How much it sends.
    pub size_bytes: u64,
}

/// A job of another machine on a channel served layer by layer.
#[derive(Clone, Debug)]
pub struct FarJob {
    /// The channel.
    pub channel: SharedChannel,
    /// Its place there.
    pub id: JobId,
    /// Its layers that have arrived.
    pub layers: u64,
}

/// A transfer of some machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarTransfer {
    /// The machine.
    pub machine: u32,
    /// Its place there.
    pub id: TransferId,
}

/// Stands among those that wait for a transfer for one on another machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relay {
    pub target: FarTransfer,
    /// What the target waits for.
    pub before: TransferId,
    /// Whether the target sends on what that brings.
    pub follows: bool,
}

/// What a machine hears of what one of its transfers waits for elsewhere.
#[derive(Clone, Debug)]
pub struct Came {
    /// The transfer that waits.
    pub id: TransferId,
    /// How what it waits for has come: whole, or its first layer.
    pub feed: Feed,
    /// The job that brings its layers one by one, on a channel served so.
    pub job: Option<FarJob>,
    /// Whether it is sent on; otherwise it frees room.
    pub follows: bool,
    /// What brought it.
    pub below: Vec<FarHop>,
}

/// What a machine is asked to bring to another one's transfer.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// What is read.
    pub source: Source,
    /// How much of it.
    pub blocks: u64,
    /// What is to send it on.
    pub reader: FarTransfer,
    /// Transfers there that free its room first.
    pub awaits: u32,
}

/// What a machine brings to another one's transfer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brought {
    /// Whether the reader waits for something here.
    pub waits: bool,
    /// The lowest hop here, which waits for the reader's room.
    pub lowest: Option<TransferId>,
}

impl Mover {
    /// Lets a move from another machine read what it has lent.
    pub fn reads(&mut self, id: MoveId, source: Source) {
        self.reads.insert(id, source);
    }

    /// Sends what lands here from another machine as soon as it comes there and its room is free.
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
            awaits: freeing_moves.len() as u32,
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

    /// Brings what has been lent up to the tier that the network reads, layer by layer where transfers are.
    pub fn bring(&mut self, now: &mut Now<'_>, lent: &Lent) -> Answer<Brought> {
        let source = lent.source;
        let before = self.in_flight(source.by);
        let mut lowest: Option<TransferId> = None;
        for level in STAGING + 1..=source.tier {
            let channel = self.edges[level - 1].up.assigned().clone();
            let hop = Hop::over((0, channel), self.config.layer_pipelining);
            let id = self.reserve_hop(hop, ((level, level - 1), lent.blocks));
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
            self.moved_bytes[STAGING].0 += lent.blocks * self.config.block_bytes;
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

    /// Lets a transfer on another machine hear when one here has come.
    pub fn relay(&mut self, before: TransferId, target: FarTransfer, follows: bool) {
        let id = self.begin(NO_MOVE, (0, 0), 0);
        self.transfers[id].relay = Some(Relay {
            target,
            before,
            follows,
        });
        self.wait_for(id, before);
    }

    /// Tells another machine that what its transfer waits for has come, or its first layer where that is enough.
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
            let layers = arrived(&link, id, now.ns);
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

    /// A transfer here and the hops that bring what it sends on, as another machine charges waits to them.
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
                size_bytes: hop.blocks * self.config.block_bytes,
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

    /// What a transfer waits for on another machine has come, or its first layer.
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

    /// What a transfer has read on another machine is there, and may leave there.
    pub(super) fn source_read(&self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let read = self.transfer(id).read.as_deref();
        let (Some(Read { source, .. }), Some(peers)) = (read, now.peers.as_deref_mut()) else {
            return Ok(());
        };
        peers.lent_is_read(source.owner, source.lent, now.ns)
    }

    /// By when so many blocks should have come over a channel that they are queued on now.
    pub(crate) fn estimate_ns(&self, channel: &SharedChannel, blocks: u64, now_ns: u64) -> u64 {
        locked(channel).expected_ns(&self.job(blocks), now_ns).1
    }
}
