//! The time of a scheduler step from one table of integers (the twin of `model/step_time.py`).

/// A base by token count plus linear terms in femtoseconds.
#[derive(Clone, Debug, Default)]
pub struct StepTimeTable {
    pub base_ns: Vec<u64>,
    pub decode_base_ns: Vec<u64>,
    pub pair_half_fs: u64,
    pub kv_decode_fs: u64,
    pub kv_mixed_fs: u64,
    pub sequence_fs: u64,
    pub past_fs: u64,
    pub spread_decode_fs: u64,
    pub spread_mixed_fs: u64,
}

/// What one step computes, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Tokens of all prefill chunks.
    pub new_tokens: u64,
    /// Σ new · (2·past + new) over the chunks.
    pub pairs: u64,
    /// Σ past over the chunks.
    pub past_tokens: u64,
    pub decode_sequences: u64,
    pub decode_kv_tokens: u64,
    pub decode_max_kv_tokens: u64,
}

impl StepTimeTable {
    /// The step's duration in ns; the shape must lie within the table.
    pub fn step_ns(&self, s: &StepShape) -> u64 {
        let spread = s.decode_sequences * s.decode_max_kv_tokens - s.decode_kv_tokens;
        let (base, linear) = if s.new_tokens == 0 {
            let fs = self.kv_decode_fs * s.decode_kv_tokens + self.spread_decode_fs * spread;
            (self.decode_base_ns[s.decode_sequences as usize], fs)
        } else {
            let fs = self.kv_mixed_fs * s.decode_kv_tokens
                + self.spread_mixed_fs * spread
                + self.pair_half_fs * s.pairs
                + self.past_fs * s.past_tokens;
            (
                self.base_ns[(s.new_tokens + s.decode_sequences) as usize],
                fs,
            )
        };
        base + (linear + self.sequence_fs * s.decode_sequences + 500_000) / 1_000_000
    }
}
