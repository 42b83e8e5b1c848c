//! Transfers over channels served layer by layer: submitted, fed as layers arrive, final only at their end.

use super::channel::locked;
use super::feed::Feed;
use super::handles::{FarTransfer, TransferId};
use super::job::{Transmission, NOT_YET};
use super::layer_service::LayerJobOf;
use super::mover::Mover;
use super::peers::Now;
use super::transfer::Transfer;
use crate::convert::fit;
use crate::store::{Answer, Times, GPU};

/// The layer of a transfer for which a step ends late.
#[derive(Clone, Copy, Debug)]
pub struct LatestLayer {
    /// End of the step.
    pub end_ns: u64,
    /// The layer, from 0.
    pub layer: u64,
    /// Its arrival.
    pub arrival_ns: u64,
}

impl Mover {
    /// Returns a transfer's times as far as they are known, once it is on its channel.
    pub fn sent(&self, id: TransferId) -> Option<Transmission> {
        let transfer = self.transfer(id);
        match transfer.job {
            None => transfer.sent,
            Some(job) => self.channel_of(transfer).times(job),
        }
    }

    /// Returns the arrivals of a transfer's layers, each with its number (from 0). Evenly spaced layers are
    /// reported by the first and the last, others as far as they are known.
    pub fn layer_times(&self, id: TransferId) -> Vec<(u64, u64)> {
        let transfer = self.transfer(id);
        let Some(job) = transfer.job else {
            if let Some(carried) = transfer
                .carried
                .as_ref()
                .filter(|c| !c.arrivals_ns.is_empty())
            {
                return (0..).zip(carried.arrivals_ns.iter().copied()).collect();
            }
            let last = self.config.layers - 1;
            let ends = transfer
                .sent
                .map(|sent| [(0, sent.first_layer_ns), (last, sent.completion_ns)]);
            return ends.into_iter().flatten().collect();
        };
        let channel = self.channel_of(transfer);
        let arrivals = channel.arrivals_ns(job).iter().copied();
        arrivals
            .enumerate()
            .map(|(layer, ns)| (layer as u64, ns))
            .collect()
    }

    /// Returns the layer of a transfer that ends a step latest, if it ends it later than without the transfer. The
    /// step starts at `start_ns`, takes `compute_ns`, and needs the transfer layer by layer.
    ///
    /// From the arrival of layer k on, layers k … L are still to be computed. If layers arrive evenly, the first and
    /// the last layer determine the end.
    pub fn latest_layer(
        &self,
        id: TransferId,
        start_ns: u64,
        compute_ns: u64,
    ) -> Option<LatestLayer> {
        let layers = self.config.layers;
        let sent = self.sent(id)?;
        if sent.completion_ns <= start_ns {
            return None;
        }
        let mut latest: Option<LatestLayer> = None;
        for (layer, arrival_ns) in self.layer_times(id) {
            // a transfer may have more layers than a step counts: the further ones must arrive before the step ends
            let left = i128::from(layers) - i128::from(layer);
            let part = -(-i128::from(compute_ns) * left).div_euclid(i128::from(layers));
            let end_ns = fit::<u64>((i128::from(arrival_ns) + part).max(0));
            if end_ns > latest.map_or(start_ns + compute_ns, |latest| latest.end_ns) {
                latest = Some(LatestLayer {
                    end_ns,
                    layer,
                    arrival_ns,
                });
            }
        }
        latest
    }

    /// Returns the known arrivals of a transfer's layers, on a channel served layer by layer.
    pub(super) fn arrivals_ns(&self, id: TransferId) -> Vec<u64> {
        let transfer = self.transfer(id);
        let arrivals = |job| self.channel_of(transfer).arrivals_ns(job).to_vec();
        transfer.job.map_or(Vec::new(), arrivals)
    }

    /// Queues a transfer on its channel; `feed` brings its layers, if it is fed.
    pub(super) fn submit(&mut self, id: TransferId, feed: Option<TransferId>, now_ns: u64) {
        self.charge(id, now_ns);
        let at_hand = self.at_hand(id, feed, now_ns);
        let transfer = self.transfer(id);
        let machine = self.config.machine;
        let asked = LayerJobOf {
            job: self.job_of(transfer),
            at_hand,
            is_load: transfer.from > transfer.to,
            of: FarTransfer { machine, id },
        };
        let mut channel = self.channel_of(transfer);
        channel.demand.ask(asked.job.size_bytes, now_ns);
        let job = channel.submit(&asked, now_ns);
        let loads = asked.is_load && transfer.to == GPU && transfer.hop.is_none();
        if let Some(layers) = self.config.read_buffer_layers.filter(|_| loads) {
            // Its first layer has a buffer in any case, and no layer has been sent yet.
            channel.limit(job, layers);
        }
        drop(channel);
        self.transfers[id].job = Some(job);
    }

    /// Returns how many layers of a transfer are available now; `feed` brings its layers, if it is fed.
    fn at_hand(&self, id: TransferId, feed: Option<TransferId>, now_ns: u64) -> u64 {
        let (transfer, layers) = (self.transfer(id), self.config.layers);
        if let Some(before) = feed.map(|feed| self.transfer(feed)) {
            let mut channel = self.channel_of(before);
            if let Some(job) = before.job {
                channel.report_all_layers(job);
                return channel.arrived_layers(job, now_ns);
            }
        }
        let read = transfer.read.as_deref().and_then(|read| read.job.as_ref());
        let hop = transfer.hop.as_deref();
        let far = read.or(hop.and_then(|hop| hop.far.as_ref()));
        match (far, hop.map(|hop| hop.feed)) {
            (Some(far), _) => locked(&far.channel).arrived_layers(far.id, now_ns),
            (None, Some(Feed::Comes(step))) => step.computed_by(now_ns, layers),
            _ => layers,
        }
    }

    /// Reports each layer of a transfer on its channel from now on.
    pub fn report_all_layers(&mut self, id: TransferId) {
        let transfer = self.transfer(id);
        if let Some(job) = transfer.job {
            self.channel_of(transfer).report_all_layers(job);
        }
    }

    /// Returns the arrival of a transfer's layer (from 0), once it has been sent over a channel served layer
    /// by layer.
    pub fn arrival_ns(&self, transfer: &Transfer, layer: u64) -> Option<u64> {
        let channel = self.channel_of(transfer);
        channel
            .arrivals_ns(transfer.job?)
            .get(fit::<usize>(layer))
            .copied()
    }

    /// Allows a load's first `layers` layers, as buffers became free; they are sent once they are available.
    pub fn allow(&self, id: TransferId, layers: u64, now_ns: u64) {
        let transfer = self.transfer(id);
        if let Some(job) = transfer.job {
            self.channel_of(transfer).allow(job, layers, now_ns);
        }
    }

    /// Makes the first `layers` layers of a transfer on its channel available.
    pub(super) fn feed_on(&mut self, id: TransferId, layers: u64, now_ns: u64) {
        let transfer = self.transfer(id);
        if let Some(job) = transfer.job {
            self.channel_of(transfer).feed(job, layers, now_ns);
        }
    }

    /// Handles the arrival of some layers of a transfer, but not all: feeds them to its dependents. Returns
    /// true if the arrival of the first layer is to be reported.
    pub fn layer_came(&mut self, now: &mut Now<'_>, id: TransferId, layers: u64) -> Answer<bool> {
        for dependent in self.transfers[id].dependents.clone() {
            match self.transfer(dependent).relay {
                Some(relay) if layers > 1 => self.pass_on(now, dependent, relay)?,
                _ => self.feed_on(dependent, layers, now.ns),
            }
        }
        if layers > 1 {
            return Ok(false);
        }
        let transfer = self.transfer(id);
        let (move_id, is_hop) = (transfer.id, transfer.hop.is_some());
        if let (false, Some(moving), Some(sent)) = (is_hop, now.store.moving(), self.sent(id)) {
            let times = Times {
                first_layer_ns: sent.first_layer_ns,
                ready_ns: NOT_YET,
            };
            moving.set_times(move_id, times)?;
        }
        Ok(self.comes_by_layer(self.transfer(id)))
    }

    /// Handles the arrival of a whole transfer, whose times are final.
    pub fn all_came(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        match self.sent(id) {
            Some(sent) => self.note(now, id, sent),
            None => Ok(()),
        }
    }
}
