//! A job of a channel, the settings that give its time there, and its times.

/// A time that is not known yet: later than any other.
pub const NOT_YET: u64 = 1 << 62;

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
