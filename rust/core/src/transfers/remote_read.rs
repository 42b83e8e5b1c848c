//! A read from another machine: its source, the hops that bring the blocks there, and the messages between the
//! two machines.

use super::channel::SharedChannel;
use super::feed::Feed;
use super::handles::{FarTransfer, JobId, TransferId};
use super::job::Transmission;
use crate::store::MoveId;

/// A read on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The machine to read.
    pub owner: u32,
    /// Its tier to read.
    pub tier: usize,
    /// Its hold on the blocks.
    pub lent: MoveId,
    /// Its move that still writes the blocks.
    pub by: MoveId,
}

/// A transfer that reads another machine.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub source: Source,
    /// The channel between the two machines.
    pub wire: SharedChannel,
    /// Progress of the other machine's blocks.
    pub feed: Feed,
    /// The job on that machine that feeds it, on a channel served layer by layer.
    pub job: Option<FarJob>,
    /// The hops that bring the blocks there, from the nearest one down.
    pub below: Vec<FarHop>,
}

impl Read {
    /// Returns a read over a channel, fed by no job of a channel served layer by layer.
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

/// A hop on another machine, with the times needed to charge waits to it.
#[derive(Clone, Debug)]
pub struct FarHop {
    /// The tier it reads.
    pub from: usize,
    /// Its times.
    pub sent: Option<Transmission>,
    /// Arrival times of its layers, on a channel served layer by layer.
    pub arrivals_ns: Vec<u64>,
    /// True if it feeds the hop above layer by layer.
    pub feeds: bool,
    /// Its channel.
    pub channel: SharedChannel,
    /// Its bytes.
    pub size_bytes: u64,
}

/// A job of another machine on a channel served layer by layer.
#[derive(Clone, Debug)]
pub struct FarJob {
    /// Its channel.
    pub channel: SharedChannel,
    /// Its index there.
    pub id: JobId,
    /// Number of its layers that have arrived.
    pub layers: u64,
}

/// Notification to a machine that a transfer elsewhere, which one of its own waits for, has arrived.
#[derive(Clone, Debug)]
pub struct Came {
    /// The waiting transfer.
    pub id: TransferId,
    /// Progress of the arrival: whole, or the first layer.
    pub feed: Feed,
    /// The job that brings its layers, on a channel served layer by layer.
    pub job: Option<FarJob>,
    /// True if the waiting transfer sends the blocks on; otherwise it waits for blocks to be freed.
    pub follows: bool,
    /// The hops that brought the blocks.
    pub below: Vec<FarHop>,
}

/// A request to another machine to bring lent blocks to a reader's transfer.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// The blocks to read.
    pub source: Source,
    /// Number of blocks.
    pub blocks: u64,
    /// The transfer that sends them on.
    pub reader: FarTransfer,
    /// Number of the reader's transfers that free its blocks first.
    pub awaits: u32,
}

/// Reply to [`Lent`]: transfers of the owner that the reader waits for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brought {
    /// True if the reader waits for a transfer here.
    pub waits: bool,
    /// The lowest hop here, which waits for the reader's blocks.
    pub lowest: Option<TransferId>,
}
