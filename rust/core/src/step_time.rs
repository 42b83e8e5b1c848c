//! The time of a scheduler step from one table of integers (the rules of `model/step_time.py`).

mod parts;

pub use parts::{
    LaunchTimes, LeastTokens, StageTimes, StepBases, StepCoefficients, StepResiduals, UnsplitKv,
};

/// A base by token count plus terms in femtoseconds.
///
/// ```
/// use kvsim_core::step_time::{StepBases, StepCoefficients, StepShape, StepTimeTable};
///
/// // A decode step of one sequence: 10 ns, and 2 ns (2,000,000 fs) for each token of KV.
/// let table = StepTimeTable {
///     bases: StepBases { decode_ns: vec![0, 10], ..StepBases::default() },
///     coefficients: StepCoefficients { kv_decode_fs: 2_000_000, ..StepCoefficients::default() },
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
    /// Bases by token count.
    pub bases: StepBases,
    /// Coefficients of the terms.
    pub coefficients: StepCoefficients,
    /// Least counts of tokens.
    pub least: LeastTokens,
    /// Per token of the longest sequence alone, by decode sequences; empty: no such lower bound of attention.
    pub longest_fs: Vec<u64>,
    /// Decode sequences whose KV is not split.
    pub unsplit: UnsplitKv,
    /// Residuals of measured steps.
    pub residuals: StepResiduals,
    /// The host's time to launch a step.
    pub launch: LaunchTimes,
    /// Its parts on pipeline stages.
    pub stages: StageTimes,
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
    /// [`StepResiduals::past`] over the chunks that have a past, in ns.
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
    /// All its tokens.
    pub fn tokens(&self) -> u64 {
        self.new_tokens + self.decode_sequences
    }

    /// Adds a chunk of a prompt after `past` tokens that have KV.
    pub fn add_chunk(&mut self, new: u64, past: u64, table: &StepTimeTable) {
        self.new_tokens += new;
        self.pairs += table.pairs(new, past);
        self.past_tokens += past;
        if past > 0 {
            self.past_residual_ns += table.residuals.past.at(new, past);
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
        2 * new.max(self.least.query_tokens) * past + new * new
    }

    /// The step's duration in ns; the shape must lie within the table.
    pub fn step_ns(&self, s: &StepShape) -> u64 {
        self.kernels_ns(s).max(self.launch_of(s) + self.tail_of(s))
    }

    /// The host's time to launch the step in ns.
    pub fn launch_of(&self, s: &StepShape) -> u64 {
        let own = self.launch.sequence_ns * s.decode_sequences;
        if s.new_tokens + s.decode_sequences > self.launch.captured_tokens {
            self.launch.eager_ns + own
        } else if s.new_tokens > 0 {
            self.launch.pieces_ns + own
        } else {
            self.launch.graph_ns + own
        }
    }

    /// Time from the launch's end to the step's end, in ns, on a GPU that waited for the launch.
    pub fn tail_of(&self, s: &StepShape) -> u64 {
        self.launch.tail_ns + self.launch.tail_sequence_ns * s.decode_sequences
    }

    /// The time of the step's kernels in ns; the shape must lie within the table.
    pub fn kernels_ns(&self, s: &StepShape) -> u64 {
        let mut alone = match self.longest_fs.get(s.decode_sequences as usize) {
            Some(fs) => fs * s.decode_max_kv_tokens,
            None => 0,
        };
        let kv = s
            .decode_kv_tokens
            .max(self.least.kv_tokens * s.decode_sequences);
        let at_longest = s.decode_sequences * s.decode_max_kv_tokens;
        let spread = at_longest.saturating_sub(kv);
        if self.unsplit.sequences > 0 && s.decode_sequences >= self.unsplit.sequences {
            let hidden = self.unsplit.hidden_fs / s.decode_sequences * kv;
            let last = (self.unsplit.fs * s.decode_max_kv_tokens).saturating_sub(hidden);
            alone = alone.max(self.coefficients.kv_decode_fs * kv + last);
        }
        let (base, linear) = if s.new_tokens == 0 {
            let fs = alone.max(
                self.coefficients.kv_decode_fs * kv + self.coefficients.spread_decode_fs * spread,
            );
            (self.bases.decode_ns[s.decode_sequences as usize], fs)
        } else {
            let scan =
                self.coefficients.scan_fs * s.longest_chunk_tokens.max(s.decode_max_kv_tokens);
            let decode =
                self.coefficients.kv_mixed_fs * kv + self.coefficients.spread_mixed_fs * spread;
            let all = alone.max(decode) + self.coefficients.pair_half_fs * s.pairs;
            let idle = self.coefficients.idle_fs * s.decode_sequences * s.new_tokens;
            let alongside = if s.decode_sequences > 0 {
                self.coefficients.alongside_fs
            } else {
                0
            };
            let fs = all.max(scan) + self.coefficients.past_fs * s.past_tokens + idle + alongside;
            let tokens = s.new_tokens + s.decode_sequences;
            let bases = if s.past_tokens > 0 && !self.bases.past_chunk_ns.is_empty() {
                &self.bases.past_chunk_ns
            } else {
                &self.bases.chunk_ns
            };
            (bases[tokens as usize] as i64, fs)
        };
        let decode_residual = match s.decode_kv_tokens.checked_div(s.decode_sequences) {
            Some(each) if s.new_tokens > 0 => self.residuals.mixed.at(s.decode_sequences, each),
            Some(each) => self.residuals.kv.at(s.decode_sequences, each),
            None => 0,
        };
        let residual = decode_residual + s.past_residual_ns;
        let ns =
            (linear + self.coefficients.sequence_fs * s.decode_sequences + 500_000) / 1_000_000;
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
            bases: StepBases {
                chunk_ns: vec![0, 10, 10, 10],
                decode_ns: vec![0, 10, 10],
                ..StepBases::default()
            },
            coefficients: StepCoefficients {
                kv_decode_fs: 1_000_000,
                kv_mixed_fs: 2_000_000,
                ..StepCoefficients::default()
            },
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
            unsplit: UnsplitKv {
                sequences: unsplit_sequences,
                fs: 2_000_000,
                hidden_fs: 2_000_000,
            },
            longest_fs: vec![],
            ..table.clone()
        };
        let ns = [unsplit(2), unsplit(3)].map(|own| own.step_ns(&shape(0, 20, 18)));
        assert_eq!(ns, [10 + 20 + 16, 10 + 20]);
    }

    /// The same figures as `tests/calibrate/test_step_tables.py::test_what_no_graph_holds_takes_as_long_as_its_launch`.
    #[test]
    fn what_no_graph_holds_takes_as_long_as_its_launch() {
        let table = StepTimeTable {
            bases: StepBases {
                chunk_ns: vec![0, 10, 20, 30, 40],
                decode_ns: vec![0, 5, 6, 7],
                ..StepBases::default()
            },
            launch: LaunchTimes {
                eager_ns: 35,
                captured_tokens: 2,
                ..LaunchTimes::default()
            },
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
            launch: LaunchTimes {
                pieces_ns: 25,
                graph_ns: 7,
                ..table.launch
            },
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
            launch: LaunchTimes {
                sequence_ns: 3,
                tail_ns: 4,
                tail_sequence_ns: 2,
                ..held.launch
            },
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
            bases: StepBases {
                chunk_ns: vec![0, 10, 20, 30, 40],
                past_chunk_ns: vec![0, 7, 9, 8, 50],
                decode_ns: vec![0, 5, 6],
            },
            coefficients: StepCoefficients {
                alongside_fs: 3_000_000,
                ..StepCoefficients::default()
            },
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
            bases: StepBases {
                chunk_ns: vec![0, 10, 10, 10, 10],
                decode_ns: vec![0, 10, 10],
                ..StepBases::default()
            },
            coefficients: StepCoefficients {
                pair_half_fs: 500_000,
                kv_decode_fs: 1_000_000,
                kv_mixed_fs: 1_000_000,
                scan_fs: 3_000_000,
                idle_fs: 7_000_000,
                ..StepCoefficients::default()
            },
            least: LeastTokens {
                kv_tokens: 64,
                query_tokens: 4,
            },
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
