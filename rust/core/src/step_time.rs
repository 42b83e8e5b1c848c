//! The time of a scheduler step from one table of integers (the twin of `model/step_time.py`).

/// A base by token count plus terms in femtoseconds.
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
    /// A token of the longest sequence alone, by decode sequences; empty: no such floor under attention.
    pub longest_fs: Vec<u64>,
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
        let alone = match self.longest_fs.get(s.decode_sequences as usize) {
            Some(fs) => fs * s.decode_max_kv_tokens,
            None => 0,
        };
        let (base, linear) = if s.new_tokens == 0 {
            let fs =
                alone.max(self.kv_decode_fs * s.decode_kv_tokens) + self.spread_decode_fs * spread;
            (self.decode_base_ns[s.decode_sequences as usize], fs)
        } else {
            let fs = alone.max(self.kv_mixed_fs * s.decode_kv_tokens)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The same figures as `tests/test_step_times.py::test_the_native_table_agrees_on_figures_by_hand`.
    #[test]
    fn the_longest_sequence_alone_is_a_floor_under_attention() {
        let table = StepTimeTable {
            base_ns: vec![0, 10, 10, 10],
            decode_base_ns: vec![0, 10, 10],
            kv_decode_fs: 1_000_000,
            kv_mixed_fs: 2_000_000,
            longest_fs: vec![0, 500_000, 3_000_000],
            ..StepTimeTable::default()
        };
        let shape = |new_tokens, decode_kv_tokens, decode_max_kv_tokens| StepShape {
            new_tokens,
            decode_sequences: 2,
            decode_kv_tokens,
            decode_max_kv_tokens,
            ..StepShape::default()
        };
        assert_eq!(table.step_ns(&shape(0, 20, 10)), 10 + 30);
        assert_eq!(table.step_ns(&shape(0, 20, 5)), 10 + 20);
        assert_eq!(table.step_ns(&shape(1, 20, 10)), 10 + 40);
    }
}
