//! The time of a scheduler step from one table of integers (the rules of `model/step_time.py`).

use crate::residual_grid::ResidualGrid;

/// A base by token count plus terms in femtoseconds.
///
/// ```
/// use kvsim_core::step_time::{StepShape, StepTimeTable};
///
/// // A decode step of one sequence: 10 ns, and 2 ns (2,000,000 fs) for each token of KV.
/// let table = StepTimeTable {
///     decode_base_ns: vec![0, 10],
///     kv_decode_fs: 2_000_000,
///     ..StepTimeTable::default()
/// };
/// let shape = StepShape {
///     decode_sequences: 1,
///     decode_kv_tokens: 100,
///     decode_max_kv_tokens: 100,
///     ..StepShape::default()
/// };
/// assert_eq!(table.step_ns(&shape), 210);
/// ```
#[derive(Clone, Debug, Default)]
pub struct StepTimeTable {
    /// Base of a step with a prefill chunk, by its tokens.
    pub base_ns: Vec<u64>,
    /// Base if a chunk has a past, which another kernel reads; empty: `base_ns` applies.
    pub past_base_ns: Vec<u64>,
    /// Base of a decode step, by its sequences; negative if `sequence_fs`, fitted to mixed steps, is too
    /// large for it.
    pub decode_base_ns: Vec<i64>,
    /// Per pair of query and key tokens of the chunks, halved.
    pub pair_half_fs: u64,
    /// For decode sequences in a step with a chunk, whatever their number: a separate kernel per layer.
    pub alongside_fs: u64,
    /// Per KV token of a decode step.
    pub kv_decode_fs: u64,
    /// Per KV token of the decode sequences in a step with a prefill chunk.
    pub kv_mixed_fs: u64,
    /// Per decode sequence.
    pub sequence_fs: u64,
    /// Per token of a chunk's past.
    pub past_fs: u64,
    /// Per token by which a sequence of a decode step is shorter than the longest.
    pub spread_decode_fs: u64,
    /// Per token by which a sequence of a step with a prefill chunk is shorter than the longest.
    pub spread_mixed_fs: u64,
    /// Per token of the longest sequence of a step with a prefill chunk, read by one core: a lower bound of attention.
    pub scan_fs: u64,
    /// Per token of the chunks for each decode sequence in the step: idle tiles of the kernel's grid.
    pub idle_fs: u64,
    /// Least count of a decode sequence's KV tokens.
    pub least_kv_tokens: u64,
    /// Least count of a chunk's tokens against its past.
    pub least_query_tokens: u64,
    /// Per token of the longest sequence alone, by decode sequences; empty: no such lower bound of attention.
    pub longest_fs: Vec<u64>,
    /// Least number of decode sequences whose KV the attention kernel no longer splits; 0: it always does.
    pub unsplit_sequences: u64,
    /// Per token of the longest of that many sequences, which one block reads.
    pub unsplit_fs: u64,
    /// Part of that time in which the others run, per token of their mean.
    pub unsplit_hidden_fs: u64,
    /// Residuals of a decode step, by its sequences and their mean KV, in ns.
    pub kv_residuals: ResidualGrid,
    /// Residuals of decode sequences in a step with a chunk.
    pub mixed_residuals: ResidualGrid,
    /// Residuals of a chunk with a past, by its tokens and the past's, in ns.
    pub past_residuals: ResidualGrid,
    /// The host's time to launch a step without a CUDA graph, kernel by kernel; a step takes at least its launch.
    pub launch_ns: u64,
    /// Most tokens of a step that a graph captures.
    pub captured_tokens: u64,
    /// The host's time to launch a step with a chunk that graphs capture in pieces.
    pub pieces_launch_ns: u64,
    /// The host's time to launch a decode step that one graph captures.
    pub graph_launch_ns: u64,
    /// Launch time per decode sequence.
    pub launch_sequence_ns: u64,
    /// Time from the launch's end to the step's end on a GPU that waited for the launch: the kernels launched
    /// last.
    pub tail_ns: u64,
    /// The part of the tail per decode sequence.
    pub tail_sequence_ns: u64,
}

/// The work of one step, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Tokens of all prefill chunks.
    pub new_tokens: u64,
    /// [`StepTimeTable::pairs`] over the chunks.
    pub pairs: u64,
    /// Σ past over the chunks.
    pub past_tokens: u64,
    /// [`StepTimeTable::past_residuals`] over the chunks that have a past, in ns.
    pub past_residual_ns: i64,
    /// The largest past + new of a chunk.
    pub longest_chunk_tokens: u64,
    /// Number of sequences that get one token each.
    pub decode_sequences: u64,
    /// KV tokens of all decode sequences.
    pub decode_kv_tokens: u64,
    /// KV tokens of the longest decode sequence.
    pub decode_max_kv_tokens: u64,
}

impl StepShape {
    /// Adds a chunk of a prompt after `past` tokens that have KV.
    pub fn add_chunk(&mut self, new: u64, past: u64, table: &StepTimeTable) {
        self.new_tokens += new;
        self.pairs += table.pairs(new, past);
        self.past_tokens += past;
        if past > 0 {
            self.past_residual_ns += table.past_residuals.at(new, past);
        }
        self.longest_chunk_tokens = self.longest_chunk_tokens.max(past + new);
    }

    /// The decode sequences only.
    pub fn without_chunks(&self) -> Self {
        Self {
            decode_sequences: self.decode_sequences,
            decode_kv_tokens: self.decode_kv_tokens,
            decode_max_kv_tokens: self.decode_max_kv_tokens,
            ..Self::default()
        }
    }

    /// Adds a sequence that gets one token after `past` tokens that have KV.
    pub fn add_decode(&mut self, past: u64) {
        self.decode_sequences += 1;
        self.decode_kv_tokens += past;
        self.decode_max_kv_tokens = self.decode_max_kv_tokens.max(past);
    }
}

/// A rank's own part of a composed step.
#[derive(Clone, Copy, Debug)]
pub struct RankStep {
    /// Time of its kernels, without work that all ranks share.
    pub kernels_ns: u64,
    /// The duration that it would have alone: of its kernels or of their launch.
    pub step_ns: u64,
    /// Number of its tokens.
    pub tokens: u64,
}

impl RankStep {
    /// Returns the duration with shared work, which also hides behind the launch.
    pub fn with(&self, shared_ns: u64) -> u64 {
        self.step_ns.max(self.kernels_ns.saturating_add(shared_ns))
    }
}

impl StepTimeTable {
    /// Twice the products of a chunk's tokens with their keys; a short chunk fills its tile for the keys of the past.
    pub fn pairs(&self, new: u64, past: u64) -> u64 {
        2 * new.max(self.least_query_tokens) * past + new * new
    }

    /// The step's duration in ns; the shape must lie within the table.
    pub fn step_ns(&self, s: &StepShape) -> u64 {
        self.kernels_ns(s).max(self.launch_of(s) + self.tail_of(s))
    }

    /// The host's time to launch the step in ns.
    pub fn launch_of(&self, s: &StepShape) -> u64 {
        let own = self.launch_sequence_ns * s.decode_sequences;
        if s.new_tokens + s.decode_sequences > self.captured_tokens {
            self.launch_ns + own
        } else if s.new_tokens > 0 {
            self.pieces_launch_ns + own
        } else {
            self.graph_launch_ns + own
        }
    }

    /// Time from the launch's end to the step's end, in ns, on a GPU that waited for the launch.
    pub fn tail_of(&self, s: &StepShape) -> u64 {
        self.tail_ns + self.tail_sequence_ns * s.decode_sequences
    }

    /// The time of the step's kernels in ns; the shape must lie within the table.
    pub fn kernels_ns(&self, s: &StepShape) -> u64 {
        let mut alone = match self.longest_fs.get(s.decode_sequences as usize) {
            Some(fs) => fs * s.decode_max_kv_tokens,
            None => 0,
        };
        let kv = s
            .decode_kv_tokens
            .max(self.least_kv_tokens * s.decode_sequences);
        let at_longest = s.decode_sequences * s.decode_max_kv_tokens;
        let spread = at_longest.saturating_sub(kv);
        if self.unsplit_sequences > 0 && s.decode_sequences >= self.unsplit_sequences {
            let hidden = self.unsplit_hidden_fs / s.decode_sequences * kv;
            let last = (self.unsplit_fs * s.decode_max_kv_tokens).saturating_sub(hidden);
            alone = alone.max(self.kv_decode_fs * kv + last);
        }
        let (base, linear) = if s.new_tokens == 0 {
            let fs = alone.max(self.kv_decode_fs * kv + self.spread_decode_fs * spread);
            (self.decode_base_ns[s.decode_sequences as usize], fs)
        } else {
            let scan = self.scan_fs * s.longest_chunk_tokens.max(s.decode_max_kv_tokens);
            let decode = self.kv_mixed_fs * kv + self.spread_mixed_fs * spread;
            let all = alone.max(decode) + self.pair_half_fs * s.pairs;
            let idle = self.idle_fs * s.decode_sequences * s.new_tokens;
            let alongside = if s.decode_sequences > 0 {
                self.alongside_fs
            } else {
                0
            };
            let fs = all.max(scan) + self.past_fs * s.past_tokens + idle + alongside;
            let tokens = s.new_tokens + s.decode_sequences;
            let bases = if s.past_tokens > 0 && !self.past_base_ns.is_empty() {
                &self.past_base_ns
            } else {
                &self.base_ns
            };
            (bases[tokens as usize] as i64, fs)
        };
        let decode_residual = match s.decode_kv_tokens.checked_div(s.decode_sequences) {
            Some(each) if s.new_tokens > 0 => self.mixed_residuals.at(s.decode_sequences, each),
            Some(each) => self.kv_residuals.at(s.decode_sequences, each),
            None => 0,
        };
        let residual = decode_residual + s.past_residual_ns;
        let ns = (linear + self.sequence_fs * s.decode_sequences + 500_000) / 1_000_000;
        let kernels = base.saturating_add(residual).saturating_add_unsigned(ns);
        kernels.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same figures as `tests/calibrate/test_step_tables.py::test_the_longest_sequence_alone_is_a_floor_under_attention`.
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
        let unsplit = |unsplit_sequences| StepTimeTable {
            longest_fs: vec![],
            unsplit_sequences,
            unsplit_fs: 2_000_000,
            unsplit_hidden_fs: 2_000_000,
            ..table.clone()
        };
        let ns = [unsplit(2), unsplit(3)].map(|own| own.step_ns(&shape(0, 20, 18)));
        assert_eq!(ns, [10 + 20 + 16, 10 + 20]);
    }

    /// The same figures as `tests/calibrate/test_step_tables.py::test_what_no_graph_holds_takes_as_long_as_its_launch`.
    #[test]
    fn what_no_graph_holds_takes_as_long_as_its_launch() {
        let table = StepTimeTable {
            base_ns: vec![0, 10, 20, 30, 40],
            decode_base_ns: vec![0, 5, 6, 7],
            launch_ns: 35,
            captured_tokens: 2,
            ..StepTimeTable::default()
        };
        let ns = |new_tokens, decode_sequences| {
            table.step_ns(&StepShape {
                new_tokens,
                decode_sequences,
                ..StepShape::default()
            })
        };
        assert_eq!([ns(1, 1), ns(2, 0), ns(0, 2)], [20, 20, 6]);
        assert_eq!([ns(2, 1), ns(0, 3), ns(4, 0)], [35, 35, 40]);
        let held = StepTimeTable {
            pieces_launch_ns: 25,
            graph_launch_ns: 7,
            ..table.clone()
        };
        let of = |new_tokens, decode_sequences| {
            let shape = StepShape {
                new_tokens,
                decode_sequences,
                ..StepShape::default()
            };
            [
                held.kernels_ns(&shape),
                held.launch_of(&shape),
                held.step_ns(&shape),
            ]
        };
        assert_eq!([of(1, 1), of(0, 2)], [[20, 25, 25], [6, 7, 7]]);
        assert_eq!([of(2, 1), of(4, 0)], [[30, 35, 35], [40, 35, 40]]);
        let tailed = StepTimeTable {
            launch_sequence_ns: 3,
            tail_ns: 4,
            tail_sequence_ns: 2,
            ..held.clone()
        };
        let two = StepShape {
            decode_sequences: 2,
            ..StepShape::default()
        };
        let found = [
            tailed.launch_of(&two),
            tailed.tail_of(&two),
            tailed.step_ns(&two),
        ];
        assert_eq!(found, [13, 8, 21]);
    }

    /// The same figures as `tests/calibrate/test_step_tables.py::test_a_chunks_past_and_the_decodes_in_its_step_in_closed_form`.
    #[test]
    fn a_chunks_past_has_its_base_and_decodes_alongside_a_constant() {
        let table = StepTimeTable {
            base_ns: vec![0, 10, 20, 30, 40],
            past_base_ns: vec![0, 7, 9, 8, 50],
            decode_base_ns: vec![0, 5, 6],
            alongside_fs: 3_000_000,
            ..StepTimeTable::default()
        };
        let ns = |new_tokens, past_tokens, decode_sequences| {
            table.step_ns(&StepShape {
                new_tokens,
                past_tokens,
                decode_sequences,
                ..StepShape::default()
            })
        };
        assert_eq!([ns(3, 0, 0), ns(3, 1, 0), ns(0, 0, 2)], [30, 8, 6]);
        assert_eq!([ns(2, 0, 1), ns(2, 1, 1), ns(2, 1, 2)], [33, 11, 53]);
    }

    /// The same figures as `tests/calibrate/test_step_tables.py::test_tiles_and_the_scan_on_figures_by_hand`.
    #[test]
    fn tiles_and_the_scan_are_floors() {
        let table = StepTimeTable {
            base_ns: vec![0, 10, 10, 10, 10],
            decode_base_ns: vec![0, 10, 10],
            pair_half_fs: 500_000,
            kv_decode_fs: 1_000_000,
            kv_mixed_fs: 1_000_000,
            scan_fs: 3_000_000,
            idle_fs: 7_000_000,
            least_kv_tokens: 64,
            least_query_tokens: 4,
            ..StepTimeTable::default()
        };
        let decode = |kv| StepShape {
            decode_sequences: 2,
            decode_kv_tokens: 2 * kv,
            decode_max_kv_tokens: kv,
            ..StepShape::default()
        };
        assert_eq!(table.step_ns(&decode(10)), 10 + 128);
        assert_eq!(table.step_ns(&decode(70)), 10 + 140);
        assert_eq!(table.pairs(2, 100), 804);
        let chunk = |past| StepShape {
            new_tokens: 2,
            pairs: table.pairs(2, past),
            longest_chunk_tokens: past + 2,
            ..StepShape::default()
        };
        assert_eq!(table.step_ns(&chunk(100)), 10 + 402);
        assert_eq!(table.step_ns(&chunk(0)), 10 + 6);
        let with_two_decodes = StepShape {
            new_tokens: 2,
            pairs: table.pairs(2, 0),
            longest_chunk_tokens: 2,
            ..decode(100)
        };
        assert_eq!(table.step_ns(&with_two_decodes), 10 + 300 + 7 * 2 * 2);
    }
}
