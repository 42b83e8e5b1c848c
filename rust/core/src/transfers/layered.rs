//! A channel served layer by layer: its jobs are submitted, fed and allowed, and its events run. A job's times
//! are final only at its arrival: other jobs change them until then.

use std::sync::Mutex;

use super::channel::{Channel, SharedChannel};
use super::handles::{JobId, LayersCame};
use super::job::{ChannelConfig, Transmission};
use super::layer_service::{LayerJobOf, LayerService, Link};
use super::timeline::{locked, Eventful, Happening, SharedTimeline};

impl Channel {
    /// Creates a channel served layer by layer, with its events in a timeline.
    pub fn layered(config: ChannelConfig, timeline: &SharedTimeline) -> SharedChannel {
        SharedChannel::new_cyclic(|channel| {
            let slot = locked(timeline).join(channel.clone());
            let mut channel = Self::new(config);
            let service = LayerService::new(timeline.clone(), slot);
            channel.service = Some(Box::new(service));
            channel.into()
        })
    }

    /// Returns true if the channel is served layer by layer.
    pub fn is_layered(&self) -> bool {
        self.service.is_some()
    }

    /// Queues a job; `asked.at_hand` of its layers are ready to send.
    pub(super) fn submit(&mut self, asked: &LayerJobOf, now_ns: u64) -> JobId {
        self.sent_bytes += asked.job.size_bytes;
        self.jobs += 1;
        let submitted_ns = self.submitted_at(now_ns, &asked.job);
        self.link(now_ns).submit(asked, submitted_ns)
    }

    /// Makes a job's first `layers` layers available.
    pub(super) fn feed(&mut self, id: JobId, layers: u64, now_ns: u64) {
        self.link(now_ns).feed(id, layers);
    }

    /// Limits a job that has just been queued to `layers` layers until more buffers are free.
    pub(super) fn limit(&mut self, id: JobId, layers: u64) {
        self.service_mut().limit(id, layers);
    }

    /// Allows a job's first `layers` layers, as buffers became free; they are sent once they are available.
    pub(super) fn allow(&mut self, id: JobId, layers: u64, now_ns: u64) {
        self.link(now_ns).allow(id, layers);
    }

    /// Reports each layer of a job from now on.
    pub(super) fn report_all_layers(&mut self, id: JobId) {
        self.service_mut().report_all_layers(id);
    }

    /// Returns a job's times as far as they are known.
    pub(super) fn times(&self, id: JobId) -> Option<Transmission> {
        self.service.as_deref()?.times(id)
    }

    /// Returns the arrival times of a job's sent layers.
    pub(super) fn arrivals_ns(&self, id: JobId) -> &[u64] {
        let service = self.service.as_deref();
        service.map_or(&[], |service| service.arrivals_ns(id))
    }

    /// Returns how many layers of a job have arrived.
    pub(super) fn arrived_layers(&self, id: JobId, now_ns: u64) -> u64 {
        let arrivals = self.arrivals_ns(id).iter();
        arrivals.filter(|&&ns| ns <= now_ns).count() as u64
    }

    /// Removes a job that has arrived.
    pub(super) fn forget(&mut self, id: JobId) {
        self.service_mut().forget(id);
    }

    fn service_mut(&mut self) -> &mut LayerService {
        let service = self.service.as_deref_mut();
        service.expect("a channel served layer by layer")
    }

    fn link(&mut self, now_ns: u64) -> Link<'_> {
        let service = self.service.as_deref_mut();
        Link {
            config: &self.config,
            busy_ns: &mut self.busy_ns,
            queued_ns: &mut self.queued_ns,
            service: service.expect("a channel served layer by layer"),
            now_ns,
        }
    }
}

impl Eventful for Mutex<Channel> {
    fn happen(&self, what: Happening, now_ns: u64) -> Option<LayersCame> {
        let mut channel = self
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        channel.link(now_ns).happen(what)
    }
}
