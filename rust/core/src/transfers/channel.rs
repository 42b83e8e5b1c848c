//! A channel: the link that carries KV between two tiers, first come, first served (the rules of
//! `spec/channels.py`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::demand::Demand;
use super::job::{ChannelConfig, Job, Transmission};
use super::layer_service::LayerService;
use super::slowed::{is_slow, send_slowly, Slowdown};

/// A channel, which other machines and Python may use too.
pub type SharedChannel = Arc<Mutex<Channel>>;

/// Locks a mutex that only one thread uses at a time.
pub(super) fn locked(channel: &SharedChannel) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time at which a job was requested, and those between which it is on the channel.
struct Occupancy {
    requested_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

/// A link on which jobs are sent one after another, layer by layer; a job's times are final when it is
/// queued.
///
/// ```
/// use kvsim_core::transfers::{Channel, ChannelConfig, Job};
///
/// // 100 bytes at one byte per ns, in four layers; 7 ns of latency are added and do not occupy the channel.
/// let config = ChannelConfig { bandwidth_bytes_per_s: 1_000_000_000, latency_ns: 7, ..Default::default() };
/// let mut channel = Channel::new(config);
/// let job = Job { size_bytes: 100, pieces: 0, layers: 4, coding_ns: 0 };
/// let first = channel.transmit(&job, 1_000);
/// assert_eq!((first.first_layer_ns, first.completion_ns), (1_032, 1_107));
/// assert_eq!(channel.transmit(&job, 1_000).start_ns, 1_100);
/// assert_eq!(channel.queued_ns, 100);
/// ```
#[derive(Debug, Default)]
pub struct Channel {
    /// Its configuration.
    pub config: ChannelConfig,
    /// Time at which all queued jobs are sent.
    pub free_at_ns: u64,
    /// Time at which the CPU has submitted all queued jobs.
    pub(super) submitted_ns: u64,
    /// Total time for which queued jobs occupy it.
    pub busy_ns: u64,
    /// Total time that jobs have waited for earlier ones.
    pub queued_ns: u64,
    /// Bytes queued so far.
    pub sent_bytes: u64,
    /// Jobs queued so far.
    pub jobs: u64,
    /// The rate demanded of it.
    pub demand: Demand,
    /// Time at which the last job was queued.
    pub last_call_ns: u64,
    /// Times of a lower rate, in order and without overlap.
    pub slowdowns: Vec<Slowdown>,
    /// Set on a channel served layer by layer: its jobs are submitted, not transmitted.
    pub(super) service: Option<Box<LayerService>>,
}

impl Channel {
    /// Creates an idle channel.
    pub fn new(config: ChannelConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Returns how long a job of `pieces` pieces queued now would wait for earlier jobs and its own
    /// submission.
    pub fn wait_ns(&self, now_ns: u64, pieces: u64) -> u64 {
        let sent_ns = match self.service.as_deref() {
            Some(service) => service.wait_ns(&self.config),
            None => self.free_at_ns.saturating_sub(now_ns),
        };
        match self.config.submit_ns(pieces) {
            0 => sent_ns,
            submit_ns => sent_ns.max(self.submitted_ns.saturating_sub(now_ns) + submit_ns),
        }
    }

    /// Returns the estimated delays, in ns, until the first and the last layer of a job queued now arrive.
    pub fn expected_ns(&self, job: &Job, now_ns: u64) -> (u64, u64) {
        let per_layer_ns = self.config.layer_ns(job);
        let start_ns = self.wait_ns(now_ns, job.pieces) + self.config.latency_ns;
        (
            start_ns + per_layer_ns,
            start_ns + job.layers * per_layer_ns,
        )
    }

    /// Submits a job by the CPU at the requested time; returns the end of the submission.
    ///
    /// The CPU submits one job after another, all of a job in one call. A job's bytes wait for its own
    /// submission; the bytes of earlier jobs do not.
    pub(super) fn submitted_at(&mut self, requested_ns: u64, job: &Job) -> u64 {
        let begins_ns = requested_ns.max(self.submitted_ns);
        self.submitted_ns = begins_ns.saturating_add(self.config.submit_ns(job.pieces));
        self.submitted_ns
    }

    /// Queues a job whose data are all available; an empty job takes no time and does not queue.
    pub fn transmit(&mut self, job: &Job, now_ns: u64) -> Transmission {
        self.forward(job, &Transmission::at(now_ns))
    }

    /// Queues a job fed layer by layer by an earlier hop; called when that hop's first layer arrives.
    ///
    /// Layer k starts when it has arrived and the channel is done with layer k − 1. The last layer arrives at
    /// latency + max(f₁ + L·p₂, f₁ + (L−1)·p₁ + p₂, s₂ + L·p₂).
    pub fn forward(&mut self, job: &Job, feed: &Transmission) -> Transmission {
        if job.size_bytes == 0 {
            return Transmission {
                start_ns: feed.first_layer_ns,
                per_layer_ns: 0,
                ..*feed
            };
        }
        let per_layer_ns = self.config.layer_ns(job);
        let submitted_ns = self.submitted_at(feed.first_layer_ns, job);
        let start_ns = submitted_ns.max(self.free_at_ns);
        let alone = start_ns.saturating_add(job.layers.saturating_mul(per_layer_ns));
        let end_ns = alone.max(feed.completion_ns.saturating_add(per_layer_ns));
        let requested_ns = feed.first_layer_ns;
        let mut occupied = Occupancy {
            requested_ns,
            start_ns,
            end_ns,
        };
        let mut fastest_ns = per_layer_ns;
        let mut first_sent_ns = start_ns.saturating_add(per_layer_ns);
        let mut busy_ns = job.layers.saturating_mul(per_layer_ns);
        if is_slow(&self.slowdowns, start_ns, end_ns) {
            let slowed = send_slowly(&self.slowdowns, start_ns, per_layer_ns, job, feed);
            occupied.end_ns = slowed.end_ns;
            fastest_ns = slowed.fastest_layer_ns;
            first_sent_ns = slowed.end_ns - (job.layers - 1) * fastest_ns;
            busy_ns = slowed.end_ns - start_ns;
        }
        self.account(&occupied, busy_ns, job);
        let latency_ns = self.config.latency_ns;
        Transmission {
            start_ns,
            first_layer_ns: first_sent_ns.saturating_add(latency_ns),
            completion_ns: occupied.end_ns.saturating_add(latency_ns),
            per_layer_ns: fastest_ns,
        }
    }

    /// Adds a job to the channel's totals.
    fn account(&mut self, occupied: &Occupancy, busy_ns: u64, job: &Job) {
        let &Occupancy {
            requested_ns,
            start_ns,
            end_ns,
        } = occupied;
        debug_assert!(
            requested_ns >= self.last_call_ns,
            "jobs are queued in time order"
        );
        self.last_call_ns = requested_ns;
        let submit_ns = self.config.submit_ns(job.pieces);
        let queued_ns = (start_ns - requested_ns).saturating_sub(submit_ns);
        self.queued_ns = self.queued_ns.saturating_add(queued_ns);
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
        self.sent_bytes += job.size_bytes;
        self.jobs += 1;
        let occupied_ns = if self.config.latency_occupies {
            self.config.latency_ns
        } else {
            0
        };
        debug_assert!(end_ns >= self.free_at_ns, "I5: jobs end in order");
        self.free_at_ns = end_ns.saturating_add(occupied_ns);
    }
}
