//! The jobs of a channel served layer by layer, event by event: fair sharing, loads first, and FIFO as a check
//! of both (the rules of `spec/channels.py`).

use super::handles::{FarTransfer, JobId, LayersCame};
use super::job::{ChannelConfig, Job, Transmission, NOT_YET};
use super::timeline::{locked, Happening, SharedTimeline};
use crate::slab::Slab;

/// Parts of a nanosecond: a share of up to 16 jobs stays exact.
const PARTS: i128 = 720_720;

/// A job in flight: available layers, sent layers, and the remaining cost of its current layer.
#[derive(Clone, Debug, Default)]
struct LayerJob {
    /// The transfer that is notified of its arrivals.
    of: Option<FarTransfer>,
    layers: u64,
    at_hand: u64,
    /// Layers for which there is a read buffer; all, unless a limit is set.
    allowed: u64,
    is_load: bool,
    /// True once the CPU has submitted it.
    is_submitted: bool,
    requested_ns: u64,
    /// CPU time to submit it.
    submit_ns: u64,
    sent: u64,
    /// In parts of nanoseconds.
    left: i128,
    per_layer_ns: u64,
    start_ns: Option<u64>,
    arrivals_ns: Vec<u64>,
    /// True if each arriving layer is reported, because another transfer sends it on.
    feeds: bool,
}

impl LayerJob {
    fn can_send(&self) -> bool {
        self.is_submitted && self.sent < self.at_hand && self.sent < self.allowed
    }

    /// Returns true if no buffer is free for its next layer; other jobs are served before it then.
    fn waits_for_buffer(&self) -> bool {
        self.sent == self.allowed
    }

    fn layer_parts(&self) -> i128 {
        i128::from(self.per_layer_ns) * PARTS
    }
}

/// A request to a channel served layer by layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerJobOf {
    /// Bytes, pieces, layers.
    pub job: Job,
    /// Layers that are available at once.
    pub at_hand: u64,
    /// True if it loads towards the GPU.
    pub is_load: bool,
    /// The transfer that is notified of its arrivals.
    pub of: FarTransfer,
}

/// The served and the waiting jobs of a channel.
#[derive(Debug)]
pub struct LayerService {
    timeline: SharedTimeline,
    /// Its index among the channels of the timeline.
    slot: u32,
    jobs: Slab<LayerJob>,
    queue: Vec<JobId>,
    served: Vec<JobId>,
    at_ns: u64,
    /// End of the latency that occupies the link.
    closed_until_ns: u64,
}

impl LayerService {
    /// Creates the service of a channel without jobs.
    pub(super) fn new(timeline: SharedTimeline, slot: u32) -> Self {
        Self {
            timeline,
            slot,
            jobs: Slab::default(),
            queue: Vec::new(),
            served: Vec::new(),
            at_ns: 0,
            closed_until_ns: 0,
        }
    }

    /// Limits a job that has just been queued to `layers` layers until more buffers are free.
    pub(super) fn limit(&mut self, id: JobId, layers: u64) {
        let job = &mut self.jobs[id];
        job.allowed = layers.min(job.layers);
    }

    /// Reports each layer of a job from now on.
    pub(super) fn report_all_layers(&mut self, id: JobId) {
        self.jobs[id].feeds = true;
    }

    /// Returns a job's times as far as they are known.
    pub(super) fn times(&self, id: JobId) -> Option<Transmission> {
        let job = self.jobs.get(id as usize)?;
        let last = (job.sent == job.layers).then(|| job.arrivals_ns.last().copied());
        Some(Transmission {
            start_ns: job.start_ns.unwrap_or(NOT_YET),
            first_layer_ns: job.arrivals_ns.first().copied().unwrap_or(NOT_YET),
            completion_ns: last.flatten().unwrap_or(NOT_YET),
            per_layer_ns: job.per_layer_ns,
        })
    }

    /// Returns the arrival times of a job's sent layers.
    pub(super) fn arrivals_ns(&self, id: JobId) -> &[u64] {
        let job = self.jobs.get(id as usize);
        job.map_or(&[], |job| &job.arrivals_ns)
    }

    /// Removes a job that has arrived.
    pub(super) fn forget(&mut self, id: JobId) {
        self.jobs.free(id);
    }

    /// Returns the wait of a job queued now for its first byte, if jobs were served in turn.
    pub(super) fn wait_ns(&self, config: &ChannelConfig) -> u64 {
        if config.is_fair {
            return 0;
        }
        let jobs = self.queue.iter().map(|&id| &self.jobs[id]);
        jobs.fold(0, |sum, job| {
            let left = (job.layers - job.sent).saturating_mul(job.per_layer_ns);
            u64::saturating_add(sum, left)
        })
    }

    /// Returns the layers to notify as a number of a job's layers have arrived: the first, the last, or each.
    fn reported(&self, id: JobId, layers: u64) -> Option<LayersCame> {
        let job = &self.jobs[id];
        let is_reported = layers == 1 || layers == job.layers || job.feeds;
        job.of
            .filter(|_| is_reported)
            .map(|of| LayersCame { of, layers })
    }
}
/// A channel served layer by layer at a moment.
pub(super) struct Link<'a> {
    pub config: &'a ChannelConfig,
    pub busy_ns: &'a mut u64,
    pub queued_ns: &'a mut u64,
    pub service: &'a mut LayerService,
    pub now_ns: u64,
}

impl Link<'_> {
    /// Queues a job, which the CPU has submitted at `submitted_ns`; `asked.at_hand` of its layers are ready to
    /// send.
    pub(super) fn submit(&mut self, asked: &LayerJobOf, submitted_ns: u64) -> JobId {
        let submit_ns = self.config.submit_ns(asked.job.pieces);
        let id = self.service.jobs.take();
        let job = &mut self.service.jobs[id];
        job.arrivals_ns.clear();
        *job = LayerJob {
            of: Some(asked.of),
            layers: asked.job.layers,
            at_hand: asked.at_hand,
            allowed: asked.job.layers,
            is_load: asked.is_load,
            is_submitted: submit_ns == 0,
            requested_ns: self.now_ns,
            submit_ns,
            per_layer_ns: self.config.layer_ns(&asked.job),
            arrivals_ns: std::mem::take(&mut job.arrivals_ns),
            ..LayerJob::default()
        };
        job.left = job.layer_parts();
        self.catch_up();
        self.service.queue.push(id);
        if submit_ns > 0 {
            let service = &*self.service;
            locked(&service.timeline).enter(submitted_ns, service.slot, Happening::Submitted(id));
        }
        self.serve();
        id
    }

    /// Makes a job's first `layers` layers available.
    pub(super) fn feed(&mut self, id: JobId, layers: u64) {
        self.change(|service| service.jobs[id].at_hand = layers);
    }

    /// Allows a job's first `layers` layers, as buffers became free; they are sent once they are available.
    pub(super) fn allow(&mut self, id: JobId, layers: u64) {
        self.change(|service| service.limit(id, layers));
    }

    /// Changes what can be sent, after accounting for the time until now.
    fn change(&mut self, change: impl FnOnce(&mut LayerService)) {
        self.catch_up();
        change(self.service);
        self.serve();
    }

    /// Runs an event; returns the layers of which a machine is to be notified.
    pub(super) fn happen(&mut self, what: Happening) -> Option<LayersCame> {
        match what {
            Happening::Served => {
                self.catch_up();
                for id in self.service.served.clone() {
                    if self.service.jobs[id].left <= 0 {
                        self.layer_sent(id);
                    }
                }
                self.serve();
                None
            }
            Happening::Submitted(id) => {
                self.change(|service| service.jobs[id].is_submitted = true);
                None
            }
            Happening::Arrived(id, layers) => self.service.reported(id, layers),
        }
    }

    /// Accounts for the time since the last event.
    fn catch_up(&mut self) {
        let service = &mut *self.service;
        let elapsed_ns = self.now_ns - service.at_ns;
        service.at_ns = self.now_ns;
        if elapsed_ns == 0 || service.served.is_empty() {
            return;
        }
        *self.busy_ns += elapsed_ns;
        let share = i128::from(elapsed_ns) * PARTS / service.served.len() as i128;
        for &id in &service.served {
            service.jobs[id].left -= share;
        }
    }

    /// Chooses the jobs to serve from now on.
    fn choose(&mut self) {
        let LayerService {
            jobs,
            queue,
            served,
            ..
        } = &mut *self.service;
        let of = |id: &JobId| &jobs[*id];
        let has_started = |id: &JobId| of(id).left < of(id).layer_parts();
        if !self.config.is_fair && served.iter().any(has_started) {
            return; // a layer that has started is finished first
        }
        served.clear();
        if self.config.is_fair || self.config.loads_first {
            served.extend(queue.iter().filter(|id| of(id).can_send()));
        } else {
            let first = queue.iter().find(|id| !of(id).waits_for_buffer());
            served.extend(first.filter(|id| of(id).can_send()));
        }
        if self.config.loads_first && served.iter().any(|id| of(id).is_load) {
            served.retain(|id| of(id).is_load);
        }
        if !self.config.is_fair {
            served.truncate(1);
        }
    }

    /// Chooses the jobs to serve from now on, and schedules the next change.
    fn serve(&mut self) {
        let now_ns = self.now_ns;
        locked(&self.service.timeline).cancel(self.service.slot);
        let at_ns = if self.service.closed_until_ns > now_ns {
            self.service.served.clear();
            self.service.closed_until_ns
        } else {
            self.choose();
            let service = &mut *self.service;
            let left = service.served.iter().map(|&id| service.jobs[id].left);
            let Some(least) = left.min() else { return };
            let all = least * service.served.len() as i128;
            let spans_ns = (all.max(0) + PARTS - 1) / PARTS;
            for &id in &service.served {
                let job = &mut service.jobs[id];
                if job.start_ns.is_none() {
                    job.start_ns = Some(now_ns);
                    *self.queued_ns += (now_ns - job.requested_ns).saturating_sub(job.submit_ns);
                }
            }
            now_ns.saturating_add(u64::try_from(spans_ns).unwrap_or(u64::MAX))
        };
        locked(&self.service.timeline).serve_at(at_ns, self.service.slot);
    }

    /// Handles the end of a job's layer on the link.
    fn layer_sent(&mut self, id: JobId) {
        let (now_ns, service) = (self.now_ns, &mut *self.service);
        let arrival_ns = now_ns.saturating_add(self.config.latency_ns);
        let job = &mut service.jobs[id];
        job.sent += 1;
        job.left += job.layer_parts();
        job.arrivals_ns.push(arrival_ns);
        if job.sent == job.layers {
            service.queue.retain(|&other| other != id);
            if self.config.latency_occupies {
                service.closed_until_ns = arrival_ns;
            }
        } else if !job.can_send() {
            job.left = job.layer_parts(); // no credit while it waits for its next layer
        }
        let layers = job.sent;
        service.served.retain(|&other| other != id);
        let arrives = Happening::Arrived(id, layers);
        locked(&service.timeline).enter(arrival_ns, service.slot, arrives);
    }
}
