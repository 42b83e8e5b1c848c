//! A channel: the link that carries KV between two tiers, first come, first served (the rules of
//! `spec/channels.py`).

use super::demand::Demand;
use super::layered::LayerService;
use super::slowed::Slowdown;

const NS_PER_S: u128 = 1_000_000_000;

/// Rate, latency and per-piece costs of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelConfig {
    /// Bytes per second.
    pub bandwidth_bytes_per_s: u64,
    /// Time from the end of a transmission to its arrival.
    pub latency_ns: u64,
    /// Minimum time of each piece.
    pub piece_overhead_ns: u64,
    /// Time between the bytes of one piece and those of the next.
    pub piece_gap_ns: u64,
    /// CPU time to submit each piece; all of a job is submitted before its first byte.
    pub piece_submit_ns: u64,
    /// True if the next job waits for the latency too.
    pub latency_occupies: bool,
    /// True if all jobs share the rate, on a channel served layer by layer.
    pub is_fair: bool,
    /// True if jobs to the GPU are served first, on a channel served layer by layer.
    pub loads_first: bool,
}

/// A job to send: bytes in pieces, of a number of layers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// Total bytes.
    pub size_bytes: u64,
    /// Separate copies that it consists of.
    pub pieces: u64,
    /// Equal parts that arrive one after another.
    pub layers: u64,
    /// Time to encode or decode all of it, piece by piece as it is sent.
    pub coding_ns: u64,
}

/// Times of a job: its start, the arrival of its first layer and of all of it, and each layer's time on the
/// channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmission {
    /// Start of its first byte.
    pub start_ns: u64,
    /// Arrival of its first layer.
    pub first_layer_ns: u64,
    /// Arrival of all of it.
    pub completion_ns: u64,
    /// Time for which each layer occupies the channel.
    pub per_layer_ns: u64,
}

impl Transmission {
    /// Returns a transmission that arrives as a whole at one moment.
    pub fn at(ns: u64) -> Self {
        Self {
            start_ns: ns,
            first_layer_ns: ns,
            completion_ns: ns,
            per_layer_ns: 0,
        }
    }

    /// Returns the time at which a step that computes evenly between these times has computed `layers` of its
    /// layers.
    pub fn computed_ns(&self, layers: u64, of: u64) -> u64 {
        self.start_ns + (self.completion_ns - self.start_ns) * layers / of
    }

    /// Returns how many layers a step has computed by a time, if it computes evenly between these times.
    pub(super) fn computed_by(&self, now_ns: u64, of: u64) -> u64 {
        let computed = (1..=of).take_while(|&layers| self.computed_ns(layers, of) <= now_ns);
        computed.count() as u64
    }
}

impl ChannelConfig {
    /// Returns how long one layer of a job occupies the channel: max(bytes / bandwidth + pieces · gap, pieces
    /// · overhead, coding) / layers, rounded up.
    pub fn layer_ns(&self, job: &Job) -> u64 {
        let bytes = u128::from(job.size_bytes) * NS_PER_S;
        let moved = match u64::try_from(bytes) {
            Ok(bytes) => bytes.div_ceil(self.bandwidth_bytes_per_s),
            Err(_) => {
                let moved = bytes.div_ceil(u128::from(self.bandwidth_bytes_per_s));
                u64::try_from(moved).unwrap_or(u64::MAX)
            }
        };
        let apart = moved.saturating_add(job.pieces.saturating_mul(self.piece_gap_ns));
        let least = job.pieces.saturating_mul(self.piece_overhead_ns);
        apart.max(least).max(job.coding_ns).div_ceil(job.layers)
    }

    /// Returns the CPU time to submit `pieces` pieces.
    pub(super) fn submit_ns(&self, pieces: u64) -> u64 {
        pieces.saturating_mul(self.piece_submit_ns)
    }
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
            Some(service) => self.layered_wait_ns(service),
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
        if self.is_slow(start_ns, end_ns) {
            let times_ns = (feed.first_layer_ns, start_ns);
            return self.send_slowly(times_ns, per_layer_ns, job, feed);
        }
        self.sent((feed.first_layer_ns, start_ns, end_ns), per_layer_ns, job)
    }

    /// Records a job with its request time and its start and end on the channel.
    fn sent(
        &mut self,
        (requested_ns, start_ns, end_ns): (u64, u64, u64),
        per_layer_ns: u64,
        job: &Job,
    ) -> Transmission {
        let latency_ns = self.config.latency_ns;
        let busy_ns = job.layers.saturating_mul(per_layer_ns);
        self.account((requested_ns, start_ns, end_ns), busy_ns, job);
        Transmission {
            start_ns,
            first_layer_ns: start_ns
                .saturating_add(latency_ns)
                .saturating_add(per_layer_ns),
            completion_ns: end_ns.saturating_add(latency_ns),
            per_layer_ns,
        }
    }

    /// Adds a job to the channel's totals.
    pub(super) fn account(
        &mut self,
        (requested_ns, start_ns, end_ns): (u64, u64, u64),
        busy_ns: u64,
        job: &Job,
    ) {
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
