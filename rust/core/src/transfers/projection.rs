//! The times of transfers that wait for others, on plain FIFO channels: copies of all transfers and channels
//! run on without stores and requests, so nothing else is queued.

use std::sync::Arc;

use super::arrivals::Arrival;
use super::channel::{locked, Channel, SharedChannel};
use super::handles::TransferId;
use super::job::{Transmission, NOT_YET};
use super::mover::{Mover, MoverConfig};
use super::peers::{Now, Peers};
use super::remote_read::Came;
use super::traffic::Traffic;
use super::write::{WritePolicy, Writes};
use crate::convert::fit;
use crate::keys::BlockKeys;
use crate::store::{Answer, MoveId, Store, TierConfig, GPU};

/// Copies of the transfers of all machines, by number, and of their channels.
#[derive(Default)]
pub struct Projection {
    movers: Vec<Mover>,
    /// Each channel with its copy.
    channels: Vec<(SharedChannel, SharedChannel)>,
    /// True if a channel is served layer by layer: its times are unknown until they have passed.
    is_layered: bool,
}

/// Returns a store that moves no blocks.
fn no_blocks() -> Store {
    Store::new(Arc::new(BlockKeys::default()), &[TierConfig::default()])
}

impl Projection {
    /// Adds a copy of the next machine's transfers.
    pub fn add(&mut self, mover: &Mover) {
        let mut copy = Mover {
            config: MoverConfig {
                copies: None,
                ..mover.config.clone()
            },
            edges: mover.edges.clone(),
            transfers: mover.transfers.clone(),
            in_flight: mover.in_flight.clone(),
            arrivals: mover.arrivals.clone(),
            writes: Writes::new(mover.writes.policies.clone()),
            traffic: Traffic::new(mover.tiers().max(2)),
            ..Mover::default()
        };
        for edge in &mut copy.edges {
            let lanes = [&mut edge.down, &mut edge.up];
            let channels = lanes.into_iter().flat_map(|lane| &mut lane.channels);
            channels.for_each(|channel| self.copy(channel));
        }
        for transfer in copy.transfers.iter_mut() {
            let hop = transfer.hop.as_mut().map(|hop| &mut hop.channel);
            let read = transfer.read.as_mut().map(|read| &mut read.wire);
            hop.into_iter()
                .chain(read)
                .for_each(|channel| self.copy(channel));
        }
        self.movers.push(copy);
    }

    /// Replaces a channel by its copy.
    fn copy(&mut self, channel: &mut SharedChannel) {
        let known = |pair: &&(SharedChannel, SharedChannel)| Arc::ptr_eq(&pair.0, channel);
        if let Some((_, copy)) = self.channels.iter().find(known) {
            *channel = copy.clone();
            return;
        }
        let of = locked(channel);
        self.is_layered |= of.is_layered();
        let copy = SharedChannel::new(
            Channel {
                free_at_ns: of.free_at_ns,
                submitted_ns: of.submitted_ns,
                last_call_ns: of.last_call_ns,
                slowdowns: of.slowdowns.clone(),
                ..Channel::new(of.config)
            }
            .into(),
        );
        drop(of);
        self.channels.push((channel.clone(), copy.clone()));
        *channel = copy;
    }

    /// Returns the times of a machine's unfinished move if nothing else is queued; `None` if they depend on
    /// more than the transfers in flight.
    pub fn times(mut self, machine: usize, id: MoveId) -> Answer<Option<Transmission>> {
        let transfer = self.movers.get(machine).and_then(|of| of.in_flight(id));
        let Some(transfer) = transfer.filter(|_| !self.is_layered) else {
            return Ok(None);
        };
        loop {
            let sent = self.movers[machine].transfer(transfer).sent;
            if sent.is_some() || !self.run_next()? {
                return Ok(sent.filter(|sent| sent.completion_ns < NOT_YET));
            }
        }
    }

    /// Runs the next arrival; returns false if none is known.
    fn run_next(&mut self) -> Answer<bool> {
        let next =
            |(of, mover): (usize, &Mover)| mover.arrivals.next_numbered().map(|(ns, _)| (ns, of));
        let next = self.movers.iter().enumerate().filter_map(next).min();
        let Some((ns, machine)) = next.filter(|next| next.0 < NOT_YET) else {
            return Ok(false);
        };
        let mut mover = std::mem::take(&mut self.movers[machine]);
        let arrival = mover.arrivals.pop().filter(|next| !next.is_alarm());
        if let Some(Arrival { transfer, complete }) = arrival {
            if complete && !expects_copies(&mover, transfer) {
                return Ok(false);
            }
            let mut now = Now {
                store: &mut no_blocks(),
                peers: Some(self),
                ns,
            };
            if complete {
                mover.complete(&mut now, transfer)?;
            } else {
                mover.first_layer(&mut now, transfer)?;
            }
        }
        self.movers[machine] = mover;
        Ok(true)
    }
}

/// Closes the channels on which the store would copy on what a transfer has brought. Returns false if a
/// shared pool takes it, over a channel that is not known.
fn expects_copies(mover: &Mover, id: TransferId) -> bool {
    let transfer = mover.transfer(id);
    if transfer.hop.is_some() {
        return true;
    }
    let policy = mover.writes.policies.get(transfer.to);
    let ends_here = matches!(
        policy,
        None | Some(WritePolicy::Back | WritePolicy::Selective { .. })
    );
    if mover.is_written(id) && !ends_here {
        for edge in &mover.edges[transfer.to..] {
            for channel in &edge.down.channels {
                locked(channel).free_at_ns = NOT_YET;
            }
        }
    }
    mover.config.pool.is_none() || transfer.from != GPU
}

impl Peers for Projection {
    fn machines(&self) -> u32 {
        fit::<u32>(self.movers.len())
    }

    fn came(&mut self, machine: u32, came: &Came, now_ns: u64) -> Answer<()> {
        let mut mover = std::mem::take(&mut self.movers[machine as usize]);
        mover.came(&mut Now::alone(&mut no_blocks(), now_ns), came)?;
        self.movers[machine as usize] = mover;
        Ok(())
    }
}
