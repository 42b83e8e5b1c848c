//! The rolling hash over semantic records: equal histories give equal digests, whatever engine ran them.

/// The event types of records; the discriminants are part of the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Record {
    /// A request arrived.
    Arrive = 1,
    /// A request was admitted to the batch.
    Admit = 2,
    /// A request's first output token was generated.
    FirstToken = 3,
    /// A running request was preempted.
    Preempt = 4,
    /// Blocks were evicted from a tier.
    Evict = 5,
    /// A transmission between tiers or machines ended.
    Transfer = 6,
    /// A request finished.
    Finish = 7,
    /// A request's KV was handed over.
    Handover = 8,
}

/// A 64-bit rolling hash: `h = mix((h ^ word) · K)` for every word, all arithmetic modulo 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl Default for Digest {
    fn default() -> Self {
        Self(0x6B76_7369_6D00_0001)
    }
}

impl Digest {
    /// Adds one word.
    pub fn word(&mut self, word: u64) {
        let h = (self.0 ^ word).wrapping_mul(MULTIPLIER);
        self.0 = h ^ (h >> 32);
    }

    /// Adds one record.
    pub fn record(&mut self, kind: u8, time_ns: u64, subject: u64, value: u64) {
        self.word(u64::from(kind));
        self.word(time_ns);
        self.word(subject);
        self.word(value);
    }

    /// The hash so far.
    pub fn value(&self) -> u64 {
        self.0
    }
}
